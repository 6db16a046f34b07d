"""Tests of the OAuth 2.0 grants: by themselves, against the sandbox, and, in `faults`, against a scripted server."""
