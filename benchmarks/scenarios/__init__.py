"""What is measured: the works that a client can be given, and the table of rows with their targets.

table ── rows     one record for each row: work, sizes, clients, figures with their targets
works             what a row's name of a work means, done with any of the clients
growth, startup   rows of several sizes; what a new interpreter runs
"""
