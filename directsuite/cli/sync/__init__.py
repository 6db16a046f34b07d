"""`directsuite sync`: a worker that keeps mailboxes in step, and what its operator asks of it.

app ──► command ─► worker, displays      run: until a signal comes, or all is in step
 ├────► status ─► report                 status: from the worker's report and the store, beside the worker
 └────► wishing                          audit, retry: a wish in the store, which the worker grants
"""
