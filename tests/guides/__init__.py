"""Tests of README and of the guides: their programs, commands, tables and links."""
