"""Operations as data: one frozen record for each of the specification.

What varies between operations stands in their record, and the records stand in tables
(`signing/operations.py` and its sisters); what is common is written once, in the transport.
"""

from __future__ import annotations

import enum
import functools
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from urllib.parse import quote

import attrs

from directsuite.errors import InvalidArgumentError
from directsuite.wire.models import ValueSemantics

if TYPE_CHECKING:
    from directsuite.core.refusals import Refusals

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
    """One operation of the specification."""

    name: str
    """As the specification spells it: the key for errors, logs and limits."""
    service: Service
    method: str
    path: str
    """Below the service's base URL, with its parameters in braces, named as the facade's method names them.

    `session_id` is filled in by each attempt.
    """
    semantics: Semantics
    auth: Auth
    response: type[R]
    """A model, or `bytes` where the answer is base64 text."""
    refusals: Refusals
    essential: tuple[str, ...] = ()
    """The fields of the response without which it is an error, and `messages[].uid`: a message without it is left out.

    Of all others an unreadable value gives way to the default (see `wire.codec`).
    """
    strict_paths: frozenset[str] = frozenset()
    """Paths, as in `ValuesSkipped.paths`, at which an unreadable value is an error: it might be what is searched."""
    done_answers: frozenset[int | str] = frozenset()
    """HTTP statuses or service codes by which a repeat, after an unknown first outcome, learns that it had happened."""
    content_type: MediaType | None = MediaType.JSON
    """None where a request carries none."""
    how_to_find_out: str = ""
    """For the caller of a non-idempotent operation whose outcome is unknown."""
    streaming_method: str | None = None
    """The facade's method that reads an answer of any size."""

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
