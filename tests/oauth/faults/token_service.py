"""A token endpoint of RFC 6749 with rotating refresh tokens, and a service that accepts its tokens.

Every secret is a sentinel, which tests can search for.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Any
from urllib.parse import parse_qsl

import directsuite as ds
from directsuite.oauth.grants import ClientAuth, Grant, OnRotated
from tests.core import responses
from tests.core.scripted_server import Exchange, Responder, ScriptedServer
from tests.core.scripted_suite import E, expect_error, open_suite

CLIENT = "the-client"
CLIENT_SECRET = "sentinel-of-a-client-secret"
CODE = "sentinel-of-a-code"
VERIFIER = "sentinel-of-a-verifier"
FIRST_REFRESH_TOKEN = "sentinel-of-a-refresh-token-0"
REDIRECT_URI = "https://app.example.test/back"
SENTINELS = (CLIENT_SECRET, CODE, VERIFIER, "sentinel-of-a-refresh-token", "sentinel-of-an-access-token")


class TokenService:
    """Issues numbered tokens. It accepts the newest refresh token, and the code once."""

    def __init__(self, server: ScriptedServer) -> None:
        self.server = server
        self.issued = 0
        self.refresh_token = FIRST_REFRESH_TOKEN
        self.code: str | None = CODE
        self.gives_refresh_token = True
        self.rotates = True
        self.expires_in: Any = 3600
        self.valid: set[str] = set()
        self.script: list[Responder] = []
        """The responders of the next requests to the token endpoint."""

    @property
    def forms(self) -> list[dict[str, str]]:
        return [dict(parse_qsl(request.body.decode())) for request in self.server.find_requests("/oauth/token")]

    async def __call__(self, exchange: Exchange) -> None:
        if "/oauth/token" not in exchange.request.target:
            good = exchange.request.headers.get("authorization", "").removeprefix("Bearer ") in self.valid
            await responses.respond({"identifier": "doc"} if good else b"", 200 if good else 401)(exchange)
        elif self.script:
            await self.script.pop(0)(exchange)
        else:
            await self.issue(exchange)

    async def issue(self, exchange: Exchange, *, delay: float = 0.0) -> None:
        """Issue tokens, and send them after a delay."""
        await exchange.read()
        tokens = self.make_tokens(exchange)
        await asyncio.sleep(delay)
        status, document = (200, tokens) if tokens is not None else (400, {"error": "invalid_grant"})
        body = responses.encode_body(document)
        await exchange.write(responses.make_head(status, len(body)) + body)

    async def drop_response(self, exchange: Exchange) -> None:
        await exchange.read()
        self.make_tokens(exchange)
        exchange.reset()

    def make_tokens(self, exchange: Exchange) -> dict[str, Any] | None:
        form = dict(parse_qsl(exchange.request.body.decode()))
        if form["grant_type"] == "refresh_token" and form["refresh_token"] != self.refresh_token:
            return None
        if form["grant_type"] == "authorization_code":
            if form["code"] != self.code:
                return None
            self.code = None
        self.issued += 1
        token = f"sentinel-of-an-access-token-{self.issued}"
        self.valid = {token}
        answer = {"access_token": token, "token_type": "Bearer", "expires_in": self.expires_in}
        if form["grant_type"] != "client_credentials" and self.gives_refresh_token:
            if self.rotates:
                self.refresh_token = f"sentinel-of-a-refresh-token-{self.issued}"
            answer["refresh_token"] = self.refresh_token
        return answer

    def open(self, grant: Grant | None = None, **options: Any) -> AbstractAsyncContextManager[ds.DirectSuite]:
        """Open a suite with this grant. None: client credentials."""
        return open_suite(self.server, token=grant or self.make_client_credentials(), **options)

    async def fail(self, kind: type[E], *script: Responder, grant: Grant | None = None, **options: Any) -> E:
        """Return the error of a call whose token requests get these responses, which must be of this class."""
        self.script = [*script]
        async with self.open(grant, leaky=True, **options) as suite:
            return await expect_error(kind, fetch(suite))

    def make_client_credentials(self, **others: Any) -> ds.ClientCredentials:
        return ds.ClientCredentials(self.token_url, CLIENT, CLIENT_SECRET, **others)

    def make_refresh_token(
        self, on_rotated: OnRotated | None = None, *, client_auth: ClientAuth = "basic"
    ) -> ds.RefreshToken:
        return ds.RefreshToken(
            self.token_url, CLIENT, CLIENT_SECRET, FIRST_REFRESH_TOKEN, "fax", on_rotated, client_auth=client_auth
        )

    def make_authorization_code(self, on_rotated: OnRotated | None = None) -> ds.AuthorizationCode:
        return ds.AuthorizationCode(self.token_url, CLIENT, None, CODE, REDIRECT_URI, VERIFIER, on_rotated)

    @property
    def token_url(self) -> str:
        return f"{self.server.url('oauth')}/token"


async def fetch(suite: ds.DirectSuite) -> ds.DocumentInfo:
    """Call the service, which needs a token."""
    return await suite.signing.get_doc_info("doc")


class RotationRecorder:
    """A function for `on_rotated`. It fails `failures` times, and waits for `gate`."""

    def __init__(self, server: ScriptedServer) -> None:
        self._server = server
        self.failures = 0
        self.tokens: list[str] = []
        self.called = 0
        self.requests_before: list[int] = []
        """The number of requests other than for tokens, before each token was saved."""
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self, token: ds.Secret) -> None:
        self.called += 1
        await self.gate.wait()
        if self.failures:
            self.failures -= 1
            raise OSError(f"disk full while writing {token.reveal()}")
        self.tokens.append(token.reveal())
        self.requests_before.append(len(self._server.find_requests("/signing/")))


def make_rejection(error: str, status: int = 400) -> Responder:
    return responses.respond({"error": error, "error_description": f"{CLIENT_SECRET} is not known"}, status)
