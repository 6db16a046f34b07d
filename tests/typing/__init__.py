"""The types of the public face, for the type checkers."""
