"""Half an hour of mixed load: does the memory of the client stay flat, and are all sockets closed?

python -m benchmarks soak --minutes 30

actions           every operation of the four services, as a table of actions
sandbox_process   the sandbox, in a separate process
load              tasks that do the actions, cancel some of them, and open and close suites; faults and outages
report            samples, checks, the page and the picture
"""
