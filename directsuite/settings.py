"""Where the services are and how they are called: from arguments, the environment, or a TOML file."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

import attrs

from directsuite.core.checks import (
    FLAG,
    NOT_NEGATIVE,
    POSITIVE,
    WHOLE,
    Check,
    accepts,
    instance_of,
    is_proxy_url,
    problem_of_url,
)
from directsuite.core.privacy import scrub_init, scrub_traceback
from directsuite.core.retry import RetryPolicy
from directsuite.core.session import SessionFactory
from directsuite.errors import ConfigurationError
from directsuite.wire.models import ValueSemantics

if TYPE_CHECKING:
    import cattrs

SERVICES = ("signing", "fax", "message", "registration")
_PREFIX = "DIRECTSUITE_"
_NOT_IN_FILES = {"retry", "tls", "session_factory", "close_session", "converter"}


class Variables(Mapping[str, str]):
    """The environment, or a mapping in its place. Its `repr` shows nothing: frames that hold it may be printed."""

    def __init__(self, variables: Mapping[str, str] | None) -> None:
        if variables is not None and not isinstance(cast("object", variables), Mapping):
            variables = None  # this frame may stand in a traceback
            raise ConfigurationError("environ has to be a mapping of names to texts, such as os.environ")
        self._variables = os.environ if variables is None else variables

    def __getitem__(self, name: str) -> str:
        value = self._variables[name]
        if isinstance(cast("object", value), str):
            return value
        value = ""  # this frame may stand in a traceback
        raise ConfigurationError(f"{name} has to be a text")

    def __iter__(self) -> Iterator[str]:
        return iter(self._variables)

    def __len__(self) -> int:
        return len(self._variables)

    def __repr__(self) -> str:
        return "Variables(...)"


def _base_url(url: str | None) -> str | None:
    argument: object = url
    return argument.rstrip("/") if isinstance(argument, str) else url


def _safe_url(settings: Settings, attribute: attrs.Attribute[str | None], url: object) -> None:
    problem = None if url is None else problem_of_url(url, allow_insecure_http=settings.allow_insecure_http)
    if problem is not None:
        raise ConfigurationError(f"{attribute.name} {problem}")


_TLS = instance_of(ssl.SSLContext, "an ssl.SSLContext").or_none()
_PROXY = Check("the URL of an HTTP proxy, such as http://proxy.example.org:3128", is_proxy_url).or_none()
_SESSION_FACTORY = Check(
    "a function without parameters that makes an aiohttp.ClientSession",
    lambda value: callable(value) and accepts(value, 0),
).or_none()


def _is_converter(value: object) -> bool:
    from cattrs import Converter  # most programs give none

    return isinstance(value, Converter)


_CONVERTER = Check("a cattrs.Converter, such as directsuite.make_converter() gives", _is_converter).or_none()


@scrub_init
@attrs.frozen(kw_only=True, repr=False, eq=False)
class Settings(ValueSemantics):
    """How a suite reaches the services. Every limit is per service and shared by all that the suite does.

    Raises ConfigurationError for a value of another type, or one that can't be right, and names the setting.
    """

    signing_url: str | None = attrs.field(default=None, converter=_base_url, validator=_safe_url)
    """The base URL of the signing service."""
    fax_url: str | None = attrs.field(default=None, converter=_base_url, validator=_safe_url)
    """The base URL of the fax service."""
    message_url: str | None = attrs.field(default=None, converter=_base_url, validator=_safe_url)
    """Up to and including `/message-rest/api/message`."""
    registration_url: str | None = attrs.field(default=None, converter=_base_url, validator=_safe_url)
    """Up to and including `/DirectRegistrationRESTful/rest/Patient`."""
    timeout: float = attrs.field(default=60.0, validator=POSITIVE)
    """Seconds for a whole call."""
    attempt_timeout: float = attrs.field(default=20.0, validator=POSITIVE)
    """Seconds for one attempt of an operation that may be repeated, and for a pause in a stream."""
    max_connections: int = attrs.field(default=10, validator=[POSITIVE, WHOLE])
    """Connections to one service at a time; further requests wait their turn."""
    requests_per_second: float = attrs.field(default=100.0, validator=POSITIVE)
    """The sustained rate of requests, as such providers ask for it."""
    burst: int = attrs.field(default=150, validator=[POSITIVE, WHOLE])
    """Requests that may go at once after a quiet time."""
    max_response_bytes: int = attrs.field(default=134_217_728, validator=[POSITIVE, WHOLE])
    """Of an answer that is read whole; streams are not bounded by it."""
    session_margin: float = attrs.field(default=60.0, validator=POSITIVE)
    """Seconds before its expiry at which a token or session is renewed."""
    keep_alive: bool = attrs.field(default=False, validator=FLAG)
    """Whether tokens and sessions are renewed even while nothing is called."""
    circuit_failures: int = attrs.field(default=20, validator=NOT_NEGATIVE)
    """Attempts in a row without an answer after which a service is taken to be down; 0 for never.

    Calls then fail at once with CircuitOpenError, except one probe every `circuit_pause` seconds.
    """
    circuit_pause: float = attrs.field(default=10.0, validator=POSITIVE)
    """Seconds from one probe of a service that is down to the next."""
    retry: RetryPolicy = attrs.field(factory=RetryPolicy, validator=instance_of(RetryPolicy, "a RetryPolicy"))
    """Whether, when and how often a failed attempt is tried again."""
    tls: ssl.SSLContext | None = attrs.field(default=None, repr=False, validator=_TLS)
    """None for the machine's trust store and TLS 1.2 or newer."""
    proxy: str | None = attrs.field(default=None, repr=False, validator=_PROXY)
    """The URL of an HTTP proxy."""
    session_factory: SessionFactory | None = attrs.field(default=None, repr=False, validator=_SESSION_FACTORY)
    """Makes the aiohttp session, whose own TLS and proxy hold where `tls` and `proxy` are None.

    Its connector has to be a FreshConnector, or to have force_close=True. `auth` and `trust_env` are refused. Its
    middlewares are left out, since one might send a request twice.
    """
    close_session: bool = attrs.field(default=True, validator=FLAG)
    """False leaves the session of `session_factory` open at the end, for others who share it.

    A call that still waits for an answer then does so until its own deadline.
    """
    allow_insecure_http: bool = attrs.field(default=False, validator=FLAG)
    """Permits http:// to other machines."""
    converter: cattrs.Converter | None = attrs.field(default=None, repr=False, validator=_CONVERTER)
    """A cattrs converter by which every answer is read and every request written.

    It gets the hooks of `register_hooks` if it hasn't them.
    """

    @classmethod
    @scrub_traceback
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
    @scrub_traceback
    def from_toml(cls, path: str | PathLike[str]) -> Self:
        """Settings from a TOML file: its keys are the parameters' names, and `retry_attempts`."""
        return cls._from_values(_read_toml(path), str(path))

    @classmethod
    def _from_values(cls, values: dict[str, Any], origin: str) -> Self:
        names = {field.name for field in attrs.fields(cls)} - _NOT_IN_FILES | {"retry_attempts"}
        unknown = sorted(values.keys() - names)
        if unknown:
            raise ConfigurationError(
                f"{origin}: unknown setting {', '.join(unknown)}; known: {', '.join(sorted(names))}"
            )
        try:
            if "retry_attempts" in values:
                values["retry"] = RetryPolicy(attempts=values.pop("retry_attempts"))
            return cls(**values)
        except ConfigurationError as error:
            problem = error.explanation
        problem = f"retry_{problem}" if problem.startswith("attempts ") else problem
        raise ConfigurationError(f"{origin}: {problem}")


def _read_toml(path: str | PathLike[str]) -> dict[str, Any]:
    import tomllib  # most programs have no such file

    try:
        text = Path(path).read_text(encoding="utf-8")
        return tomllib.loads(text)
    except FileNotFoundError:
        reason = "no such file"
    except TypeError:
        raise ConfigurationError("the settings file has to be named by its path") from None
    except (ValueError, RecursionError):  # a path with a null byte among them
        reason = "not TOML"
    except OSError as error:
        reason = f"it can't be read ({type(error).__name__})"
    raise ConfigurationError(f"settings file {path}: {reason}")
