"""Tests of sources, destinations, progress, and the limits of a stream."""
