"""`directsuite demo`: all four services through the client, with a check of everything that comes back.

command   the output folder, the run, the exit status
scene     what every step works with: a sandbox of its own, a suite for it, the folder, the progress
steps     the table of the steps, and how each is run and timed
patient, message, mailbox, signing, fax       the steps
clinical, pdf, verification                   the documents that they send and sign, and pyHanko's word on those
progress, report                              what is seen while it runs, and at the end
"""
