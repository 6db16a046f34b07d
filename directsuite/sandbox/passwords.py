"""Passwords and client secrets as they are kept: salted scrypt, cheap enough for a sandbox."""

from __future__ import annotations

import hashlib
import hmac
import os

_SALT = 16
_COST = 2**10


def hash_password(password: str) -> bytes:
    """What to store instead of the password: a fresh salt and the digest."""
    salt = os.urandom(_SALT)
    return salt + _digest(password, salt)


def password_matches(password: str, stored: bytes) -> bool:
    """Whether `stored` was made from this password."""
    return hmac.compare_digest(_digest(password, stored[:_SALT]), stored[_SALT:])


def _digest(password: str, salt: bytes) -> bytes:
    return hashlib.scrypt(password.encode("utf-8"), salt=salt, n=_COST, r=8, p=1)
