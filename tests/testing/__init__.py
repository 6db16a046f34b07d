"""What users get for their own tests: the clock, the pytest plugin, and the package as it is installed."""
