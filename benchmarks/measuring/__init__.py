"""How something is measured: processes, turns taken in rotation, gauges, and what a series of figures says.

command ── run ── rounds     every client in turn, round by round
                  ├─ processes ── worker    a client's own process, on a core of its own
                  │               └─ gauges    CPU, wall time, peak memory, longest pause of the event loop
                  └─ spread     median and quartiles of the rounds' ratios
"""
