"""Tests of delivery tracking: each final status is reported despite failures, with few requests."""
