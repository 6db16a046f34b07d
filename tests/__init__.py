"""Tests of directsuite."""
