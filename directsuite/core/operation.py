"""Operations as data: the record types that describe one operation, and the error bodies of its service.

The records are in the modules `operations.py` of the services. They contain what differs between operations.

A fault is an error that the service reports in a JSON body, in its own format. The format may have a success flag, a
code, and messages for people.
"""

from __future__ import annotations

import enum
import functools
import re
from collections.abc import Mapping
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import attrs

from directsuite.errors import InvalidArgumentError, ServiceError
from directsuite.wire.models import NULL_VALUES, ValueSemantics, name_type

R = TypeVar("R")


class Service(enum.StrEnum):
    """The four services, and OAUTH: the service that issues their tokens."""

    SIGNING = "signing"
    FAX = "fax"
    MESSAGING = "messaging"
    REGISTRATION = "registration"
    OAUTH = "oauth"

    @property
    def display_name(self) -> str:
        """The name of the service in messages."""
        return "token endpoint" if self is Service.OAUTH else f"{self.value} service"

    @property
    def url_setting(self) -> str:
        """The name of the setting of its URL."""
        return {Service.MESSAGING: "message_url", Service.OAUTH: "token_url"}.get(self, f"{self.value}_url")


class Semantics(enum.Enum):
    """The effect of sending a request a second time. SAFE and IDEMPOTENT are terms of RFC 9110."""

    SAFE = "safe"
    """The request only reads."""
    IDEMPOTENT = "idempotent"
    """A second request changes nothing further."""
    REPEATABLE = "repeatable"
    """A second request creates a harmless duplicate."""
    NON_IDEMPOTENT = "non-idempotent"
    """A second request repeats the effect. It is never sent if the first one may have arrived."""


class Auth(enum.Enum):
    """The place of the credentials in a request (specification section 5)."""

    BEARER = "bearer token in the Authorization header"
    BODY = "the whole body is an Authentication"
    BODY_AUTH = "in the body, as `auth`"
    BODY_AUTHENTICATION = "in the body, as `authentication`"
    SESSION = "session id in the path"
    NONE = "none"


class MediaType(enum.StrEnum):
    """The media types of request bodies."""

    JSON = "application/json"
    TEXT = "text/plain"
    FORM = "application/x-www-form-urlencoded"


Code = int | str
Json = dict[str, Any] | list[Any] | str | float | None
"""A value of a JSON document."""
StatusErrors = Mapping[int, tuple[type[ServiceError], str, str]]
"""The error class, the meaning, and what to do (or ""), by HTTP status."""


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
    advice: Mapping[Code, str] = attrs.field(factory=dict[Code, str])
    """What to do about some of these codes."""
    success_code: Code | None = None
    """The code that means success in a body without the flag. None if the service has none."""
    new_session_code: Code | None = None
    """The code that requests a new session. None if the service has none."""

    def read(self, document: Json) -> ServiceFault | None:
        """Return the fault that a JSON document reports, or None if it reports none in this format."""
        if not isinstance(document, dict):
            return None
        if self.success_key is not None and (document.get(self.success_key) is True or not self._is_failure(document)):
            return None
        texts = [text for name in self.message_keys if isinstance(text := document.get(name), str)]
        if self.success_key is None:
            first = document.get(self.message_keys[0])
            if not isinstance(first, str):
                return None
            return ServiceFault(None, first and ": ".join(dict.fromkeys(text for text in texts if text)))
        text = next((text for text in texts if text not in ("", *NULL_VALUES)), texts[0] if texts else None)
        return ServiceFault(self._parse_code(document.get("code")), text)

    def _is_failure(self, body: dict[str, Any]) -> bool:
        success = body.get(self.success_key or "")
        # Bodies of the registration service may have a code without the flag.
        if success in NULL_VALUES and self.success_code is not None:
            return "code" in body and self._parse_code(body["code"]) != self.success_code
        return success is False or (isinstance(success, str) and success.lower() == "false")

    def _parse_code(self, value: Any) -> Code | None:
        if value in NULL_VALUES:
            return None
        if isinstance(value, str):
            is_known_number = value not in self.codes and _DIGITS.fullmatch(value) and int(value) in self.codes
            return int(value) if is_known_number else value
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def is_success(self, document: Json) -> bool:
        """Return True if a JSON document reports success in this format, or the service has no flag."""
        if self.success_key is None:
            return True
        if not isinstance(document, dict):
            return False
        success = document.get(self.success_key)
        if success in NULL_VALUES:
            return self.success_code is not None and document.get("code") == self.success_code
        return success is True or (isinstance(success, str) and success.lower() == "true")


# With slots, attrs would find the cached properties in __getattr__, which makes every attribute slower.
@attrs.frozen(kw_only=True, repr=False, eq=False, slots=False)
class Operation(ValueSemantics, Generic[R]):
    """One operation of the specification."""

    name: str
    """The name in the specification, which identifies the operation in errors and logs."""
    service: Service
    method: str
    path: str
    """The path relative to the base URL. Parameters are in braces and named as in the facade's method.

    Each attempt replaces `{session_id}`, because the session may change between attempts.
    """
    semantics: Semantics
    auth: Auth
    response: type[R]
    """The model of the response, or `bytes` if the response is base64 text."""
    fault_format: FaultFormat
    required_fields: tuple[str, ...] = ()
    """The required fields of the response. A response that lacks any of them raises ResponseDecodeError.

    In a path such as `messages[].uid` the field is required of each element: an element without a uid is left out. In
    all other fields, an unreadable value is replaced by the default (see `wire.codec`).
    """
    strict_paths: frozenset[str] = frozenset()
    """JSON paths, in the form of `ValuesSkipped.paths`, at which an unreadable value raises ResponseDecodeError,
    because it could be the value that the caller searches for.
    """
    status_errors: StatusErrors = attrs.field(factory=dict[int, tuple[type[ServiceError], str, str]])
    """The HTTP statuses that have another meaning for this operation, if the body is a fault without a code."""
    already_done_codes: frozenset[int | str] = frozenset()
    """HTTP statuses or service codes that, on a retry, prove that an earlier attempt of unknown outcome succeeded."""
    content_type: MediaType | None = MediaType.JSON
    """The Content-Type of the request. None: no such header."""
    how_to_find_out: str = ""
    """The advice in OutcomeUnknownError: how the caller can find out whether the operation happened."""
    streaming_method: str | None = None
    """The name of the facade's method that reads a response of any size. None if there is none."""

    def build_path(self, segments: tuple[str, ...]) -> str:
        """Return the path with its parameters replaced by `segments`, percent-encoded. SESSION_ID remains in the path.

        segments: one value per parameter, in the order of the path.

        Raises InvalidArgumentError if a segment is not a str, is empty, `.` or `..`, or cannot be encoded as UTF-8.
        """
        path, parameters = self._template
        for (name, literal), value in zip(parameters, segments, strict=True):
            is_plain = type(value) is str and _UNQUOTED_TEXT.fullmatch(value)
            path += (value if is_plain else _quote_segment(value, name)) + literal
        return path

    @functools.cached_property
    def may_repeat(self) -> bool:
        """True if the request may be sent again although the service may have processed the first one."""
        return self.semantics is not Semantics.NON_IDEMPOTENT

    @functools.cached_property
    def uses_connection_slot(self) -> bool:
        """True if a call needs a connection slot. A login needs none, because calls that hold slots may wait for it."""
        return self.auth is not Auth.NONE

    @functools.cached_property
    def needs_credential(self) -> bool:
        """True if each request carries a token or session id, which must be available before it is sent."""
        return self.auth in (Auth.BEARER, Auth.SESSION)

    @functools.cached_property
    def error_context(self) -> Mapping[str, Any]:
        """The arguments that identify the operation in an error."""
        return {"operation": self.name, "service": self.service}

    @functools.cached_property
    def headers(self) -> Mapping[str, str]:
        """The headers of every request, without the credential."""
        headers = {} if self.content_type is None else {"Content-Type": self.content_type.value}
        # Without compression, a document has a Content-Length and cannot expand.
        return headers | {"Accept-Encoding": "identity"} if self.response is bytes else headers

    @functools.cached_property
    def _template(self) -> tuple[str, tuple[tuple[str, str], ...]]:
        """The text before the first parameter, then the name of each parameter with the text after it."""
        first, *others = _PARAMETER.split(self.path)
        return first, tuple(zip(others[::2], others[1::2], strict=True))

    def validate_segments(self, segments: tuple[str, ...]) -> None:
        """Raise InvalidArgumentError if `build_path` rejects any of these segments."""
        self.build_path(segments)


_UNQUOTED_TEXT = re.compile(r"[A-Za-z0-9_~-][A-Za-z0-9_.~-]*")
"""Matches text that percent-encoding leaves unchanged and that does not start with a dot."""
SESSION_ID = "{session_id}"
"""The placeholder of the session id in a path. Other braces in a path are percent-encoded."""
_PARAMETER = re.compile(r"\{(?!session_id\})(\w+)\}")


def _quote_segment(value: object, parameter: str) -> str:
    if not isinstance(value, str) or value in ("", ".", ".."):
        found = "" if isinstance(value, str) else f", not {name_type(value)}"
        raise InvalidArgumentError(f"give a string other than '', '.' and '..'{found}", parameter=parameter)
    try:
        return quote(value, safe="")
    except UnicodeEncodeError:
        pass
    raise InvalidArgumentError("it contains half of a surrogate pair, which UTF-8 cannot encode", parameter=parameter)
