"""Tests of the sandbox's page."""
