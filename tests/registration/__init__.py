"""Tests of the registration service's client."""
