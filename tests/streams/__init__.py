"""Bytes in and out: sources, destinations, progress, and what bounds a stream."""
