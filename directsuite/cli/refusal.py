"""What keeps a command from doing what was asked."""

from __future__ import annotations

NO_TEXT = "is no text in this machine's encoding: see to LC_ALL, as en_US.UTF-8, or write it anew"
"""What is said of text that came as other bytes."""


class RefusedError(Exception):
    """Options, files or the environment are not as they have to be; the text says what to do."""


class NotThereError(Exception):
    """What was asked for isn't there; the text says how to find what is."""


def refuse_no_text(text: str | None, named: str) -> None:
    """Raise RefusedError for what came as bytes which are no text here. named: the option or variable, for people."""
    try:
        (text or "").encode()
    except UnicodeEncodeError:  # which would show it
        pass
    else:
        return
    raise RefusedError(f"{named} {NO_TEXT}")
