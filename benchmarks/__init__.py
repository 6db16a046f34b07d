"""Measurements, for this machine and its neighbours: ratios and slopes, never absolute times.

`python -m benchmarks` sets every target of the hot path beside bare aiohttp and generated clients, in one run, and
writes RESULTS.md; `python -m benchmarks soak` runs all of the client for half an hour, and looks at its memory and
sockets; `python -m benchmarks counts` notes what no machine changes, which a test compares.

scenarios    what is measured: the table of rows, with their targets
measuring    how: processes, rounds, gauges
peers        the clients
server       their canned answers
report       what came out
"""
