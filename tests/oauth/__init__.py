"""Tests of the OAuth 2.0 grants: alone, against the sandbox, and, in `faults`, against a scripted server."""
