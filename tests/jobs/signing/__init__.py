"""Tests of batch signing: each output has its signatures exactly once, despite failures."""
