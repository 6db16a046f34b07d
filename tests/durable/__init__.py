"""Tests of data that outlives a process."""
