"""The signing service (specification section A)."""
