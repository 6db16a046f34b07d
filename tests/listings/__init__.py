"""Listings over real sockets in virtual time: what is fetched ahead, and when; memory; back-pressure."""
