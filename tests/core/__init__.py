"""Tests of the core over real sockets: outcomes, retries, credentials, limits, deadlines, life cycle."""
