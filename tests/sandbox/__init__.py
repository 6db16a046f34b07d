"""Tests of directsuite.sandbox."""
