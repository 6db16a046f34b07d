"""How the messaging service says no: one of four codes and a text (specification section 7)."""

from __future__ import annotations

from enum import IntEnum


class Code(IntEnum):
    """The code of an APIResponse."""

    SUCCESS = 0
    AUTHENTICATION = 1
    ADDRESS = 2
    FOLDER = 3
    OTHER = 4


class Refusal(Exception):  # noqa: N818  an answer, not a fault
    """The service refuses: the request changes nothing and is answered with success false, this code and this text."""

    def __init__(self, code: Code, text: str, *, http_status: int = 200) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.http_status = http_status
