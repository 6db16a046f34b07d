"""The types of the public names, read by type checkers."""
