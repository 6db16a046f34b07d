"""`directsuite send`, `inbox` and `status`: one mailbox, for people and for scripts.

app ──► sending ─► composing, sent_once    send
 ├────► listing                            inbox list
 ├────► reading ─► html_text               inbox read
 ├────► saving ─► file_names               inbox save
 └────► status                             status
"""
