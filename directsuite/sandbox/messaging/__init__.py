"""The sandbox's messaging service: mailboxes of RFC 5322 messages, and their delivery."""
