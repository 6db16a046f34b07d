"""The registration service of the sandbox (specification 4.D)."""
