"""Tests of the command `directsuite`."""
