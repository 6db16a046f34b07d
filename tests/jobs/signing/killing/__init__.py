"""Signing jobs in processes that are killed."""
