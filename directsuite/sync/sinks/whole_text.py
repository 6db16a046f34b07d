"""Text that any file and any database takes."""

from __future__ import annotations


def whole_text(text: str) -> str:
    """The text with each half of a surrogate pair that stands alone replaced by U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
