"""Operations as data: one frozen record for each of the specification.

What varies between operations stands in their record, and the records stand in tables
(`signing/operations.py` and its sisters); what is common is written once, in the transport.
"""

from __future__ import annotations

import enum
import functools
import re
from collections.abc import Mapping
from typing import Any, Generic, TypeVar, cast
from urllib.parse import quote

import attrs

from directsuite.errors import (
    InvalidArgumentError,
    ServiceError,
)
from directsuite.wire.models import ValueSemantics

R = TypeVar("R")


class Service(enum.StrEnum):
    """The four services, and who gives tokens for them."""

    SIGNING = "signing"
    FAX = "fax"
    MESSAGING = "messaging"
    REGISTRATION = "registration"
    OAUTH = "oauth"


class Semantics(enum.Enum):
    """What a second request would do, in the words of RFC 9110 where it has them."""

    SAFE = "safe"
    """Reads, though many are POST."""
    IDEMPOTENT = "idempotent"
    """A second one changes nothing more."""
    REPEATABLE = "repeatable"
    """A second one makes a harmless duplicate."""
    NON_IDEMPOTENT = "non-idempotent"
    """A second one does it again: never sent after the first may have arrived."""

    @property
    def may_repeat(self) -> bool:
        """The request may be sent again although the first may have been acted upon."""
        return self is not Semantics.NON_IDEMPOTENT


class Auth(enum.Enum):
    """How the credentials travel (specification section 5)."""

    BEARER = "bearer token in the Authorization header"
    BODY = "the whole body is an Authentication"
    BODY_AUTH = "in the body, as `auth`"
    BODY_AUTHENTICATION = "in the body, as `authentication`"
    SESSION = "session id in the path"
    NONE = "none"


class MediaType(enum.StrEnum):
    """The media types of requests."""

    JSON = "application/json"
    TEXT = "text/plain"
    FORM = "application/x-www-form-urlencoded"


@attrs.frozen(kw_only=True, repr=False, eq=False)
class Operation(ValueSemantics, Generic[R]):
    """One operation of the specification.

    name: as the specification spells it; the key for errors, logs and limits. path: below the service's base URL, with
    its parameters in braces, named as the facade's method names them; `session_id` is filled in by each attempt.
    response: a model, or `bytes` where the answer is base64 text. essential: members without which an answer is no
    answer. done_answers: HTTP statuses or service codes that, when a repeat gets them after an unknown first outcome,
    mean that it had happened. content_type: None where a request carries none. how_to_find_out: for the caller of a
    non-idempotent operation whose outcome is unknown.
    """

    name: str
    service: Service
    method: str
    path: str
    semantics: Semantics
    auth: Auth
    response: type[R]
    refusals: Refusals
    essential: tuple[str, ...] = ()
    done_answers: frozenset[int | str] = frozenset()
    content_type: MediaType | None = MediaType.JSON
    how_to_find_out: str = ""
    streaming_method: str | None = None

    def filled(self, segments: tuple[str, ...]) -> str:
        """The path with its parameters filled in, each quoted as one segment; SESSION_ID stays in its place.

        Raises InvalidArgumentError for an empty segment, `.`, `..`, or text that has no UTF-8.
        """
        path, parameters = self._template
        for (name, literal), value in zip(parameters, segments, strict=True):
            path += _quoted(value, name) + literal
        return path

    @functools.cached_property
    def may_repeat(self) -> bool:
        """It may be sent again although the first request may have been acted upon."""
        return self.semantics.may_repeat

    @functools.cached_property
    def limited(self) -> bool:
        """A call takes one of the connections. A login doesn't: calls that hold them may be waiting for it."""
        return self.auth is not Auth.NONE

    @functools.cached_property
    def needs_credential(self) -> bool:
        """Each request carries a token or session that has to be had first."""
        return self.auth in (Auth.BEARER, Auth.SESSION)

    @functools.cached_property
    def about(self) -> Mapping[str, Any]:
        """What errors say of the operation."""
        return {"operation": self.name, "service": self.service}

    @functools.cached_property
    def headers(self) -> Mapping[str, str]:
        """What every request's head says, its credential apart."""
        headers = {} if self.content_type is None else {"Content-Type": self.content_type.value}
        # A document's size is told ahead, and nothing can expand, where its base64 text comes as it is.
        return headers | {"Accept-Encoding": "identity"} if self.response is bytes else headers

    @functools.cached_property
    def _template(self) -> tuple[str, tuple[tuple[str, str], ...]]:
        """What stands before the first parameter; then each parameter's name, and what stands after it."""
        first, *others = _PARAMETER.split(self.path)
        return first, tuple(zip(others[::2], others[1::2], strict=True))

    def check(self, segments: tuple[str, ...]) -> None:
        """Raise InvalidArgumentError where `filled` would, before anything happens."""
        self.filled(segments)


_PLAIN = re.compile(r"[A-Za-z0-9_~-][A-Za-z0-9_.~-]*")
"""Texts that quoting leaves as they are, and that are no dots alone."""
SESSION_ID = "{session_id}"
"""Where the session goes in a path; a filled path holds no other brace, since quoting leaves none."""
_PARAMETER = re.compile(r"\{(?!session_id\})(\w+)\}")


def _quoted(value: object, parameter: str) -> str:
    if type(value) is str and _PLAIN.fullmatch(value):
        return value
    if not isinstance(value, str) or value in ("", ".", ".."):
        raise InvalidArgumentError("give it a text that is not empty, '.' or '..'", parameter=parameter)
    try:
        return quote(value, safe="")
    except UnicodeEncodeError:
        pass
    raise InvalidArgumentError("it holds half a surrogate pair, which has no UTF-8", parameter=parameter)


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
