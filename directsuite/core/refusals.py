"""How a service says no: which bodies are refusals of its own, and which error each code is.

signing, fax     {"error": ..., "description": ...}; the HTTP status says which error
messaging        {"success": false, "code": 1, "message": ...}; the code says which, whatever the status
registration     {"success": false, "code": "011", "errorMessage": ...}; likewise
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

import attrs

from directsuite.errors import (
    AuthenticationError,
    BadRequestError,
    NotFoundError,
    PermissionDeniedError,
    RateLimitedError,
    ServerError,
    ServiceError,
)
from directsuite.wire.models import ValueSemantics

Code = int | str


@attrs.frozen(repr=False, eq=False)
class Refused(ValueSemantics):
    """What a service's own body says: its code, where it has one, and its text for people."""

    code: Code | None
    message: str | None


_NUMBER = re.compile(r"[0-9]{1,9}")  # "²" is a digit to `str.isdigit`, and 5,000 digits are too many for `int`


@attrs.frozen(kw_only=True, repr=False, eq=False)
class Refusals(ValueSemantics):
    """A service's way of saying no, as data.

    flag: the member that is true on success, None where the service has none. texts: members that hold the text for
    people, the first one found counts. codes: what each of the service's codes means. renewal: the code that asks for
    a new session.
    """

    flag: str | None = None
    texts: tuple[str, ...]
    codes: Mapping[Code, tuple[type[ServiceError], str]] = attrs.field(
        factory=dict[Code, tuple[type[ServiceError], str]]
    )
    success_code: Code | None = None
    renewal: Code | None = None

    def read(self, document: Any) -> Refused | None:
        """The refusal that a JSON document is, or None where it is no refusal in the service's own form."""
        if self.flag is not None and self._plainly_says_yes(document):
            return None
        if not isinstance(document, dict):
            return None
        body = cast("dict[str, Any]", document)
        if self.flag is not None and not self._says_no(body):
            return None
        texts = [body[name] for name in self.texts if isinstance(body.get(name), str)]
        message = texts[0] if texts else None
        if self.flag is None:
            return Refused(None, message) if isinstance(body.get(self.texts[0]), str) else None
        return Refused(self._code(body.get("code")), message)

    def _says_no(self, body: dict[str, Any]) -> bool:
        success = body.get(self.flag or "")
        if success is None and self.success_code is not None:  # registration: the code alone decides as well
            return "code" in body and self._code(body["code"]) != self.success_code
        return success is False or (isinstance(success, str) and success.lower() == "false")

    def _code(self, value: Any) -> Code | None:
        if isinstance(value, str):
            return value if value in self.codes or not _NUMBER.fullmatch(value) else self._numbered(int(value), value)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def _numbered(self, number: int, text: str) -> Code:
        return number if number in self.codes else text

    def _plainly_says_yes(self, document: Any) -> bool:
        return isinstance(document, dict) and cast("dict[str, Any]", document).get(self.flag or "") is True

    def says_yes(self, document: Any) -> bool:
        """Whether a JSON document claims success in the service's own form, or needs no such claim."""
        if self.flag is None or self._plainly_says_yes(document):
            return True
        if not isinstance(document, dict):
            return False
        body = cast("dict[str, Any]", document)
        success = body.get(self.flag)
        return success is True or (isinstance(success, str) and success.lower() == "true") or self._code_says_yes(body)

    def _code_says_yes(self, body: dict[str, Any]) -> bool:
        return (
            self.success_code is not None
            and body.get(self.flag or "") is None
            and body.get("code") == self.success_code
        )


def class_of_status(status: int) -> tuple[type[ServiceError], str]:
    """The error for an HTTP status, and what it means (specification section 7)."""
    if status in _STATUSES:
        return _STATUSES[status]
    if status >= 500:
        return ServerError, "the service failed"
    if status < 300:
        return ServiceError, "the service reports an error, though with a good status"
    if status < 400:
        return ServiceError, "the service redirects, which is not followed: check the URL in the settings"
    return ServiceError, "the service refused the request"


_STATUSES: dict[int, tuple[type[ServiceError], str]] = {
    400: (BadRequestError, "invalid action, or a parameter is missing or invalid"),
    401: (AuthenticationError, "no valid access token in the request"),
    403: (PermissionDeniedError, "permission denied for the requested action"),
    404: (NotFoundError, "endpoint not found: check the URL in the settings, or the thing asked for is gone"),
    429: (RateLimitedError, "too many requests"),
}
