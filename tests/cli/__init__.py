"""The command `directsuite`."""
