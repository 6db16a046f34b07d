"""Checks of what users set: validators for the fields of attrs classes, and of arguments.

Each says what it takes, and refuses anything else with a ConfigurationError that names the field. The value is never
shown: it may hold a password. A class whose fields may hold one is made with `scrub_class`, too, since the frames of
a failed `__init__` hold all of them.
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

MOST = 2**63 - 1
"""The largest whole number that is taken, of bytes or of anything else."""

_HUNDRED_YEARS = 3_153_600_000  # seconds


@attrs.frozen
class Check:
    """A validator of a field."""

    takes: str
    """What the field has to be, for the error's text."""
    fits: Callable[[Any], bool]
    """Whether a value is that."""

    def __call__(self, _: object, attribute: attrs.Attribute[Any], value: object) -> None:
        """Raise ConfigurationError for a value that doesn't fit."""
        self.require(attribute.name, value)

    def require(self, name: str, value: object) -> None:
        """Raise ConfigurationError for an argument of this name that doesn't fit."""
        if not self.fits(value):
            value = None  # this frame may stand in a traceback
            raise ConfigurationError(f"{name} has to be {self.takes}")

    def or_none(self) -> Check:
        """The same, for a field that may be left out."""
        return Check(f"{self.takes}, or None", lambda value: value is None or self.fits(value))


def instance_of(kind: type, takes: str) -> Check:
    """An object of this type."""
    return Check(takes, lambda value: isinstance(value, kind))


def with_methods(takes: str, *names: str) -> Check:
    """An object that has these methods, and no class of such objects."""
    return Check(
        takes,
        lambda value: not inspect.isclass(value) and all(callable(getattr(value, name, None)) for name in names),
    )


def accepts(function: Callable[..., Any], count: int) -> bool:
    """Return True unless the function's signature says that it can't be called with so many arguments."""
    try:
        inspect.signature(function).bind(*[None] * count)
    except ValueError:  # a built-in function that does not say
        return True
    except TypeError:
        return False
    return True


POSITIVE = Check("more than 0: a finite number", lambda value: is_number(value) and value > 0)
INTERVAL = Check(
    "a number of seconds: more than 0, and at most a hundred years",  # PostgreSQL has no interval for every float
    lambda value: POSITIVE.fits(value) and value <= _HUNDRED_YEARS,
)
DURATION = Check("a number of seconds", lambda value: is_number(value) or value == math.inf)
WHOLE = Check("a whole number", lambda value: is_number(value) and isinstance(value, int) and abs(value) <= MOST)
AT_LEAST_ONE = Check("1 or more: a whole number", lambda value: WHOLE.fits(value) and value >= 1)
NOT_NEGATIVE = Check("a whole number, 0 or more", lambda value: WHOLE.fits(value) and value >= 0)
FLAG = instance_of(bool, "True or False")
TEXT = Check("a text that is not empty", lambda value: isinstance(value, str) and bool(value))


def problem_of_url(text: object, *, allow_insecure_http: bool = False, query: bool = False) -> str | None:
    """What is wrong or unsafe about a URL, for an error's text, or None. Told, not raised: the URL may hold a password,
    and no frame of a traceback may hold the URL.

    allow_insecure_http: permit http:// to other machines. query: permit a query.
    """
    try:
        url = URL(text) if isinstance(text, str) and text.isprintable() and " " not in text else URL()
        host = url.host
    except ValueError:
        url, host = URL(), None
    if not isinstance(text, str) or url.scheme not in ("http", "https") or not host:
        return "has to be a URL that starts with https://, or with http:// on this machine"
    if url.user or url.password:
        return "must not hold credentials: give them as token, login or mailbox password"
    if "#" in text or ("?" in text and not query):
        return f"must not have {'a fragment' if query else 'a query or a fragment'}"
    if url.scheme == "http" and allow_insecure_http is not True and not _is_loopback(host):
        return "would send secrets in clear: use https://, or set allow_insecure_http=True"
    return None


def is_proxy_url(text: object) -> bool:
    """Return True for the URL of an HTTP proxy, which may hold a user name and password that HTTP Basic can carry."""
    if not isinstance(text, str):
        return False
    try:
        url = URL(text)
        user, password = url.user or "", url.password or ""
        (user + password).encode("latin-1")  # aiohttp's, too, which fails at the first request
        plain = str(url.with_user(None))
    except ValueError:
        return False
    printable = text.isprintable() and (user + password).isprintable()
    return printable and ":" not in user and problem_of_url(plain, allow_insecure_http=True) is None


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
