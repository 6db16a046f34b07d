"""Where the services are and how they are called: from arguments, the environment, or a TOML file."""

from __future__ import annotations

import math
import os
import ssl
from collections.abc import Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Self

import attrs
from yarl import URL

from directsuite.core.lifecycle import SessionFactory
from directsuite.core.retry import RetryPolicy
from directsuite.core.secure_url import problem_of_url
from directsuite.errors import ConfigurationError
from directsuite.fieldwise import Fieldwise

SERVICES = ("signing", "fax", "message", "registration")
_PREFIX = "DIRECTSUITE_"
_NOT_IN_FILES = ("retry", "tls", "session_factory", "close_session")


class Variables(Mapping[str, str]):
    """The environment, or a mapping in its place. Its `repr` shows nothing: frames that hold it may be printed."""

    def __init__(self, variables: Mapping[str, str] | None) -> None:
        self._variables = os.environ if variables is None else variables

    def __getitem__(self, name: str) -> str:
        return self._variables[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._variables)

    def __len__(self) -> int:
        return len(self._variables)

    def __repr__(self) -> str:
        return "Variables(...)"


def _positive(_: Any, attribute: attrs.Attribute[Any], value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ConfigurationError(f"{attribute.name} has to be more than 0: a finite number")


def _positive_whole(settings: Any, attribute: attrs.Attribute[Any], value: object) -> None:
    _positive(settings, attribute, value)
    if not isinstance(value, int):
        raise ConfigurationError(f"{attribute.name} has to be a whole number")


def _whole(_: Any, attribute: attrs.Attribute[Any], value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ConfigurationError(f"{attribute.name} has to be a whole number, 0 or more")


def _base_url(url: str | None) -> str | None:
    return None if url is None else url.rstrip("/")


@attrs.frozen(kw_only=True, repr=False, eq=False)
class Settings(Fieldwise):
    """How a suite reaches the services. Every limit is per service and shared by all that the suite does.

    signing_url, fax_url: base URLs of these services. message_url: up to and including `/message-rest/api/message`.
    registration_url: up to and including `/DirectRegistrationRESTful/rest/Patient`. timeout: seconds for a whole call;
    attempt_timeout: for one attempt of an operation that may be repeated, and for a pause in a stream.
    requests_per_second, burst: the rate that such providers ask for. max_response_bytes: of an answer read whole.
    session_margin: seconds before its expiry at which a token or session is renewed; keep_alive: even while idle.
    circuit_failures: so many attempts in a row without an answer, and a service is taken to be down: calls fail at once
    with CircuitOpenError, save one probe every circuit_pause seconds; 0 for never. tls: the machine's trust store and
    TLS 1.2 or newer where it is None. proxy: an HTTP proxy's URL. session_factory: makes the aiohttp session, whose own
    TLS and proxy then hold where these are None; its connector is a FreshConnector, or has force_close=True; auth and
    trust_env are refused; its middlewares are left out, since one might send a request twice. close_session: False
    leaves that session open at the end, for others who share it; a call that then still waits for an answer does so
    until its own deadline. allow_insecure_http: permit http:// to other machines.

    Raises ConfigurationError for a URL or a number that can't be right.
    """

    signing_url: str | None = attrs.field(default=None, converter=_base_url)
    fax_url: str | None = attrs.field(default=None, converter=_base_url)
    message_url: str | None = attrs.field(default=None, converter=_base_url)
    registration_url: str | None = attrs.field(default=None, converter=_base_url)
    timeout: float = attrs.field(default=60.0, validator=_positive)
    attempt_timeout: float = attrs.field(default=20.0, validator=_positive)
    max_connections: int = attrs.field(default=10, validator=_positive_whole)
    requests_per_second: float = attrs.field(default=100.0, validator=_positive)
    burst: int = attrs.field(default=150, validator=_positive_whole)
    max_response_bytes: int = attrs.field(default=134_217_728, validator=_positive_whole)
    session_margin: float = attrs.field(default=60.0, validator=_positive)
    keep_alive: bool = False
    circuit_failures: int = attrs.field(default=20, validator=_whole)
    circuit_pause: float = attrs.field(default=10.0, validator=_positive)
    retry: RetryPolicy = attrs.field(factory=RetryPolicy)
    tls: ssl.SSLContext | None = attrs.field(default=None, repr=False)
    proxy: str | None = attrs.field(default=None, repr=False)
    session_factory: SessionFactory | None = attrs.field(default=None, repr=False)
    close_session: bool = True
    allow_insecure_http: bool = False

    def __attrs_post_init__(self) -> None:
        for service in SERVICES:
            url = getattr(self, f"{service}_url")
            problem = None if url is None else problem_of_url(url, allow_insecure_http=self.allow_insecure_http)
            if problem is not None:
                raise ConfigurationError(f"{service}_url {problem}")
        if self.proxy is not None and URL(self.proxy).scheme not in ("http", "https"):
            raise ConfigurationError("proxy has to be the URL of an HTTP proxy, such as http://proxy.example.org:3128")

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Self:
        """Settings from DIRECTSUITE_SIGNING_URL, _FAX_URL, _MESSAGE_URL and _REGISTRATION_URL.

        DIRECTSUITE_CONFIG names a TOML file for the rest; a variable goes before the file's value.
        """
        environ = Variables(environ)
        config = environ.get(f"{_PREFIX}CONFIG")
        values = _read_toml(config) if config else {}
        for service in SERVICES:
            if url := environ.get(f"{_PREFIX}{service.upper()}_URL"):
                values[f"{service}_url"] = url
        return cls._from_values(values, config or "the environment")

    @classmethod
    def from_toml(cls, path: str | PathLike[str]) -> Self:
        """Settings from a TOML file: its keys are the parameters' names, and `retry_attempts`."""
        return cls._from_values(_read_toml(path), str(path))

    @classmethod
    def _from_values(cls, values: dict[str, Any], origin: str) -> Self:
        known: dict[str, Any] = {field.name: field.default for field in attrs.fields(cls)}
        known = {name: default for name, default in known.items() if name not in _NOT_IN_FILES} | {"retry_attempts": 4}
        unknown = sorted(values.keys() - known.keys())
        if unknown:
            raise ConfigurationError(
                f"{origin}: unknown setting {', '.join(unknown)}; known: {', '.join(sorted(known))}"
            )
        for name, value in values.items():
            if not _fits(value, known[name]):
                raise ConfigurationError(
                    f"{origin}: {name} has the wrong type: URLs are texts, limits are numbers, flags are true or false"
                )
        attempts = values.pop("retry_attempts", None)
        if attempts is not None:
            if attempts < 1:
                raise ConfigurationError(f"{origin}: retry_attempts has to be 1 or more")
            values["retry"] = RetryPolicy(attempts=attempts)
        return cls(**values)


def _fits(value: Any, default: Any) -> bool:
    """Whether a value from a file has the type that its setting takes, told from the setting's default."""
    if isinstance(default, bool) or isinstance(value, bool):
        return isinstance(default, bool) and isinstance(value, bool)
    if default is None:
        return isinstance(value, str)
    return isinstance(value, int) or (isinstance(default, float) and isinstance(value, float))


def _read_toml(path: str | PathLike[str]) -> dict[str, Any]:
    import tomllib  # most programs have no such file

    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        reason = "no such file"
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        reason = "not TOML"
    except OSError as error:
        reason = f"it can't be read ({type(error).__name__})"
    raise ConfigurationError(f"settings file {path}: {reason}")
