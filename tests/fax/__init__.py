"""Tests of the fax service's client."""
