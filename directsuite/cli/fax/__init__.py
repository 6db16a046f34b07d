"""`directsuite fax`: the status of faxes.

app ──► showing    list, show
"""
