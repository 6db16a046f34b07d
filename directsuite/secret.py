"""A wrapper for secrets that keeps them out of logs and tracebacks."""

from __future__ import annotations

from typing import Final, final


@final
class Secret:
    """A password, token or session id that is not shown by `str`, `repr`, formatting, logs or tracebacks.

    `reveal()` returns the text. Two secrets with the same text are equal. A secret never equals a plain string. An
    empty secret is false.
    """

    __slots__ = ("_text",)
    _text: Final[str]

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text. Call this only to send the secret."""
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
    """Return a Secret."""
    return text if isinstance(text, Secret) else Secret(text)


def as_optional_secret(text: str | Secret | None) -> Secret | None:
    """Return a Secret, or None if `text` is None."""
    return None if text is None else as_secret(text)
