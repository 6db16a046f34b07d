"""Sandboxes that are killed, again and again."""
