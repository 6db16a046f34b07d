"""Tests of the sandbox's messaging service."""
