"""Tests of the client against the sandbox with faults, cancellations and planted secrets."""
