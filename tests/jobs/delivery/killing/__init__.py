"""Delivery trackers in processes that are killed."""
