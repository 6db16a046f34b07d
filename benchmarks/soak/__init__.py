"""Half an hour of everything: does the client's memory stay flat, and does it give back every socket?

    python -m benchmarks soak --minutes 30

    command   the options, the run, the exit status
    course    the run: epochs of load, each with a quiet moment at its end
    workers   tasks that do one action after the other, cancel some half-way, and open and close suites
    mailbox_actions, other_actions    what they do: every operation of the four services, as a table
    trouble   faults, outages, tokens and sessions that run out
    server    the sandbox, in a process of its own
    census    what is counted, every five seconds, in this process: memory, sockets, tasks, objects
    tally     what calls and actions came to
    verdict   the samples against what has to hold
    report    JSON, Markdown and a drawing of it

Needs Linux: memory and sockets are read from /proc.
"""
