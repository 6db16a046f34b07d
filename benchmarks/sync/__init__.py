"""Synchronisation measured: `python -m benchmarks sync`.

idle      a look at a folder of 100,000 messages in which nothing happened
first     20,000 messages of 20 KB for the first time, beside the bare iterator
fairness  1,000 mailboxes, one of them very large: how long the small ones wait

command   runs each in a process of its own, and writes results/sync.md and sync.json
works     what each does
remotes   mailboxes of the canned server, which dates all messages alike
"""
