"""The form of each service's error bodies, as data.

A fault is an error that the service reports in a JSON body, in its own format. The format may have a success flag, a
code, and messages for people.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

import attrs

from directsuite.errors import ServiceError
from directsuite.wire.models import ValueSemantics

Code = int | str


@attrs.frozen(repr=False, eq=False)
class ServiceFault(ValueSemantics):
    """A fault: its code and its message for people, each None if the body has none. The message may be empty."""

    code: Code | None
    message: str | None


# `str.isdigit` accepts "²", and `int` raises for more than 4,300 digits.
_DIGITS = re.compile(r"[0-9]{1,9}")


@attrs.frozen(kw_only=True, repr=False, eq=False)
class FaultFormat(ValueSemantics):
    """The form of one service's error bodies."""

    success_key: str | None = None
    """The JSON key of the success flag. None if the service has none."""
    message_keys: tuple[str, ...]
    """The JSON keys that may contain a message for people.

    If the service has a flag, the first message found is used. Otherwise a body is a fault only if it has the first
    key, and the messages of all keys are joined.
    """
    codes: Mapping[Code, tuple[type[ServiceError], str]] = attrs.field(
        factory=dict[Code, tuple[type[ServiceError], str]]
    )
    """The error class and the meaning of each code of the service."""
    success_code: Code | None = None
    """The code that means success in a body without the flag. None if the service has none."""
    new_session_code: Code | None = None
    """The code that requests a new session. None if the service has none."""

    def read(self, document: Any) -> ServiceFault | None:
        """Return the fault that a JSON document reports, or None if it reports none in this format."""
        if self.success_key is not None and self._is_flag_true(document):
            return None
        if not isinstance(document, dict):
            return None
        body = cast("dict[str, Any]", document)
        if self.success_key is not None and not self._is_failure(body):
            return None
        texts = [text for name in self.message_keys if isinstance(text := body.get(name), str)]
        if self.success_key is None:
            first = body.get(self.message_keys[0])
            if not isinstance(first, str):
                return None
            return ServiceFault(None, first and ": ".join(dict.fromkeys(text for text in texts if text)))
        return ServiceFault(self._parse_code(body.get("code")), texts[0] if texts else None)

    def _is_failure(self, body: dict[str, Any]) -> bool:
        success = body.get(self.success_key or "")
        # Bodies of the registration service may have a code without the flag.
        if success is None and self.success_code is not None:
            return "code" in body and self._parse_code(body["code"]) != self.success_code
        return success is False or (isinstance(success, str) and success.lower() == "false")

    def _parse_code(self, value: Any) -> Code | None:
        if isinstance(value, str):
            return (
                value if value in self.codes or not _DIGITS.fullmatch(value) else self._to_known_code(int(value), value)
            )
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def _to_known_code(self, number: int, text: str) -> Code:
        return number if number in self.codes else text

    def _is_flag_true(self, document: Any) -> bool:
        return isinstance(document, dict) and cast("dict[str, Any]", document).get(self.success_key or "") is True

    def is_success(self, document: Any) -> bool:
        """Return True if a JSON document reports success in this format, or the service has no flag."""
        if self.success_key is None or self._is_flag_true(document):
            return True
        if not isinstance(document, dict):
            return False
        body = cast("dict[str, Any]", document)
        success = body.get(self.success_key)
        return (
            success is True or (isinstance(success, str) and success.lower() == "true") or self._is_success_code(body)
        )

    def _is_success_code(self, body: dict[str, Any]) -> bool:
        return (
            self.success_code is not None
            and body.get(self.success_key or "") is None
            and body.get("code") == self.success_code
        )
