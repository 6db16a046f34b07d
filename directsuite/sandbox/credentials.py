"""Passwords and secrets, and the authentication of signing and fax requests.

Passwords and client secrets are stored as salted scrypt hashes, with a low cost. Of other secrets, which are random
text, the database stores a digest. They belong to an account or user, and expire on the sandbox's clock.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from aiohttp import web

from directsuite.sandbox.rejections import build_error_response

if TYPE_CHECKING:
    import sqlite3

    from aiohttp.typedefs import Handler, Middleware

    from directsuite.sandbox.clock import Clock
    from directsuite.sandbox.database import SandboxDatabase

SCHEMA = """
CREATE TABLE IF NOT EXISTS secret(
  digest BLOB PRIMARY KEY, kind TEXT NOT NULL, account TEXT NOT NULL, expires_at INTEGER, scope TEXT NOT NULL,
  client_id TEXT, redirect_uri TEXT) WITHOUT ROWID;
"""

SecretKind = Literal["access token", "session", "code", "refresh token"]
"""An access token or session authorizes requests. An authorization code or refresh token is a grant of OAuth 2.0."""

PROTECTED_PATHS = ("/signing/", "/fax/")
DEFAULT_SCOPE = "pdf fax"
DEMO_ACCOUNT = "demo"

_SALT_BYTES = 16
_SCRYPT_COST = 2**10


def hash_password(password: str) -> bytes:
    """Return a new salt and the hash of the password, as stored."""
    salt = os.urandom(_SALT_BYTES)
    return salt + _compute_scrypt(password, salt)


def check_password(password: str, stored: bytes) -> bool:
    """Return True if `stored` is the hash of this password."""
    return hmac.compare_digest(_compute_scrypt(password, stored[:_SALT_BYTES]), stored[_SALT_BYTES:])


@lru_cache(maxsize=4096)  # because scrypt is slow
def _compute_scrypt(password: str, salt: bytes) -> bytes:
    return hashlib.scrypt(password.encode("utf-8"), salt=salt, n=_SCRYPT_COST, r=8, p=1)


def generate_secret() -> str:
    """Return random text for a token, code or session, safe in URLs."""
    return secrets.token_urlsafe(32)


def hash_secret(secret: str) -> bytes:
    """Return the stored digest of a token, code or session."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).digest()


def store_secret(
    connection: sqlite3.Connection,
    kind: SecretKind,
    account: str,
    *,
    expires_at: int | None,
    secret: str | None = None,
    scope: str = DEFAULT_SCOPE,
    client_id: str | None = None,
    redirect_uri: str | None = None,
) -> str:
    """Store a secret of `account`, and return it.

    expires_at: milliseconds since 1970. None: never.
    secret: None: a new one.
    client_id, redirect_uri: of a grant.
    """
    secret = secret or generate_secret()
    connection.execute(
        "INSERT OR REPLACE INTO secret(digest, kind, account, expires_at, scope, client_id, redirect_uri)"
        " VALUES(?, ?, ?, ?, ?, ?, ?)",
        (hash_secret(secret), kind, account, expires_at, scope, client_id, redirect_uri),
    )
    return secret


def find_secret_account(connection: sqlite3.Connection, kind: SecretKind, secret: str, *, now: int) -> str | None:
    """Return the account of a valid secret, or None if it is unknown or has expired at `now`."""
    row = connection.execute(
        "SELECT account FROM secret WHERE digest = ? AND kind = ? AND expires_at > ?", (hash_secret(secret), kind, now)
    ).fetchone()
    return None if row is None else str(row["account"])


def expire_secrets(
    connection: sqlite3.Connection, kind: SecretKind, *, account: str | None = None, secret: str | None = None
) -> int:
    """Expire a secret, those of an account, or all. Return their number, including those already expired."""
    return connection.execute(
        "UPDATE secret SET expires_at = 0 WHERE kind = :kind"
        " AND (:account IS NULL OR account = :account) AND (:digest IS NULL OR digest = :digest)",
        {"kind": kind, "account": account, "digest": None if secret is None else hash_secret(secret)},
    ).rowcount


ACCOUNT = web.RequestKey("account", str)
"""For a request with a valid token: the token's account."""


def parse_bearer_token(request: web.Request) -> str | None:
    """Return the token of the Authorization header (RFC 6750 section 2.1), or None if it has none."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None


def make_bearer_middleware(database: SandboxDatabase, clock: Clock) -> Middleware:
    """Return the middleware that responds 401 to signing and fax requests without a valid token, and stores ACCOUNT."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        # Without a route name, the path or method is unknown: 404 or 405, with any token.
        if request.match_info.route.name is None or not request.path.startswith(PROTECTED_PATHS):
            return await handler(request)
        token = parse_bearer_token(request)
        if token is None:
            return _build_unauthorized_response("the request has no access token", 'Bearer realm="directsuite-sandbox"')
        now = clock.milliseconds()
        account = await database.read(find_secret_account, "access token", token, now=now)
        if account is None:
            challenge = 'Bearer realm="directsuite-sandbox", error="invalid_token"'
            return _build_unauthorized_response("the access token is unknown or has expired", challenge)
        request[ACCOUNT] = account
        return await handler(request)

    return check


def _build_unauthorized_response(description: str, challenge: str) -> web.Response:
    response = build_error_response(401, "invalid_token", description)
    response.headers["WWW-Authenticate"] = challenge
    return response
