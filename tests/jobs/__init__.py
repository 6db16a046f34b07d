"""Tests of signing jobs and delivery tracking."""
