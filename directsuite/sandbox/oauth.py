"""The OAuth 2.0 endpoints (RFC 6749) that issue the access tokens of the signing and fax services.

    GET  /oauth/authorize    consents immediately and redirects with code and state
    POST /oauth/token        authorization_code, refresh_token (rotating), client_credentials, password

The specification does not define how to obtain a token. The password grant accepts the logins of the registration
service, and acts for the user name.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl, unquote_plus

import pybase64
from aiohttp import web
from yarl import URL

from directsuite.sandbox.credentials import (
    DEFAULT_SCOPE,
    SecretKind,
    check_password,
    hash_password,
    hash_secret,
    store_secret,
)
from directsuite.sandbox.registration import authenticate

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping

    from directsuite.sandbox.clock import Clock
    from directsuite.sandbox.database import SandboxDatabase

SCHEMA = """
CREATE TABLE IF NOT EXISTS oauth_client(
  client_id TEXT PRIMARY KEY, secret BLOB NOT NULL, account TEXT NOT NULL) WITHOUT ROWID;
"""

_TOKEN_LIFETIME_MS = 3_600_000
_CODE_LIFETIME_MS = 600_000  # RFC 6749 section 4.1.2
_FORM_MEDIA_TYPE = "application/x-www-form-urlencoded"


class _OAuthError(Exception):
    def __init__(self, error: str, description: str, status: int = HTTPStatus.BAD_REQUEST) -> None:
        super().__init__(description)
        self.error = error
        self.status = status


class _Grant(NamedTuple):
    account: str
    scope: str
    is_refreshable: bool = True


def add_client(connection: sqlite3.Connection, client_id: str, client_secret: str, account: str) -> None:
    """Register a client that acts for `account`, or change its secret and account."""
    connection.execute(
        "INSERT OR REPLACE INTO oauth_client(client_id, secret, account) VALUES(?, ?, ?)",
        (client_id, hash_password(client_secret), account),
    )


def make_routes(database: SandboxDatabase, clock: Clock) -> list[web.RouteDef]:
    """Return the routes of the two endpoints."""
    endpoints = _Endpoints(database, clock)
    return [
        web.get("/oauth/authorize", endpoints.authorize, name="authorize", allow_head=False),
        web.post("/oauth/token", endpoints.exchange_grant, name="token"),
    ]


class _Endpoints:
    def __init__(self, database: SandboxDatabase, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def authorize(self, request: web.Request) -> web.Response:
        """Redirect with a code or an error. For an unknown client or unusable URI, respond 400 (RFC 6749, 4.1.2.1)."""
        query = request.query
        redirect_uri, client_id = query.get("redirect_uri", ""), query.get("client_id", "")
        client = await self._database.read(_find_client, client_id)
        if client is None or not _is_usable_redirect(redirect_uri):
            text = "client_id is unknown, or redirect_uri is not an absolute URI without a fragment"
            error = {"error": "invalid_request", "error_description": text}
            return _build_response(error, HTTPStatus.BAD_REQUEST)
        outcome = {"state": query["state"]} if "state" in query else {}
        if query.get("response_type") == "code":
            outcome["code"] = await self._database.write(
                store_secret,
                "code",
                client["account"],
                expires_at=self._clock.milliseconds() + _CODE_LIFETIME_MS,
                scope=query.get("scope") or DEFAULT_SCOPE,
                client_id=client_id,
                redirect_uri=redirect_uri,
            )
        else:
            outcome["error"] = "unsupported_response_type"
        location = URL(redirect_uri).extend_query(outcome)
        return web.Response(status=HTTPStatus.FOUND, headers={"Location": str(location), "Cache-Control": "no-store"})

    async def exchange_grant(self, request: web.Request) -> web.Response:
        try:
            form = await _read_form(request)
            client_id, client_secret = _parse_client_credentials(request, form)
            response = await self._database.write(self._issue_token, client_id, client_secret, form)
        except _OAuthError as error:
            rejection = _build_response({"error": error.error, "error_description": str(error)}, error.status)
            if error.status == HTTPStatus.UNAUTHORIZED:
                rejection.headers["WWW-Authenticate"] = 'Basic realm="directsuite-sandbox"'
            return rejection
        return _build_response(response)

    def _issue_token(
        self, connection: sqlite3.Connection, client_id: str, client_secret: str, form: Mapping[str, str]
    ) -> dict[str, Any]:
        client = _find_client(connection, client_id)
        if client is None or not check_password(client_secret, client["secret"]):
            raise _OAuthError("invalid_client", "the client is unknown or its secret is wrong", HTTPStatus.UNAUTHORIZED)
        grant = self._redeem(connection, client_id, client["account"], form)
        account, scope, expires_at = grant.account, grant.scope, self._clock.milliseconds() + _TOKEN_LIFETIME_MS
        response = {
            "access_token": store_secret(connection, "access token", account, expires_at=expires_at, scope=scope),
            "token_type": "Bearer",
            "expires_in": _TOKEN_LIFETIME_MS // 1000,
            "scope": scope,
        }
        if grant.is_refreshable:
            response["refresh_token"] = store_secret(
                connection, "refresh token", account, expires_at=None, scope=scope, client_id=client_id
            )
        return response

    def _redeem(
        self, connection: sqlite3.Connection, client_id: str, client_account: str, form: Mapping[str, str]
    ) -> _Grant:
        scope = form.get("scope")
        match form["grant_type"]:
            case "authorization_code":
                row = _take_grant(connection, "code", _require_parameter(form, "code"), client_id)
                if row["redirect_uri"] != _require_parameter(form, "redirect_uri"):
                    raise _OAuthError("invalid_grant", "redirect_uri differs from that of the authorization request")
                if row["expires_at"] <= self._clock.milliseconds():
                    raise _OAuthError("invalid_grant", "the code has expired")
                return _Grant(row["account"], row["scope"])
            case "refresh_token":
                row = _take_grant(connection, "refresh token", _require_parameter(form, "refresh_token"), client_id)
                if not set((scope or "").split()) <= set(row["scope"].split()):
                    raise _OAuthError("invalid_scope", "a refresh cannot extend the scope")
                return _Grant(row["account"], scope or row["scope"])
            case "client_credentials":  # RFC 6749 section 4.4.3: without a refresh token
                return _Grant(client_account, scope or DEFAULT_SCOPE, is_refreshable=False)
            case "password":
                username = _require_parameter(form, "username")
                if not authenticate(connection, username, _require_parameter(form, "password")):
                    raise _OAuthError("invalid_grant", "the user name or password is wrong")
                return _Grant(username, scope or DEFAULT_SCOPE)
            case _:
                text = "the grant type is not one of authorization_code, refresh_token, client_credentials, password"
                raise _OAuthError("unsupported_grant_type", text)


def _take_grant(connection: sqlite3.Connection, kind: SecretKind, secret: str, client_id: str) -> sqlite3.Row:
    """Delete and return a code or refresh token. The caller's rollback restores it."""
    row: sqlite3.Row | None = connection.execute(
        "DELETE FROM secret WHERE digest = ? AND kind = ? AND client_id = ? RETURNING *",
        (hash_secret(secret), kind, client_id),
    ).fetchone()
    if row is None:
        raise _OAuthError("invalid_grant", "the grant is unknown, already used, or belongs to another client")
    return row


def _find_client(connection: sqlite3.Connection, client_id: str) -> sqlite3.Row | None:
    query = "SELECT secret, account FROM oauth_client WHERE client_id = ?"
    row: sqlite3.Row | None = connection.execute(query, (client_id,)).fetchone()
    return row


def _parse_client_credentials(request: web.Request, form: Mapping[str, str]) -> tuple[str, str]:
    """Return client id and secret from HTTP Basic, which form-encodes both, or else from the form (RFC 6749, 2.3.1).

    Missing ones are empty. Raises _OAuthError for an unreadable Basic header.
    """
    header = request.headers.get("Authorization", "")
    if not header.lower().startswith("basic "):
        return form.get("client_id", ""), form.get("client_secret", "")
    try:
        client_id, secret = pybase64.b64decode(header[len("basic ") :], validate=True).decode().split(":", 1)
    except ValueError:
        raise _OAuthError("invalid_client", "the Basic credentials cannot be read", HTTPStatus.UNAUTHORIZED) from None
    return unquote_plus(client_id), unquote_plus(secret)


async def _read_form(request: web.Request) -> dict[str, str]:
    if request.content_type != _FORM_MEDIA_TYPE:
        raise _OAuthError("invalid_request", f"the request must be {_FORM_MEDIA_TYPE}")
    try:
        text = (await request.read()).decode("utf-8")
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=100, errors="strict")
    except ValueError:
        raise _OAuthError("invalid_request", "the form cannot be read") from None
    form = dict(pairs)
    if len(form) != len(pairs):
        raise _OAuthError("invalid_request", "the form contains a parameter twice")
    _require_parameter(form, "grant_type")
    return form


def _require_parameter(form: Mapping[str, str], name: str) -> str:
    if not form.get(name):
        raise _OAuthError("invalid_request", f"{name} is missing")
    return form[name]


def _is_usable_redirect(redirect_uri: str) -> bool:
    try:
        url = URL(redirect_uri)
    except ValueError:
        return False
    is_absolute = url.scheme in {"http", "https"} and bool(url.host)
    return is_absolute and not url.fragment and redirect_uri.isascii() and redirect_uri.isprintable()


def _build_response(body: Mapping[str, Any], status: int = HTTPStatus.OK) -> web.Response:
    # RFC 6749 section 5.1: a response with a token must not be cached.
    return web.json_response(body, status=status, headers={"Cache-Control": "no-store", "Pragma": "no-cache"})
