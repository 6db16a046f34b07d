"""Where the services are and how they are called: from arguments, or from the configuration."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any, Self, TypeVar

import attrs

from directsuite.configuration import CERTIFICATES, IDENTITY, PREFIX, Configuration, Entry
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
from directsuite.core.privacy import scrub_class, scrub_traceback
from directsuite.core.retry import RetryPolicy
from directsuite.core.session import SessionFactory
from directsuite.errors import ConfigurationError
from directsuite.wire.models import ValueSemantics

if TYPE_CHECKING:
    import cattrs

SERVICES = ("signing", "fax", "message", "registration")


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


@scrub_class
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
    def from_env(cls, environ: Mapping[str, str] | None = None, *, profile: str | None = None) -> Self:
        """Settings from variables such as DIRECTSUITE_MESSAGE_URL, and from the settings file.

        The file is the one that DIRECTSUITE_CONFIG names, or ~/.config/directsuite/config.toml where that exists.
        profile: the table `[profiles.NAME]` of the file that counts before the rest of it; DIRECTSUITE_PROFILE where
        nothing is given. A variable counts before both.
        """
        return settings_of(cls, Configuration.read(environ, profile))

    @classmethod
    def from_toml(cls, path: str | PathLike[str], *, profile: str | None = None) -> Self:
        """Settings from a TOML file: its keys are the parameters' names, and `retry_attempts`."""
        return settings_of(cls, Configuration.of_file(path, profile))


S = TypeVar("S", bound=Settings)

_KINDS = {"float", "int", "bool", "str | None"}
PLAIN: Mapping[str, str] = {
    **{
        each.name: str(each.type)
        for each in attrs.fields(Settings)
        if str(each.type) in _KINDS and each.name != "close_session"
    },
    "retry_attempts": "int",
}
"""The settings that a file or a variable can give, and the type of each."""

_FLAGS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}


def _parsed(entry: Entry, kind: str) -> Any:
    """The value that a variable's text stands for. What stands for none stays a text, which Settings refuses."""
    if not entry.is_variable:
        return entry.value
    if kind == "bool":
        return _FLAGS.get(entry.value.lower(), entry.value)
    if kind in {"int", "float"}:
        with contextlib.suppress(ValueError):
            return int(entry.value) if kind == "int" else float(entry.value)
    return entry.value


@scrub_traceback
def settings_of(kind: type[S], configuration: Configuration) -> S:
    """Settings from a configuration that was read."""
    known = PLAIN.keys() | set(CERTIFICATES) | set(IDENTITY)
    for name, entry in configuration.items():
        if name not in known and not entry.is_variable:
            names = ", ".join(sorted(known))
            raise ConfigurationError(f"{entry.origin}: unknown setting {name}; known: {names}, [profiles.NAME]")
    values = {name: _parsed(entry, PLAIN[name]) for name, entry in configuration.items() if name in PLAIN}
    try:
        if "retry_attempts" in values:
            values["retry"] = RetryPolicy(attempts=values.pop("retry_attempts"))
        if (tls := configuration.tls()) is not None:
            values["tls"] = tls
        return kind(**values)
    except ConfigurationError as error:
        problem = error.explanation
    problem = f"retry_{problem}" if problem.startswith("attempts ") else problem
    name = problem.partition(" ")[0]
    if name not in configuration:
        raise ConfigurationError(problem)
    entry = configuration[name]
    if entry.is_variable and problem.endswith("allow_insecure_http=True"):
        problem += f", or {PREFIX}ALLOW_INSECURE_HTTP=true"
    raise ConfigurationError(f"{entry.origin}: {problem}")
