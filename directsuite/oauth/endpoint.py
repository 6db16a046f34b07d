"""Token requests through the transport, as the grant's client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from directsuite.core.body import RequestBody
from directsuite.core.call import Options, Proof
from directsuite.core.operation import Operation
from directsuite.core.transport import Transport
from directsuite.errors import AuthenticationError, ServiceError
from directsuite.oauth.answer import receive
from directsuite.oauth.grants import Grant
from directsuite.oauth.models import TokenAnswer
from directsuite.oauth.operations import ABOUT, CODES, INVALID_GRANT
from directsuite.oauth.request import headers_of

_LONGEST = 45.0
"""Seconds for a request with its repeats: within a token cache's patience, so that its own error is told."""


class TokenEndpoint:
    """Where a grant's token requests go."""

    def __init__(self, transport: Transport, grant: Grant) -> None:
        self._transport = transport
        self._options = Options(timeout=min(transport.timeout, _LONGEST), within_a_call=True, headers=headers_of(grant))

    async def ask(
        self,
        operation: Operation[TokenAnswer],
        body: RequestBody,
        *,
        refused: Callable[[], str],
        proof: Proof[TokenAnswer] | None = None,
    ) -> TokenAnswer:
        """The tokens, or a typed error. refused: what `invalid_grant` means, once it has come."""
        try:
            return await self._transport.call(operation, body=body, options=self._options, receive=receive, proof=proof)
        except ServiceError as error:
            refusal = _worded(error, refused)
        raise refusal


def _worded(error: ServiceError, refused: Callable[[], str]) -> ServiceError:
    """A refusal in this endpoint's words: the core's are those of the four services."""
    if error.code in CODES:
        meaning = refused() if error.code == INVALID_GRANT else CODES[error.code][1]
        text = f"{meaning} ({error.code})"
    elif isinstance(error, AuthenticationError):
        text = f"{CODES['invalid_client'][1]} (HTTP {error.status})"
    else:
        return error
    about: dict[str, Any] = {**ABOUT, "outcome": error.outcome, "retry_after": error.retry_after}
    worded = type(error)(text, status=error.status, code=error.code, message=error.message, body=error.body, **about)
    worded.attempts, worded.elapsed = error.attempts, error.elapsed
    return worded
