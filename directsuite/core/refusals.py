"""How each service says no in its own body, as data: its flag, its texts for people, and its codes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

import attrs

from directsuite.errors import ServiceError
from directsuite.wire.models import ValueSemantics

Code = int | str


@attrs.frozen(repr=False, eq=False)
class Refused(ValueSemantics):
    """What a service's own body says: its code, where it has one, and its text for people."""

    code: Code | None
    message: str | None


_DIGITS = re.compile(r"[0-9]{1,9}")  # "²" is a digit to `str.isdigit`, and 5,000 digits are too many for `int`


@attrs.frozen(kw_only=True, repr=False, eq=False)
class Refusals(ValueSemantics):
    """A service's way of saying no, as data."""

    flag: str | None = None
    """The member that is true on success; None where the service has none."""
    texts: tuple[str, ...]
    """Members that may hold a text for people. In a body without a flag they complete each other, and the first one has
    to be there; else the first one that is there counts.
    """
    codes: Mapping[Code, tuple[type[ServiceError], str]] = attrs.field(
        factory=dict[Code, tuple[type[ServiceError], str]]
    )
    """What each of the service's codes means."""
    success_code: Code | None = None
    """The code that says yes where the flag is left out."""
    renewal: Code | None = None
    """The code that asks for a new session."""

    def read(self, document: Any) -> Refused | None:
        """The refusal that a JSON document is, or None where it is no refusal in the service's own form."""
        if self.flag is not None and self._plainly_says_yes(document):
            return None
        if not isinstance(document, dict):
            return None
        body = cast("dict[str, Any]", document)
        if self.flag is not None and not self._says_no(body):
            return None
        texts = [text for name in self.texts if isinstance(text := body.get(name), str)]
        if self.flag is None:
            first = body.get(self.texts[0])
            if not isinstance(first, str):
                return None
            return Refused(None, first and ": ".join(dict.fromkeys(text for text in texts if text)))
        return Refused(self._code(body.get("code")), texts[0] if texts else None)

    def _says_no(self, body: dict[str, Any]) -> bool:
        success = body.get(self.flag or "")
        if success is None and self.success_code is not None:  # registration: the code alone decides as well
            return "code" in body and self._code(body["code"]) != self.success_code
        return success is False or (isinstance(success, str) and success.lower() == "false")

    def _code(self, value: Any) -> Code | None:
        if isinstance(value, str):
            return value if value in self.codes or not _DIGITS.fullmatch(value) else self._numbered(int(value), value)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def _numbered(self, number: int, text: str) -> Code:
        return number if number in self.codes else text

    def _plainly_says_yes(self, document: Any) -> bool:
        return isinstance(document, dict) and cast("dict[str, Any]", document).get(self.flag or "") is True

    def says_yes(self, document: Any) -> bool:
        """Return True if a JSON document claims success in the service's own form, or needs no such claim."""
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
