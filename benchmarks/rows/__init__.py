"""directsuite compared with other clients, row by row.

table     the rows: work, sizes, clients, and figures with their targets
works     the work that a client does in one turn
worker    the process of one client
rounds    starts the processes; in each round every client does one turn
results   figures computed from the readings
page      RESULTS.md and its pictures
command   `python -m benchmarks`
"""
