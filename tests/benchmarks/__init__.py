"""The benchmarks' own parts, and a few seconds of the soak."""
