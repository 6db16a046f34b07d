"""Grants and faults: lost, rejecting and malformed responses, in virtual time, on a scripted server."""
