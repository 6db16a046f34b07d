"""Tests of the mailbox synchronisation."""
