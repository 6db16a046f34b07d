"""Tests of directsuite.sandbox/platform."""
