"""Sinks outside the store, which receive the changes of a synchronisation at least once."""
