"""Good answers of the token endpoint (RFC 6749 section 5.1): read whole and bounded, checked through oauthlib."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from directsuite.errors import DirectSuiteError, Outcome, ResponseDecodeError, ServiceError
from directsuite.oauth.models import TokenAnswer
from directsuite.oauth.operations import ABOUT, CODES
from directsuite.secret import Secret
from directsuite.wire.mismatch import MismatchError
from directsuite.wire.parsing import parse_strictly

if TYPE_CHECKING:
    from directsuite.core.answer import Incoming

LARGEST = 1_048_576
"""Bytes of an answer: far more than any token that still fits into a header."""

_LONGEST_LIFE = 315_360_000.0  # seconds, ten years: whoever says more means "for ever"


async def receive(incoming: Incoming, _alive: Callable[[], None]) -> TokenAnswer:
    """The tokens of an answer. Raises MismatchError where it is none, or the typed error that it is."""
    answer = await incoming.read(LARGEST)
    if answer.too_large:
        text = f"the token endpoint's answer is larger than {LARGEST} bytes: check token_url"
        raise ResponseDecodeError(text, too_large=True, **ABOUT)
    read = _read(parse_strictly(answer.body), incoming.status)
    if isinstance(read, TokenAnswer):
        return read
    raise read


def _read(document: Any, status: int) -> TokenAnswer | DirectSuiteError:
    """The tokens, or the error: returned, so that no traceback holds what was answered."""
    if not isinstance(document, dict):
        raise MismatchError("an object")
    body = {name: member for name, member in cast("dict[str, Any]", document).items() if member is not None}
    error = _error_of(body)
    if error in CODES:  # some servers say no with 200
        cls, meaning = CODES[error]
        return cls(f"{meaning} ({error})", status=status, code=error, outcome=Outcome.FAILED, **ABOUT)
    if error is not None:
        return ServiceError("the token endpoint answers with an error", status=status, outcome=Outcome.FAILED, **ABOUT)
    kind = body.get("token_type", "Bearer")  # required, and left out by some who mean Bearer
    if not (isinstance(kind, str) and kind.lower() == "bearer"):
        text = "the token endpoint gives tokens of another type than Bearer, which the services do not take"
        unfit = ResponseDecodeError(text, path="$.token_type", **ABOUT)
        unfit.outcome = Outcome.FAILED  # it will be the same again
        return unfit
    return TokenAnswer(
        access_token=_secret(body, "access_token"),
        expires_in=_lifetime(body.get("expires_in")),
        refresh_token=_secret(body, "refresh_token") if body.get("refresh_token") else None,
    )


def _error_of(body: dict[str, Any]) -> str | None:
    """The answer's error, as oauthlib finds it. Raises MismatchError for an answer that is neither tokens nor error."""
    from oauthlib.oauth2 import OAuth2Error, OAuth2Token
    from oauthlib.oauth2.rfc6749.parameters import validate_token_parameters

    parameters: dict[str, Any] = {name: body[name] for name in ("error", "access_token", "token_type") if name in body}
    try:
        validate_token_parameters(OAuth2Token(parameters))
    except OAuth2Error as refusal:
        if "error" in body:
            return str(refusal.error)
    else:
        return None
    raise MismatchError("present", "$.access_token")


def _secret(body: dict[str, Any], name: str) -> Secret:
    text = body[name]
    if not isinstance(text, str) or not text:
        raise MismatchError("a text", f"$.{name}")
    return Secret(text)


def _lifetime(value: object) -> float | None:
    """Seconds; None for what says nothing (0 and less included): the token is then good until it is refused."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        seconds = float(value)
    except (ValueError, OverflowError):
        return None
    return seconds if 0 < seconds <= _LONGEST_LIFE else None
