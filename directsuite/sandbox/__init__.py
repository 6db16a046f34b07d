"""The sandbox: the four services, for real, on loopback."""
