"""`directsuite patient`: Direct addresses for identity-proofed patients.

app ──► finding ──► individual_file    find, by-username
 ├────► adding ───► individual_file    add
 └────► passwords                      passwords

Who somebody is stands in a file that others may not read: arguments can be read by every user of the machine.
"""
