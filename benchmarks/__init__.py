"""Measurements, for this machine and its neighbours: ratios and slopes, never absolute times.

`python -m benchmarks` sets one call beside bare aiohttp, in one run; `python -m benchmarks soak` runs all of the client
for half an hour, and looks at its memory and sockets.
"""
