"""Delivery tracking: each end is told, whatever breaks, and in few requests."""
