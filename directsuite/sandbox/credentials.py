"""Credentials as the sandbox keeps and checks them: passwords, tokens, and the check before signing and fax.

Passwords and client secrets are kept as salted scrypt, cheap enough for a sandbox. Tokens, codes and sessions are
opaque random text, of which the database keeps the digest. An access token has an account that it speaks for, and an
end on the sandbox's clock.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from datetime import timedelta
from typing import TYPE_CHECKING

from aiohttp import web

from directsuite.sandbox.refusals import refusal

if TYPE_CHECKING:
    import sqlite3

    from aiohttp.typedefs import Handler, Middleware

    from directsuite.sandbox.clock import Clock
    from directsuite.sandbox.database import Database

SCHEMA = """
CREATE TABLE IF NOT EXISTS access_token(
  digest BLOB PRIMARY KEY, account TEXT NOT NULL, scope TEXT NOT NULL, expires_at INTEGER NOT NULL) WITHOUT ROWID;
"""

PROTECTED = ("/signing/", "/fax/")
DEFAULT_SCOPE = "pdf fax"
DEMO_ACCOUNT = "demo"

_SALT = 16
_COST = 2**10
_REMEMBERED = 4096  # matches; beyond it all are forgotten and checked anew
_MATCH_KEY = os.urandom(32)
_matches: set[bytes] = set()
"""Digests, keyed anew in each process, of passwords that matched and the hashes that they matched."""


def hash_password(password: str) -> bytes:
    """What to store instead of the password: a fresh salt and the digest."""
    salt = os.urandom(_SALT)
    return salt + _scrypt(password, salt)


def password_matches(password: str, stored: bytes) -> bool:
    """Return True if `stored` was made from this password. A match is remembered, since scrypt is slow on purpose."""
    match = hmac.digest(_MATCH_KEY, stored + password.encode("utf-8"), hashlib.sha256)
    if match in _matches:
        return True
    if not hmac.compare_digest(_scrypt(password, stored[:_SALT]), stored[_SALT:]):
        return False
    if len(_matches) >= _REMEMBERED:
        _matches.clear()
    _matches.add(match)
    return True


def _scrypt(password: str, salt: bytes) -> bytes:
    return hashlib.scrypt(password.encode("utf-8"), salt=salt, n=_COST, r=8, p=1)


def new_secret() -> str:
    """Fresh random text for tokens, codes and sessions; it needs no quoting in a URL."""
    return secrets.token_urlsafe(32)


def digest(secret: str) -> bytes:
    """What the database keeps of a token, code or session."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).digest()


def store_token(
    connection: sqlite3.Connection,
    token: str,
    *,
    account: str,
    now: int,
    lifetime: timedelta,
    scope: str = DEFAULT_SCOPE,
) -> None:
    """Make `token` valid for `account` from `now` (milliseconds since 1970) for `lifetime`."""
    connection.execute(
        "INSERT OR REPLACE INTO access_token(digest, account, scope, expires_at) VALUES(?, ?, ?, ?)",
        (digest(token), account, scope, now + lifetime // timedelta(milliseconds=1)),
    )


def account_of(connection: sqlite3.Connection, token: str, *, now: int) -> str | None:
    """The account that a valid token speaks for; None for an unknown or expired one."""
    row = connection.execute(
        "SELECT account FROM access_token WHERE digest = ? AND expires_at > ?", (digest(token), now)
    ).fetchone()
    return None if row is None else str(row["account"])


def expire_tokens(connection: sqlite3.Connection, *, account: str | None = None, token: str | None = None) -> int:
    """End one token, those of one account, or all; returns how many there were."""
    return connection.execute(
        "UPDATE access_token SET expires_at = 0 "
        "WHERE (:account IS NULL OR account = :account) AND (:digest IS NULL OR digest = :digest)",
        {"account": account, "digest": None if token is None else digest(token)},
    ).rowcount


ACCOUNT = web.RequestKey("account", str)
"""Where a request keeps the account that its token speaks for."""


def bearer_token(request: web.Request) -> str | None:
    """The token of the request's Authorization header, or None where there is none (RFC 6750 section 2.1)."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None


def bearer_check(database: Database, clock: Clock) -> Middleware:
    """The middleware that admits signing and fax requests with a valid token only, and keeps its ACCOUNT."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        """Name the account, or answer 401; paths outside the two services pass."""
        # An unknown path or method has no route name: it is 404 or 405, whoever asks.
        if request.match_info.route.name is None or not request.path.startswith(PROTECTED):
            return await handler(request)
        token = bearer_token(request)
        if token is None:
            return _unauthorized("the request carries no access token", 'Bearer realm="directsuite-sandbox"')
        now = clock.milliseconds()
        account = await database.read(lambda connection: account_of(connection, token, now=now))
        if account is None:
            challenge = 'Bearer realm="directsuite-sandbox", error="invalid_token"'
            return _unauthorized("the access token is unknown or has expired", challenge)
        request[ACCOUNT] = account
        return await handler(request)

    return check


def _unauthorized(description: str, challenge: str) -> web.Response:
    answer = refusal(401, "invalid_token", description)
    answer.headers["WWW-Authenticate"] = challenge
    return answer
