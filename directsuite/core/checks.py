"""Checks of settings and arguments, usable as validators of attrs fields.

A `Check` raises ConfigurationError for an invalid value. The error never contains the value, which may be a password.
Classes with such fields also need `scrub_class`, because the frames of a failed `__init__` contain the values.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from ipaddress import ip_address
from typing import Any

import attrs
from yarl import URL

from directsuite.errors import ConfigurationError
from directsuite.wire.models import is_number

MAX_INTEGER = 2**63 - 1
"""The maximum absolute value of an integer setting."""

_MAX_INTERVAL_SECONDS = 3_153_600_000


@attrs.frozen(repr=False, eq=False)
class Check:
    """A check of a value, usable as a validator of an attrs field."""

    description: str
    """A description of valid values, which the error message contains after "must be"."""
    predicate: Callable[[Any], bool]
    """Returns True if a value is valid."""

    def __call__(self, _: object, attribute: attrs.Attribute[Any], value: object) -> None:
        """Raise ConfigurationError, with the attribute's name, if the value is invalid."""
        self.require(attribute.alias or attribute.name, value)

    def require(self, name: str, value: object) -> None:
        """Raise ConfigurationError if the value is invalid.

        name: the field or argument, for the error.
        """
        if not self.predicate(value):
            # Tracebacks can include local variables.
            value = None
            raise ConfigurationError(f"{name} must be {self.description}")

    def allow_none(self) -> Check:
        """Return a check that accepts the same values, and None."""
        return Check(f"{self.description}, or None", lambda value: value is None or self.predicate(value))


def instance_of(kind: type, description: str) -> Check:
    """Return a check that accepts instances of `kind`.

    description: see `Check`.
    """
    return Check(description, lambda value: isinstance(value, kind))


def with_methods(description: str, *names: str) -> Check:
    """Return a check that accepts objects with methods of these names, but not classes.

    description: see `Check`.
    """
    return Check(
        description,
        lambda value: not inspect.isclass(value) and all(callable(getattr(value, name, None)) for name in names),
    )


def is_async(function: object) -> bool:
    """Return True if this is an async function, or an object whose `__call__` is one."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def can_be_called_with(function: Callable[..., Any], count: int) -> bool:
    """Return True if the function can be called with `count` positional arguments, or has no known signature."""
    try:
        inspect.signature(function).bind(*[None] * count)
    except ValueError:  # a built-in function without a signature
        return True
    except TypeError:
        return False
    return True


POSITIVE = Check("a finite number greater than 0", lambda value: is_number(value) and value > 0)
INTERVAL = Check(
    # PostgreSQL cannot store every float as an interval.
    "a number of seconds greater than 0, at most a hundred years",
    lambda value: POSITIVE.predicate(value) and value <= _MAX_INTERVAL_SECONDS,
)
DURATION = Check(
    "a number of seconds", lambda value: is_number(value) or (isinstance(value, float) and value == math.inf)
)
NOT_NEGATIVE_DURATION = Check("a finite number of seconds, 0 or more", lambda value: is_number(value) and value >= 0)
INTEGER = Check(
    "a whole number", lambda value: is_number(value) and isinstance(value, int) and abs(value) <= MAX_INTEGER
)
AT_LEAST_ONE = Check("a whole number, 1 or more", lambda value: INTEGER.predicate(value) and value >= 1)
NOT_NEGATIVE = Check("a whole number, 0 or more", lambda value: INTEGER.predicate(value) and value >= 0)
FLAG = instance_of(bool, "True or False")
TEXT = Check("a non-empty string", lambda value: isinstance(value, str) and bool(value))


def find_url_problem(text: object, *, allow_insecure_http: bool = False, query: bool = False) -> str | None:
    """Return what is wrong or unsafe about a URL, as text for an error message, or None if it is valid.

    It does not raise, because a traceback would include the URL, which may contain a password.

    allow_insecure_http: permit http:// to other machines.
    query: permit a query.
    """
    if isinstance(text, str) and text.strip() not in ("", text):
        return "must not start or end with whitespace"
    try:
        url = URL(text) if isinstance(text, str) and text.isprintable() and " " not in text else URL()
        host = url.host
    except ValueError:
        url, host = URL(), None
    if not isinstance(text, str) or url.scheme not in ("http", "https") or not host:
        return "must be a URL that starts with https://, or with http:// on this machine"
    if url.user or url.password:
        return "must not contain credentials: pass them as token, login or mailbox password"
    if "#" in text or ("?" in text and not query):
        return f"must not have {'a fragment' if query else 'a query or a fragment'}"
    if url.scheme == "http" and allow_insecure_http is not True and not _is_loopback(host):
        return "would send secrets unencrypted: use https://, or set allow_insecure_http to true"
    return None


def is_proxy_url(text: object) -> bool:
    """Return True if `text` is a valid URL of an HTTP proxy.

    It may contain a user name without colon and a password, both printable Latin-1 text.
    """
    if not isinstance(text, str):
        return False
    try:
        url = URL(text)
        user, password = url.user or "", url.password or ""
        # aiohttp uses this encoding.
        (user + password).encode("latin-1")
        plain = str(url.with_user(None))
    except ValueError:
        return False
    printable = text.isprintable() and (user + password).isprintable()
    return printable and ":" not in user and find_url_problem(plain, allow_insecure_http=True) is None


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
