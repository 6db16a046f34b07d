"""Grants as sources of tokens."""

from __future__ import annotations

from directsuite.core.tokens import AccessToken, TokenSource
from directsuite.core.transport import Transport
from directsuite.oauth.consent import ConsentSource
from directsuite.oauth.endpoint import TokenEndpoint
from directsuite.oauth.grants import ClientCredentials, Grant
from directsuite.oauth.operations import CODES, INVALID_GRANT, TOKEN
from directsuite.oauth.request import form_of


def source_of(transport: Transport, grant: Grant) -> TokenSource:
    """The source of the tokens that a grant gives; the transport needs an endpoint for Service.OAUTH."""
    endpoint = TokenEndpoint(transport, grant)
    if isinstance(grant, ClientCredentials):
        return ClientCredentialsSource(endpoint, grant)
    return ConsentSource(endpoint, grant)


class ClientCredentialsSource:
    """Tokens for the program itself: each fetch asks anew."""

    renewable = True

    def __init__(self, endpoint: TokenEndpoint, grant: ClientCredentials) -> None:
        self._endpoint = endpoint
        self._grant = grant

    async def fetch(self) -> AccessToken:
        """Ask for a token."""
        body = form_of(self._grant, "client_credentials", scope=self._grant.scope)
        answer = await self._endpoint.ask(TOKEN, body, refused=lambda: CODES[INVALID_GRANT][1])
        return AccessToken(answer.access_token, answer.expires_in)  # renewals ask again (4.4.3: no refresh token)
