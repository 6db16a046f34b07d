"""Synchronisation compared with a model: a simulated mailbox, server, store and sink."""
