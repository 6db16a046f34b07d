"""Batch signing: each output has its signatures exactly once, whatever breaks."""
