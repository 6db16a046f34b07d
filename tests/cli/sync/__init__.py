"""The commands below `directsuite sync`."""
