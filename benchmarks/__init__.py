"""Measurements: ratios and growth, because absolute times are only valid for one machine.

`python -m benchmarks` compares directsuite with bare aiohttp and generated clients, and writes RESULTS.md. The other
commands are listed in `__main__`. The server of prepared responses is in `server`, the other clients in `peers`.
"""
