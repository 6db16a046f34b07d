"""The messaging service (specification section C): Direct messages, their delivery, and mailboxes."""
