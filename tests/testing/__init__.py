"""Tests of the clock and the pytest plugin for users' tests, and of the installed package."""
