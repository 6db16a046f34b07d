"""Half an hour of mixed load and faults."""
