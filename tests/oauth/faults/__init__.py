"""Grants on bad days: lost answers, refusals, garbage; in virtual time, against a scripted server."""
