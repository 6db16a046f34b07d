"""directsuite compared with other clients, row by row."""
