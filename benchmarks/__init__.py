"""Side by side with bare aiohttp, in one run: ratios, never absolute times. `python -m benchmarks` runs all of it."""
