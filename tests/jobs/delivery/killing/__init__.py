"""Trackers in processes that are killed."""
