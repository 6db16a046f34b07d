"""A text that goes on the wire and nowhere else."""

from __future__ import annotations

from typing import Final, final


@final
class Secret:
    """A password, token or session id, which no `str`, `repr`, log line, format or traceback shows.

    `reveal()` gives the text. Two secrets with the same text are equal; a secret never equals a plain string.
    """

    __slots__ = ("_text",)
    _text: Final[str]

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text, for the line that puts it on the wire."""
        return self._text

    def __repr__(self) -> str:
        return "Secret('***')"

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return self._text == other._text if isinstance(other, Secret) else NotImplemented

    def __hash__(self) -> int:
        return hash((Secret, self._text))

    def __bool__(self) -> bool:
        return bool(self._text)


def as_secret(text: str | Secret) -> Secret:
    """The secret itself, or a new one around a plain text."""
    return text if isinstance(text, Secret) else Secret(text)


def as_optional_secret(text: str | Secret | None) -> Secret | None:
    """As `as_secret`; None stays None."""
    return None if text is None else as_secret(text)
