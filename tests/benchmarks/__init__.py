"""The benchmarks: their parts, and each of them once in a small size."""
