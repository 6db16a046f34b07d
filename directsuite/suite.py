"""DirectSuite, the entry point of the package."""

from __future__ import annotations

import copy
import functools
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self, Unpack, cast

import aiohttp

from directsuite.core.call import Endpoint, Environment
from directsuite.core.call_log import LOG_VARIABLE, configure_logging, is_configured
from directsuite.core.checks import Check, instance_of, with_methods
from directsuite.core.clock import Clock, SystemClock
from directsuite.core.credentials import LONG_FETCH_TIMEOUT, TokenCache, TokenSource, make_token_source
from directsuite.core.events import Events, Listener, SessionRenewed
from directsuite.core.limits import CircuitBreaker, Limits, LimitsProvider, LocalRateLimiter, RateLimiter
from directsuite.core.operation import Service
from directsuite.core.privacy import scrub_class
from directsuite.core.retry import RetryPolicy
from directsuite.core.session import Session
from directsuite.core.transport import Transport
from directsuite.errors import ConfigurationError
from directsuite.fax.service import Fax
from directsuite.messaging.service import Mailbox
from directsuite.registration.models import Login
from directsuite.registration.service import Registration, SessionSource
from directsuite.settings import Settings, SettingsOptions, make_settings
from directsuite.signing.service import Signing
from directsuite.wire.codec import Codec
from directsuite.wire.models import Secret, as_secret

if TYPE_CHECKING:  # settings files, OAuth and T-Users are imported only when they are used, to start faster
    from directsuite.config_file import Configuration
    from directsuite.messaging.sending import TUser
    from directsuite.oauth.grants import Token

_LOGGER = logging.getLogger("directsuite")
_LOGGER.addHandler(logging.NullHandler())  # no output until the program configures logging

_LOGIN_FETCH_MARGIN = 15.0  # seconds added to the timeout for a login, so that its own deadline ends it first


@scrub_class
class DirectSuite:
    """A client for the four services, with a shared pool of connections.

        async with DirectSuite(settings, token="...", login=Login("reseller", "...")) as suite:
            box = suite.mailbox("alice@direct.example.org", "...")
            print(await box.get_message_count())

    settings: the settings. None: use the defaults, which have no URLs.
    token: the token for signing and fax: a text, an async callable that returns one, a TokenSource, or an OAuth 2.0
        grant (ClientCredentials, RefreshToken, AuthorizationCode).
    login: the login for registration.
    listeners: functions that are called with each event. Events are also logged to the logger `directsuite`.
    clock: a clock for tests. Trackers and signing jobs that use the suite also use its clock.
    shared_limits: limits shared with other processes, which then keep to the settings' rate together and divide a
        number of connections among them. None: this suite has its own limits.

        async with SharedLimits(conninfo, processes=4, connections=20) as shared:  # of directsuite.sync.shared_limits
            async with DirectSuite(settings, shared_limits=shared) as suite:
                ...

    A suite can be created without a running event loop. Any number of tasks can use it, in the loop and process in
    which it is opened. It cannot be opened again after it was closed.

    Raises ConfigurationError if an argument is invalid.
    """

    signing: Signing
    fax: Fax
    registration: Registration

    def __init__(
        self,
        settings: Settings | None = None,
        token: Token | None = None,
        login: Login | None = None,
        *,
        listeners: Iterable[Listener] = (),
        clock: Clock | None = None,
        shared_limits: LimitsProvider | None = None,
    ) -> None:
        for name, check, argument in (
            ("settings", _SETTINGS, settings),
            ("login", _LOGIN, login),
            ("listeners", _LISTENERS, listeners),
            ("clock", _CLOCK, clock),
            ("shared_limits", _SHARED_LIMITS, shared_limits),
        ):
            check.require(name, argument)
        if os.environ.get(LOG_VARIABLE) and not is_configured():
            configure_logging()
        settings = Settings() if settings is None else settings
        clock = SystemClock() if clock is None else clock
        self._events = events = Events(listeners, _LOGGER)
        self._session = Session(
            tls=settings.tls,
            proxy=settings.proxy,
            factory=settings.session_factory,
            close_session=settings.close_session,
            clock=clock,
        )
        endpoints = _make_endpoints(settings, token, clock, events, shared_limits)
        environment = _make_environment(settings, self._session, clock, events)
        self._transport = Transport(endpoints, environment, retry=settings.retry)
        self._caches: list[TokenCache] = []
        self._session.token_caches = self._caches
        cache = functools.partial(
            TokenCache,
            clock=clock,
            margin=settings.session_margin,
            keep_alive=settings.keep_alive,
            emit=events.emit,
        )
        if token is not None:
            source, fetch_timeout = _make_token_source(self._transport, token, settings.attempt_timeout)
            tokens = cache(source, fetch_timeout=fetch_timeout)
            endpoints[Service.SIGNING].credentials = endpoints[Service.FAX].credentials = tokens
            self._caches.append(tokens)
        sessions: TokenCache | None = None
        if login is not None:
            sessions = cache(
                SessionSource(self._transport, login),
                in_header=False,
                fetch_timeout=settings.timeout + _LOGIN_FETCH_MARGIN,
                renewed_event=SessionRenewed,
            )
            endpoints[Service.REGISTRATION].credentials = sessions
            self._caches.append(sessions)
        self._timeout: float | None = None
        self._retry: RetryPolicy | None = None
        self.signing = Signing(self._transport)
        self.fax = Fax(self._transport)
        self.registration = Registration(self._transport, sessions, login)

    @classmethod
    def from_env(
        cls,
        environ: Mapping[str, str] | None = None,
        *,
        profile: str | None = None,
        token: Token | None = None,
        login: Login | None = None,
        listeners: Iterable[Listener] = (),
        clock: Clock | None = None,
        require: Sequence[Literal["signing", "fax", "message", "registration"]] = (),
        **options: Unpack[SettingsOptions],
    ) -> Self:
        """Return a suite with the settings of `Settings.from_env`, and the token and login from the same sources.

        The token and the password are read from the variables DIRECTSUITE_TOKEN and DIRECTSUITE_LOGIN_PASSWORD, or from
        files given by DIRECTSUITE_TOKEN_FILE, DIRECTSUITE_LOGIN_PASSWORD_FILE or the settings file. Such a file must
        contain only the secret, and must not be accessible to other users. If `token_url` is set instead, the suite
        requests tokens with OAuth 2.0 (guide `settings`).

        environ, profile: as for `Settings.from_env`.
        token, login: as for `DirectSuite`, instead of those of these sources. None: use these sources.
        listeners: functions that are called with each event.
        clock: a clock for tests, as for `DirectSuite`.
        require: the services that the program needs.
        options: parameters of Settings, such as `timeout=30`, that replace the settings of these sources.

        Raises ConfigurationError if a setting is invalid, or the URL, token or login of a required service is missing.
        For other services, the first call raises it.
        """
        from directsuite.config_file import Configuration

        _REQUIRED.require("require", require)
        configuration = Configuration.read(environ, profile)
        login = _read_login(configuration) if login is None else login
        settings = make_settings(Settings, configuration, options)
        if token is None:
            token = configuration.read_token(allow_insecure_http=settings.allow_insecure_http)
            if isinstance(token, Secret):
                origin = configuration.find_origin("token")
                if "token_url" in configuration:
                    origin += f", used instead of the OAuth client of {configuration.find_origin('token_url')}"
                token = make_token_source(token, origin)
        suite = cls(settings, token=token, login=login, listeners=listeners, clock=clock)
        suite._transport.empty_variables = configuration.find_empty_variables()
        suite._transport.require_services(_SERVICES[name] for name in require)
        return suite

    def with_options(self, *, timeout: float | None = None, retry: RetryPolicy | None = None) -> Self:
        """Return a view of this suite with a different timeout or retry policy for all services and mailboxes.

        It shares the connections, tokens and limits of this suite. Closing either closes both.

        timeout: seconds for each complete call. None: unchanged.
        retry: the retry policy. None: unchanged.

        Raises InvalidArgumentError if either is invalid.
        """
        suite = copy.copy(self)
        suite.signing = self.signing.with_options(timeout=timeout, retry=retry)
        suite.fax = self.fax.with_options(timeout=timeout, retry=retry)
        suite.registration = self.registration.with_options(timeout=timeout, retry=retry)
        suite._timeout = self._timeout if timeout is None else timeout
        suite._retry = self._retry if retry is None else retry
        return suite

    def mailbox(self, username: str, password: str | Secret) -> Mailbox:
        """Return a client for a Direct mailbox, without a request.

        Raises InvalidArgumentError if `username` is not an address.
        """
        password = as_secret(password)
        box = Mailbox(self._transport, username, password)
        return box.with_options(timeout=self._timeout, retry=self._retry)

    def tuser(self, username: str, password: str | Secret, direct_addr: str) -> TUser:
        """Return a client for a T-User, without a request.

        username, password: the credentials of the T-User.
        direct_addr: the Direct address of the user for whom the T-User acts.

        Raises InvalidArgumentError if `direct_addr` is not an address.
        """
        password = as_secret(password)
        from directsuite.messaging.sending import TUser

        user = TUser(self._transport, username, password, direct_addr)
        return user.with_options(timeout=self._timeout, retry=self._retry)

    def __repr__(self) -> str:
        services = [service.value for service in Service if self._transport.has_url(service)]
        return f"<DirectSuite of {', '.join(services) or 'no services'}: {self._session.state}>"

    @property
    def environment(self) -> Environment:
        """The suite's clock, session and events. For internal use."""
        return self._transport.environment

    def add_listener(self, listener: Listener) -> None:
        """Call a function with each event from now on.

        If it raises an exception, the type of the exception is logged, and the call that caused the event continues.
        Raises ConfigurationError if the listener is not callable, or is a coroutine function.
        """
        self._events.add(listener)

    def remove_listener(self, listener: Listener) -> None:
        """Stop calling a listener. Do nothing if it was not added."""
        self._events.remove(listener)

    async def __aenter__(self) -> Self:
        await self._session.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose(grace=0.0 if kind is not None else 5.0)

    async def aclose(self, grace: float = 5.0) -> None:
        """Close the suite. Reject new calls, wait up to `grace` seconds for calls in progress, then end them.

        Deleting the documents of `signing.sign_pdf` and `signing.stored` gets up to 5 more seconds. So does fetching a
        token if cancelling it would lose a single-use token. If the suite is already being closed, wait until that has
        ended.
        """
        await self._session.close(grace)


_SETTINGS = instance_of(Settings, "a Settings").allow_none()
_LOGIN = instance_of(Login, "a Login: DirectSuite(login=Login(username, password))").allow_none()
_LISTENERS = instance_of(Iterable, "functions that take an event, in a list or another iterable")
_CLOCK = with_methods(
    "a clock, with the methods monotonic() and async sleep(seconds)", "monotonic", "sleep"
).allow_none()
_SERVICES = {service.url_setting.removesuffix("_url"): service for service in Service if service is not Service.OAUTH}
"""The services by the name of the setting of their URL, without `_url`."""
_REQUIRED = Check(
    f"some of {', '.join(_SERVICES)}, in a list or tuple",
    lambda value: isinstance(value, list | tuple) and all(name in [*_SERVICES] for name in cast("list[object]", value)),
)
_SHARED_LIMITS = with_methods("a SharedLimits", "rate_limiter").allow_none()


def _make_endpoints(
    settings: Settings, token: Token | None, clock: Clock, events: Events, shared: LimitsProvider | None
) -> dict[Service, Endpoint]:
    urls: dict[Service, str | None] = {
        service: getattr(settings, service.url_setting) for service in _SERVICES.values()
    }
    if (token_url := _find_token_url(token, settings)) is not None:
        urls[Service.OAUTH] = token_url
    return {
        service: Endpoint(service=service, base_url=url, limits=_make_limits(service, settings, clock, events, shared))
        for service, url in urls.items()
    }


def _make_environment(settings: Settings, session: Session, clock: Clock, events: Events) -> Environment:
    return Environment(
        session=session,
        clock=clock,
        events=events,
        codec=Codec(settings.converter),
        timeout=settings.timeout,
        attempt_timeout=settings.attempt_timeout,
        settle=settings.settle,
        max_response_bytes=settings.max_response_bytes,
        shows_messages=settings.error_messages == "shown",
        client_timeout=aiohttp.ClientTimeout(total=None, sock_connect=settings.attempt_timeout),
    )


def _find_token_url(token: Token | None, settings: Settings) -> str | None:
    if token is None or isinstance(token, str | Secret):
        return None
    from directsuite.oauth import grants

    if not isinstance(token, grants.Grant):
        return None
    grants.validate_grant(token, allow_insecure_http=settings.allow_insecure_http)
    return token.token_url


def _make_token_source(transport: Transport, token: Token, attempt_timeout: float) -> tuple[TokenSource, float]:
    """Return the source, and the timeout of its fetches."""
    long_timeout = max(attempt_timeout, LONG_FETCH_TIMEOUT)
    if isinstance(token, str | Secret):
        return make_token_source(token), long_timeout
    from directsuite.oauth import grants, source

    if isinstance(token, grants.Grant):
        return source.make_source(transport, token), long_timeout
    made = make_token_source(token)
    return made, long_timeout if getattr(made, "single_use", False) else attempt_timeout


def _make_limits(
    service: Service, settings: Settings, clock: Clock, events: Events, shared: LimitsProvider | None
) -> Limits:
    per_second, burst, connections = settings.requests_per_second, settings.burst, settings.max_connections
    rate: RateLimiter
    if shared is None:
        rate = LocalRateLimiter(per_second, burst, clock)
    else:
        rate = shared.rate_limiter(service.value, per_second=per_second, burst=burst, clock=clock)
        connections = min(connections, shared.connections or connections)
    breaker = CircuitBreaker(
        service=service.value,
        failures=settings.circuit_failures,
        pause=settings.circuit_pause,
        clock=clock,
        emit=events.emit,
    )
    return Limits(service.value, connections, rate, breaker, events.emit)


def _read_login(configuration: Configuration) -> Login | None:
    username, password = configuration.get_text("login_username"), configuration.read_secret("login_password")
    if bool(username) != bool(password):
        raise ConfigurationError(
            "set both DIRECTSUITE_LOGIN_USERNAME and DIRECTSUITE_LOGIN_PASSWORD, or neither; "
            "or login_username and login_password_file in the settings file"
        )
    return Login(username, password) if username and password else None
