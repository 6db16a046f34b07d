"""What keeps a command from doing what was asked."""

from __future__ import annotations


class RefusedError(Exception):
    """Options, files or the environment are not as they have to be; the text says what to do."""


class NotThereError(Exception):
    """What was asked for isn't there; the text says how to find what is."""
