"""Tests of the messaging service's client."""
