"""Synchronisation.

canned           mailboxes of the server of prepared responses
works            `python -m benchmarks sync`: idle rounds, first synchronisation, fairness
fleet            `python -m benchmarks fleet`: workers on PostgreSQL
latency          from arrival to commit, simulated
mailbox_tools    first synchronisation into files, compared with mbsync and imap_tools
"""
