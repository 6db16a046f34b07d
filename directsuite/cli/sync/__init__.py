"""`directsuite sync`: a worker that keeps mailboxes in step, and what its operator asks of it.

app ──► running ─► command ─► worker, displays    run: until a signal comes, or all is in step
 ├────► status ─► gathered, told                  status: from the worker's report and the store, beside the worker
 └────► wishing                                   audit, retry: a wish in the store, which the worker grants

addresses, folders, passwords and opening say what is wrong before any of them begins.
"""
