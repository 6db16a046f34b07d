"""The registration service of the sandbox (specification 4.D): how it refuses.

service.py        the five operations; logins and their sessions
patients.py       Direct addresses, their states, and what was paid for them
individuals.py    the identity-proofed people whom addresses are provisioned for
"""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Code", "RefusedError"]


class Code(StrEnum):
    """The codes of specification section 7 that the sandbox gives."""

    SUCCESS = "000"
    INVALID_USER = "002"
    INVALID_ARGUMENT = "010"
    AUTHENTICATION_FAILED = "011"
    USER_ACCOUNT_ERROR = "014"
    INVALID_STATE = "204"
    NOT_PROOFED = "205"
    NO_ORGANIZATION = "208"
    NO_ADDRESS = "210"


class RefusedError(Exception):
    """The service refuses, with a code of specification section 7 and a text."""

    def __init__(self, code: Code, text: str) -> None:
        super().__init__(text)
        self.code = code
