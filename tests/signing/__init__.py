"""Tests of the signing service's client."""
