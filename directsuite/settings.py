"""The settings of a suite: the services' URLs, timeouts and limits."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, Self, TypedDict, TypeVar

import attrs

from directsuite.core.call import SETTLE_TIMEOUT
from directsuite.core.checks import (
    FLAG,
    INTEGER,
    NOT_NEGATIVE,
    NOT_NEGATIVE_DURATION,
    POSITIVE,
    Check,
    can_be_called_with,
    find_url_problem,
    instance_of,
    is_proxy_url,
)
from directsuite.core.privacy import scrub_class, scrub_traceback
from directsuite.core.retry import RetryPolicy
from directsuite.core.session import SessionFactory
from directsuite.core.similar import find_similar
from directsuite.errors import ConfigurationError
from directsuite.wire.models import ValueSemantics

if TYPE_CHECKING:
    import cattrs

    from directsuite.config_file import Configuration, SettingEntry

SERVICES = ("signing", "fax", "message", "registration")


def _strip_trailing_slash(url: str | None) -> str | None:
    argument: object = url
    return argument.rstrip("/") if isinstance(argument, str) else url


def _validate_url(settings: Settings, attribute: attrs.Attribute[str | None], url: object) -> None:
    problem = None if url is None else find_url_problem(url, allow_insecure_http=settings.allow_insecure_http)
    if problem is not None:
        raise ConfigurationError(f"{attribute.name} {problem}")


_TLS = instance_of(ssl.SSLContext, "an ssl.SSLContext").allow_none()
_PROXY = Check("the URL of an HTTP proxy, such as http://proxy.example.org:3128", is_proxy_url).allow_none()
_SESSION_FACTORY = Check(
    "a function without parameters that returns an aiohttp.ClientSession",
    lambda value: callable(value) and can_be_called_with(value, 0),
).allow_none()

_ERROR_MESSAGES = Check('"hidden" or "shown"', lambda value: isinstance(value, str) and value in ("hidden", "shown"))


def _is_converter(value: object) -> bool:
    from cattrs import Converter  # imported only if needed: most programs do not set a converter

    return isinstance(value, Converter)


_CONVERTER = Check("a cattrs.Converter, such as directsuite.make_converter() returns", _is_converter).allow_none()


@scrub_class
@attrs.frozen(kw_only=True, repr=False, eq=False)
class Settings(ValueSemantics):
    """The settings of a suite. Each limit applies to one service, and is shared by all calls of the suite.

    Raises ConfigurationError with the setting's name if a value is invalid.
    """

    signing_url: str | None = attrs.field(default=None, converter=_strip_trailing_slash, validator=_validate_url)
    """The base URL of the signing service."""
    fax_url: str | None = attrs.field(default=None, converter=_strip_trailing_slash, validator=_validate_url)
    """The base URL of the fax service."""
    message_url: str | None = attrs.field(default=None, converter=_strip_trailing_slash, validator=_validate_url)
    """The base URL of the messaging service, up to and including `/message-rest/api/message`."""
    registration_url: str | None = attrs.field(default=None, converter=_strip_trailing_slash, validator=_validate_url)
    """The base URL of the registration service, up to and including `/DirectRegistrationRESTful/rest/Patient`."""
    timeout: float = attrs.field(default=60.0, validator=POSITIVE)
    """The timeout of a call in seconds, including waits and repeated attempts."""
    attempt_timeout: float = attrs.field(default=20.0, validator=POSITIVE)
    """The timeout of one attempt of a repeatable operation, of connecting, and of each pause in a stream, in seconds.
    """
    settle: float = attrs.field(default=SETTLE_TIMEOUT, validator=NOT_NEGATIVE_DURATION)
    """How long a call may verify whether a change of unknown outcome happened, in seconds, at most until its timeout.

    Decrease it if your service certainly processes each request within less time, or not at all. If it is too short,
    OutcomeUnknownError is raised although the change happens later.
    """
    max_connections: int = attrs.field(default=10, validator=[POSITIVE, INTEGER])
    """The maximum number of connections to one service. Further requests wait."""
    requests_per_second: float = attrs.field(default=100.0, validator=POSITIVE)
    """The maximum average rate of requests. Providers of such services ask for the default."""
    burst: int = attrs.field(default=150, validator=[POSITIVE, INTEGER])
    """The number of requests that may be sent without delay after a period without requests."""
    max_response_bytes: int = attrs.field(default=134_217_728, validator=[POSITIVE, INTEGER])
    """The maximum size of a response in memory. It does not apply to streams."""
    session_margin: float = attrs.field(default=60.0, validator=POSITIVE)
    """How long before its expiry a token or session is renewed, in seconds, but at most half of its lifetime."""
    keep_alive: bool = attrs.field(default=False, validator=FLAG)
    """True if tokens and sessions are renewed in the background even if no calls are made."""
    circuit_failures: int = attrs.field(default=20, validator=NOT_NEGATIVE)
    """The number of consecutive attempts without a response after which a service counts as down. 0: never.

    Its calls then fail immediately with CircuitOpenError, except for one probe every `circuit_pause` seconds.
    """
    circuit_pause: float = attrs.field(default=10.0, validator=POSITIVE)
    """The time between two probes of a service that is down, in seconds."""
    retry: RetryPolicy = attrs.field(factory=RetryPolicy, validator=instance_of(RetryPolicy, "a RetryPolicy"))
    """Decides if, when and how often a failed attempt is tried again."""
    tls: ssl.SSLContext | None = attrs.field(default=None, repr=False, validator=_TLS)
    """The TLS context. None: use that of aiohttp, which accepts TLS 1.2 or newer, and reads the machine's trust store
    and SSL_CERT_FILE when aiohttp is imported.
    """
    proxy: str | None = attrs.field(default=None, repr=False, validator=_PROXY)
    """The URL of an HTTP proxy, possibly with user name and password. None: no proxy."""
    session_factory: SessionFactory | None = attrs.field(default=None, repr=False, validator=_SESSION_FACTORY)
    """A function that creates the aiohttp session. None: the package creates it.

    The session's own TLS and proxy settings are used if `tls` and `proxy` are None. Its connector must be a
    FreshConnector or have force_close=True. It must not set `auth` or `trust_env`. Its middlewares are not called,
    because a middleware could send a request twice.
    """
    close_session: bool = attrs.field(default=True, validator=FLAG)
    """True if closing the suite also closes the session of `session_factory`.

    Set this to False if other code uses the same session. Calls in progress are ended in both cases.
    """
    allow_insecure_http: bool = attrs.field(default=False, validator=FLAG)
    """True to permit http:// URLs of other machines. Those of this machine are always permitted."""
    converter: cattrs.Converter | None = attrs.field(default=None, repr=False, validator=_CONVERTER)
    """The cattrs converter for requests and responses. None: use the package's own.

    The suite calls `register_hooks` with it if necessary.
    """
    error_messages: Literal["hidden", "shown"] = attrs.field(default="hidden", validator=_ERROR_MESSAGES)
    """"shown" if the text of a ServiceError contains the service's message, which may contain patient data.

    Programs often log the texts of errors: show the messages only where such logs may contain patient data.
    """

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None, *, profile: str | None = None) -> Self:
        """Return settings from environment variables such as DIRECTSUITE_MESSAGE_URL, and from the settings file.

        The file is given by DIRECTSUITE_CONFIG. If that is not set, ~/.config/directsuite/config.toml is used if it
        exists. Variables take precedence over the profile, and the profile over the rest of the file.

        environ: the variables. None: use os.environ.
        profile: the name of a table `[profiles.NAME]` of the file. None: use DIRECTSUITE_PROFILE, if it is set.

        Raises ConfigurationError if the file or a setting is invalid.
        """
        from directsuite.config_file import Configuration  # imported only when it is used, to start faster

        return make_settings(cls, Configuration.read(environ, profile))

    @classmethod
    def from_toml(cls, path: str | PathLike[str], *, profile: str | None = None) -> Self:
        """Return settings from a TOML file, without environment variables.

        The keys are the parameters of Settings for numbers, texts and booleans, `retry_attempts`, `ca_bundle`,
        `client_certificate` and `client_key`. Credentials are ignored.

        profile: the name of a table `[profiles.NAME]` that takes precedence over the rest of the file, or None.

        Raises ConfigurationError if the file or a setting is invalid.
        """
        from directsuite.config_file import Configuration

        return make_settings(cls, Configuration.from_file(path, profile))


class SettingsOptions(TypedDict, total=False):
    """The parameters of Settings, as keyword arguments of `DirectSuite.from_env`."""

    signing_url: str | None
    fax_url: str | None
    message_url: str | None
    registration_url: str | None
    timeout: float
    attempt_timeout: float
    settle: float
    max_connections: int
    requests_per_second: float
    burst: int
    max_response_bytes: int
    session_margin: float
    keep_alive: bool
    circuit_failures: int
    circuit_pause: float
    retry: RetryPolicy
    tls: ssl.SSLContext | None
    proxy: str | None
    session_factory: SessionFactory | None
    close_session: bool
    allow_insecure_http: bool
    converter: cattrs.Converter | None
    error_messages: Literal["hidden", "shown"]


S = TypeVar("S", bound=Settings)

_PLAIN_TYPES = {"float", "int", "bool", "str | None", "Literal['hidden', 'shown']"}
PLAIN_SETTINGS: Mapping[str, str] = {
    **{
        each.name: str(each.type)
        for each in attrs.fields(Settings)
        if str(each.type) in _PLAIN_TYPES and each.name != "close_session"
    },
    "retry_attempts": "int",
}
"""The names and types of the settings in files and variables."""

_FLAG_VALUES = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}


def _parse_entry(entry: SettingEntry, kind: str) -> Any:
    """Return an entry's value: a variable's text is converted to the type `kind`, or unchanged if that fails."""
    if not entry.is_variable:
        return entry.value
    if kind == "bool":
        return _FLAG_VALUES.get(entry.value.lower(), entry.value)
    if kind in {"int", "float"}:
        with contextlib.suppress(ValueError):
            return int(entry.value) if kind == "int" else float(entry.value)
    return entry.value


@scrub_traceback
def make_settings(kind: type[S], configuration: Configuration, options: SettingsOptions | None = None) -> S:
    """Return settings of the class `kind`. Unknown variables are ignored.

    options: settings that replace those of the configuration.

    Raises ConfigurationError if the file has an unknown setting, or a value is invalid.
    """
    from directsuite.config_file import CERTIFICATES, IDENTITY, PREFIX, SECRETS

    known = PLAIN_SETTINGS.keys() | set(CERTIFICATES) | set(IDENTITY)
    for name, entry in configuration.items():
        if name in known or entry.is_variable:
            continue
        if name in SECRETS:
            raise ConfigurationError(
                f"{entry.origin}: {name} is a secret, which does not belong in the settings file: set "
                f"{name}_file to the path of a file that contains it, or set {PREFIX}{name.upper()}"
            )
        similar = find_similar(name, known)
        hint = f"did you mean {similar[0]}?" if similar else f"known: {', '.join(sorted(known))}, [profiles.NAME]"
        raise ConfigurationError(f"{entry.origin}: unknown setting {name}; {hint}")
    values = {
        name: _parse_entry(entry, PLAIN_SETTINGS[name])
        for name, entry in configuration.items()
        if name in PLAIN_SETTINGS
    }
    overrides: dict[str, Any] = {} if options is None else {**options}
    try:
        if (attempts := values.pop("retry_attempts", None)) is not None and "retry" not in overrides:
            values["retry"] = RetryPolicy(attempts=attempts)
        if "tls" not in overrides and (tls := configuration.make_tls_context()) is not None:
            values["tls"] = tls
        return kind(**values | overrides)
    except ConfigurationError as error:
        problem = error.explanation
    problem = f"retry_{problem}" if problem.startswith("attempts ") else problem
    name = problem.partition(" ")[0]
    if name not in configuration or name in overrides:
        raise ConfigurationError(problem)
    entry = configuration[name]
    problem = problem.replace("True or False", "true or false").removesuffix(", or None")  # Python's words
    if entry.is_variable and problem.endswith("allow_insecure_http to true"):
        problem += f", or {PREFIX}ALLOW_INSECURE_HTTP=true"
    raise ConfigurationError(f"{entry.origin}: {problem}")
