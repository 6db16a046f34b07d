"""Answers of the registration service: ResellerAPIResponseType, its codes, and the types that extend it.

Refusals are HTTP 200 with `success: false`; a body that is not JSON at all is HTTP 400 with the same members.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from aiohttp import web


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
    """The service says no: with a code of specification section 7 and a text."""

    def __init__(self, code: Code, text: str) -> None:
        super().__init__(text)
        self.code = code


def success(**members: Any) -> web.Response:
    """A ResellerAPIResponseType that succeeded, with the members that its extension adds."""
    return web.json_response({"code": Code.SUCCESS, "success": True, **members})


def failure(refused: RefusedError) -> web.Response:
    """A ResellerAPIResponseType that did not succeed."""
    return web.json_response({"code": refused.code, "success": False, "errorMessage": str(refused)})
