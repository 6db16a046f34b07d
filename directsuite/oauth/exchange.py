"""An authorization code, which works once."""

from __future__ import annotations

from directsuite.errors import AuthenticationError, DirectSuiteError, Outcome, OutcomeUnknownError, ServiceError
from directsuite.oauth.endpoint import TokenEndpoint
from directsuite.oauth.grants import AuthorizationCode
from directsuite.oauth.models import TokenAnswer
from directsuite.oauth.operations import ABOUT, EXCHANGE, INVALID_GRANT
from directsuite.oauth.request import form_of

_REFUSED = (
    "the authorization code is not accepted: it was used already, is too old, or was given for another client, "
    "redirect_uri or code_verifier: send the user through authorization again"
)
_SPENT = (
    "the authorization code was exchanged already, and this suite has no refresh token from that: "
    "open it with a RefreshToken that was kept, or send the user through authorization again"
)
_PERHAPS_SPENT = (
    "the exchange of the authorization code was broken off, or is another suite's: it may or may not have happened."
)


class CodeExchange:
    """Exchanges a code for tokens. It is sent again, by whichever suite, only where it is certain that nobody took it.

    A second use has to be refused, and may revoke what the first one gave (4.1.2).
    """

    def __init__(self, endpoint: TokenEndpoint, grant: AuthorizationCode) -> None:
        self._endpoint = endpoint
        self._grant = grant

    async def exchange(self) -> TokenAnswer:
        """The tokens. Raises OutcomeUnknownError where the code may be spent, AuthenticationError where it is."""
        grant = self._grant
        if grant.use.over is not None:
            raise grant.use.over.copy()
        body = form_of(
            grant,
            "authorization_code",
            code=grant.code,
            redirect_uri=grant.redirect_uri,
            code_verifier=grant.code_verifier,
        )
        # So it stays where this is cancelled on the way.
        grant.use.over = OutcomeUnknownError(_PERHAPS_SPENT, how_to_find_out=EXCHANGE.how_to_find_out, **ABOUT)
        try:
            answer = await self._endpoint.ask(EXCHANGE, body, refused=lambda: _REFUSED)
        except DirectSuiteError as error:
            grant.use.over = error.copy() if _may_be_spent(error) else None
            raise
        grant.use.over = AuthenticationError(_SPENT, status=0, code=INVALID_GRANT, outcome=Outcome.FAILED, **ABOUT)
        return answer


def _may_be_spent(error: DirectSuiteError) -> bool:
    if isinstance(error, ServiceError):
        return error.code == INVALID_GRANT or error.outcome is Outcome.UNKNOWN
    return error.outcome in (Outcome.UNKNOWN, Outcome.FAILED)
