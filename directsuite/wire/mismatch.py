"""The one failure of the wire layer: bytes that are not what they should be."""

from __future__ import annotations


class MismatchError(ValueError):
    """A value that its field does not take: `path` is a JSON path from `$`, `expected` says what was wanted.

    Never holds the value: it may be a patient's.
    """

    def __init__(self, expected: str, path: str = "$") -> None:
        super().__init__(f"{path} should be {expected}")
        self.expected = expected
        self.path = path
