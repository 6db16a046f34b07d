"""Operations as data: one frozen record for each of the specification's 53.

What varies between operations stands in their record, and the records stand in tables
(`signing/operations.py` and its sisters); what is common is written once, in the transport.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator
from typing import Generic, TypeVar
from urllib.parse import quote

import attrs

from directsuite.core.refusals import Refusals
from directsuite.errors import InvalidArgumentError

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
        """Whether the request may be sent again although the first may have been acted upon."""
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


@attrs.frozen(kw_only=True)
class Operation(Generic[R]):
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
        values: Iterator[str] = iter(segments)
        return _PARAMETER.sub(
            lambda match: match[0] if match[0] == SESSION_ID else _quoted(next(values), match[1]), self.path
        )

    def check(self, segments: tuple[str, ...]) -> None:
        """Raise InvalidArgumentError where `filled` would, before anything happens."""
        self.filled(segments)


SESSION_ID = "{session_id}"
"""Where the session goes in a path; a filled path holds no other brace, since quoting leaves none."""
_PARAMETER = re.compile(r"\{(\w+)\}")


def _quoted(value: object, parameter: str) -> str:
    if not isinstance(value, str) or value in ("", ".", ".."):
        raise InvalidArgumentError("give it a text that is not empty, '.' or '..'", parameter=parameter)
    try:
        return quote(value, safe="")
    except UnicodeEncodeError:
        pass
    raise InvalidArgumentError("it holds half a surrogate pair, which has no UTF-8", parameter=parameter)
