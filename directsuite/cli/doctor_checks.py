"""What `directsuite doctor` checks: this machine, the way to a server, what the server answers, and credentials.

of_this_machine   versions, extras, trusted certificates, proxy variables; nobody is asked
Route             name ──► connection ──► TLS
HttpAnswer        answer ──► clock
Credentials       token, login, mailbox
"""

from __future__ import annotations

import asyncio
import enum
import json
import os
import platform
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, cast

import aiohttp
import attrs
from yarl import URL

from directsuite._version import __version__
from directsuite.cli.command import request_listeners
from directsuite.cli.credentials import MailboxAccess
from directsuite.cli.errors import RENEW, ending_of
from directsuite.cli.process import EXTRAS, missing
from directsuite.core.failures import reason_of
from directsuite.core.files import OwnThread
from directsuite.core.retry import RetryPolicy
from directsuite.errors import (
    AuthenticationError,
    BadRequestError,
    ConnectFailedError,
    DirectSuiteError,
    PermissionDeniedError,
    ResponseDecodeError,
    ServiceError,
)
from directsuite.registration.models import Login
from directsuite.secret import Secret
from directsuite.settings import Settings
from directsuite.suite import DirectSuite

MACHINE = "this machine"

_LIBRARIES = ("aiohttp", "attrs", "cattrs", "msgspec", "oauthlib", "pybase64", "tenacity", "yarl")
_PROXIES = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")
_OF_OTHERS = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")

_SOON = 21  # days in which a certificate should be renewed
_DAY = 86_400
_FOR_EACH = 0.8  # of the time for all addresses together: what is left tells of it

_UNTRUSTED = (
    "it is signed by nobody whom this machine trusts: if the service has an authority of its own, "
    "have SSL_CERT_FILE name that one's certificate"
)
_CERTIFICATES = {  # X509_V_ERR_… of OpenSSL
    2: _UNTRUSTED,
    18: _UNTRUSTED,
    19: _UNTRUSTED,
    20: _UNTRUSTED,
    21: _UNTRUSTED,
    9: "it isn't valid yet: set this machine's clock, or tell the service's provider",
    10: "it has expired: tell the service's provider, or set this machine's clock if that is wrong",
    62: "it is for another host: check the host in the URL",
    64: "it is for another address: check the host in the URL",
}
_TOO_OLD = ("UNSUPPORTED_PROTOCOL", "TLSV1_ALERT_PROTOCOL_VERSION", "VERSION_TOO_LOW", "NO_PROTOCOLS_AVAILABLE")
_NO_TLS = ("WRONG_VERSION_NUMBER", "PACKET_LENGTH_TOO_LONG", "HTTP_REQUEST", "RECORD_LAYER_FAILURE")
_SILENT = "no answer"

_SKEW = 60.0  # seconds: sessions and tokens run out by the server's clock, and are renewed by this machine's
_BROKEN = (502, 503, 504)

_NO_DOCUMENT = "00000000-0000-0000-0000-000000000000"
_NO_NUMBER = "0000000000"
_NOWHERE = "directsuite-doctor"
"""A path that no service has."""


class Result(enum.StrEnum):
    """How a check ended."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    NOT_CHECKED = "not checked"


@attrs.frozen
class Finding:
    """What one check has found."""

    result: Result
    sentence: str
    """What is, or what is wrong and what to do."""
    details: Mapping[str, Any] = attrs.field(factory=dict[str, Any])
    """Numbers and names for programs."""
    subject: str = ""
    """A service, or this machine."""
    check: str = ""

    def of(self, subject: str, check: str) -> Finding:
        """The same finding, of this check of this subject."""
        return attrs.evolve(self, subject=subject, check=check)


def ok(sentence: str, **details: Any) -> Finding:
    """All is well."""
    return Finding(Result.OK, sentence, details)


def warning(sentence: str, **details: Any) -> Finding:
    """It works, and may not for long or not for all."""
    return Finding(Result.WARNING, sentence, details)


def failed(sentence: str, **details: Any) -> Finding:
    """It doesn't work."""
    return Finding(Result.FAILED, sentence, details)


def not_checked(sentence: str, **details: Any) -> Finding:
    """Nobody knows, and why not."""
    return Finding(Result.NOT_CHECKED, sentence, details)


def of_this_machine(environment: Mapping[str, str], *, uses_proxy: bool, uses_tls: bool) -> Iterator[Finding]:
    """What is found without asking anybody."""
    yield _versions().of(MACHINE, "versions")
    yield _extras().of(MACHINE, "extras")
    if uses_tls:
        yield _trusted(environment).of(MACHINE, "trusted certificates")
    yield _proxies(environment, uses_proxy=uses_proxy).of(MACHINE, "proxy variables")


def _versions() -> Finding:
    versions = {"directsuite": __version__, "Python": platform.python_version(), "OpenSSL": _openssl()}
    absent = list[str]()
    for library in _LIBRARIES:
        try:
            versions[library] = version(library)
        except PackageNotFoundError:
            absent.append(library)
    said = ", ".join(f"{name} {number}" for name, number in versions.items())
    if absent:
        return failed(f"{said}; {', '.join(absent)} is missing: pip install directsuite", versions=versions)
    return ok(said, versions=versions)


def _openssl() -> str:
    return ssl.OPENSSL_VERSION.split()[1] if " " in ssl.OPENSSL_VERSION else ssl.OPENSSL_VERSION


def _extras() -> Finding:
    lacks = {extra: missing(libraries) for extra, libraries in EXTRAS.items()}
    installed = [extra for extra, absent in lacks.items() if not absent]
    begun = [extra for extra, absent in lacks.items() if absent and len(absent) < len(EXTRAS[extra])]
    said = f"installed: {', '.join(installed) or 'none'}"
    if begun:
        lacking = ", ".join(library for extra in begun for library in lacks[extra])
        remedy = f"pip install 'directsuite[{','.join(begun)}]'"
        return warning(f"{said}; {', '.join(begun)} lacks {lacking}: {remedy}", installed=installed, partly=begun)
    absent = [extra for extra in EXTRAS if extra not in installed]
    return ok(f"{said}; not installed: {', '.join(absent)}" if absent else said, installed=installed)


def _trusted(environment: Mapping[str, str]) -> Finding:
    """Where the certificates of authorities are."""
    for name, is_there in (("SSL_CERT_FILE", Path.is_file), ("SSL_CERT_DIR", Path.is_dir)):
        named = environment.get(name)
        if named and not is_there(Path(named)):
            return failed(f"{name} names what isn't there, so that no certificate is trusted: correct or unset it")
    if environment.get("SSL_CERT_FILE") and not _holds_certificates(environment["SSL_CERT_FILE"]):
        return failed("the file of SSL_CERT_FILE holds no certificate in PEM: correct or unset it")
    paths: Any = ssl.get_default_verify_paths()  # None where there are none, whatever their types promise
    place: str | None = paths.cafile or paths.capath
    if place is None and os.name != "nt":  # Windows keeps them elsewhere
        return failed("this machine has no certificates that it trusts: install its package ca-certificates")
    ignored = [name for name in _OF_OTHERS if environment.get(name)]
    if ignored and not environment.get("SSL_CERT_FILE"):
        return warning(f"{' and '.join(ignored)} is for other programs: what they name goes into SSL_CERT_FILE")
    return ok(f"those of {place}" if place else "those of the system", place=place)


def _holds_certificates(file: str) -> bool:
    try:
        ssl.create_default_context(cafile=file)
    except (OSError, ssl.SSLError):
        return False
    return True


def _proxies(environment: Mapping[str, str], *, uses_proxy: bool) -> Finding:
    """Their values may hold passwords, and are not shown."""
    names = [name for name in _PROXIES if environment.get(name)]
    if not names:
        return ok("none is set", variables=names)
    if uses_proxy:
        return ok(f"{', '.join(names)} is not looked at: the proxy of the settings is used", variables=names)
    return warning(
        f"{', '.join(names)} is not looked at: if the services are behind a proxy, "
        'put proxy = "http://proxy.example.org:3128" into the settings file',
        variables=names,
    )


class Route:
    """The way to one server, step by step. url: its path doesn't matter."""

    def __init__(self, url: URL, *, limit: float) -> None:
        self._host = url.raw_host or ""
        self._port = url.port or 443
        self._secure = url.scheme == "https"
        self._limit = limit
        self._addresses = list[str]()
        self._open = ""
        self._writer: asyncio.StreamWriter | None = None  # the connection that TLS is spoken on

    def close(self) -> None:
        """End the connection."""
        if self._writer is not None:
            self._writer.transport.abort()

    async def name(self) -> Finding:
        """Whether its name has an address."""
        thread = OwnThread()  # a resolver may take its time, and can't be interrupted
        try:
            resolved = await thread.start(
                socket.getaddrinfo, self._host, self._port, socket.AF_UNSPEC, socket.SOCK_STREAM
            )
        except (OSError, UnicodeError):
            return failed(
                f"{self._host} has no address: check the host in the URL, and whether this machine is online",
                host=self._host,
            )
        finally:
            thread.end()
        self._addresses = list(dict.fromkeys(str(each[4][0]) for each in resolved))
        about = {"host": self._host, "addresses": self._addresses}
        if self._addresses == [self._host]:
            return ok(f"{self._host} is an address itself", **about)
        return ok(f"{self._host} is {', '.join(self._addresses)}", **about)

    async def connection(self) -> Finding:
        """Whether somebody listens there."""
        tried = await asyncio.gather(*(self._connected(address) for address in self._addresses))
        answering = [address for address, problem in zip(self._addresses, tried, strict=True) if problem is None]
        silent = [address for address, problem in zip(self._addresses, tried, strict=True) if problem == _SILENT]
        about = {"port": self._port, "answering": answering}
        if not answering:
            return failed(f"{self._problem(tried)}, at port {self._port} of {self._host}", **about)
        self._open = self._open or answering[0]
        if silent:
            return warning(
                f"{', '.join(silent)} doesn't answer, which makes connections slow: "
                "tell the service's provider, or see to this machine's network (IPv6?)",
                **about,
            )
        return ok(f"port {self._port} is open", **about)

    async def tls(self) -> Finding:
        """Whether it is who it should be, and for how long its certificate says so."""
        writer = self._writer
        if not self._secure or writer is None:
            if self._open and self._is_here():
                return not_checked("the URL begins with http://, on this machine")
            return warning("the URL begins with http://: all that is sent can be read on the way; use https://")
        try:
            context = await asyncio.to_thread(ssl.create_default_context)
            await writer.start_tls(context, server_hostname=self._host, ssl_handshake_timeout=self._limit)
        except ssl.SSLCertVerificationError as error:
            return failed(f"its certificate isn't accepted: {_of_certificate(error)}", code=error.verify_code)
        except ssl.SSLError as error:
            return failed(_of_handshake(error), reason=error.reason)
        except OSError as error:
            return failed(
                f"the server broke off the TLS handshake ({reason_of(error)}): check scheme and port in the URL; "
                "if they are right, ask its provider whether it speaks TLS 1.2 or newer"
            )
        tls: ssl.SSLObject = writer.get_extra_info("ssl_object")
        certificate = tls.getpeercert() or {}
        return _of_accepted(tls.version() or "TLS", str(certificate.get("notAfter", "")))

    async def _connected(self, address: str) -> str | None:
        """Why there is no connection to this address."""
        try:
            async with asyncio.timeout(_FOR_EACH * self._limit):
                _, writer = await asyncio.open_connection(address, self._port)
        except TimeoutError:
            return _SILENT
        except OSError as error:
            return reason_of(error)
        if self._writer is None and self._secure:
            self._writer, self._open = writer, address
        else:
            writer.transport.abort()
        return None

    def _problem(self, tried: Sequence[str | None]) -> str:
        reasons = set(tried)
        if reasons == {_SILENT}:
            return "nobody answers: a firewall may be in the way, or a proxy is needed; check host and port in the URL"
        refused = " and ".join(sorted(each for each in reasons if each))
        return f"there is no connection ({refused}): check host and port in the URL, and whether the service runs"

    def _is_here(self) -> bool:
        return self._open.startswith("127.") or self._open == "::1"


def _of_certificate(error: ssl.SSLCertVerificationError) -> str:
    return _CERTIFICATES.get(error.verify_code, f"{error.verify_message}: ask the service's provider")


def _of_handshake(error: ssl.SSLError) -> str:
    reason = str(error.reason)
    if reason in _TOO_OLD:
        return "the server speaks no TLS 1.2 or newer, without which nothing is sent: tell the service's provider"
    if reason in _NO_TLS:
        return "the server speaks no TLS at this port: check scheme and port in the URL"
    return f"the TLS handshake failed ({reason}): ask the service's provider"


def _of_accepted(version: str, not_after: str) -> Finding:
    if not not_after:
        return ok(version, version=version)
    days = int((ssl.cert_time_to_seconds(not_after) - time.time()) // _DAY)
    said = f"{version}; its certificate is accepted, and holds for {days} more day{'s' * (days != 1)}"
    if days < _SOON:
        return warning(f"{said}: have the service's provider renew it", version=version, days=days)
    return ok(said, version=version, days=days)


class HttpAnswer:
    """What a server answers to a HEAD request, which carries no secret, and what time it has. proxy: its URL."""

    def __init__(self, url: str, *, proxy: str | None) -> None:
        self._url = url
        self._proxy = proxy
        self._date: str | None = None
        self._at = datetime.now(UTC)

    async def answer(self) -> Finding:
        """Whether something speaks HTTP there."""
        try:
            async with (
                aiohttp.ClientSession(
                    # aiohttp's own context is as old as its import: this one is made as a suite's is.
                    connector=aiohttp.TCPConnector(ssl=await asyncio.to_thread(ssl.create_default_context)),
                    cookie_jar=aiohttp.DummyCookieJar(),
                    headers={"User-Agent": f"directsuite/{__version__}", "Cache-Control": "no-cache"},
                ) as session,
                session.head(self._url, allow_redirects=False, proxy=self._proxy) as response,
            ):
                self._date, self._at = response.headers.get("Date"), datetime.now(UTC)
                return _of_status(response.status)
        except aiohttp.ClientHttpProxyError as error:
            if error.status == 407:
                return failed("the proxy asks for a password: put it into proxy of the settings, as in http://name:…@")
            return failed(f"the proxy refuses the connection (HTTP {error.status}): ask who runs it")
        except aiohttp.ClientProxyConnectionError:
            return failed("the proxy of the settings can't be reached: check its URL")
        except aiohttp.ClientConnectorCertificateError:
            return failed(
                "the service's certificate, or that of a proxy in its place, isn't accepted: if an authority of your "
                "own signs it, have SSL_CERT_FILE name that one's certificate"
            )
        except (aiohttp.ClientError, ssl.SSLError, OSError, ValueError) as error:
            return failed(f"what listens there doesn't answer as HTTP does ({type(error).__name__}): check the URL")

    async def clock(self) -> Finding:
        """Whether this machine's clock and the server's agree."""
        there = _moment(self._date)
        if there is None:
            return not_checked("the server doesn't tell the time")
        seconds = (there - self._at).total_seconds()
        if abs(seconds) <= _SKEW:
            return ok("this machine's clock agrees with the server's", seconds=round(seconds))
        way = "behind" if seconds > 0 else "ahead of"
        return warning(
            f"this machine's clock is {_length(abs(seconds))} {way} the server's, so that tokens and sessions end at "
            "other times than is thought: set it, by NTP for one",
            seconds=round(seconds),
        )


def _of_status(status: int) -> Finding:
    if status in _BROKEN:
        return warning(f"HTTP {status}: the service is down or overloaded; try again later", status=status)
    if 300 <= status < 400:
        return warning(
            f"HTTP {status}: it redirects, which is not followed; give the URL that it leads to", status=status
        )
    return ok("an HTTP server answers", status=status)


def _moment(date: str | None) -> datetime | None:
    try:
        there = parsedate_to_datetime(date or "")
    except ValueError:
        return None
    return there if there.tzinfo is not None else there.replace(tzinfo=UTC)


def _length(seconds: float) -> str:
    for unit, length in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} seconds"


@attrs.frozen(kw_only=True)
class Credentials:
    """Whether a service takes the token, the login or the mailbox's password: one request each, which changes nothing.

    signing         GetDocInfo of a document that nobody has: it is refused for that, or for the token
    fax             getMultipleMessageInfo of a number that nobody has
    registration    login
    messaging       GetMessageCount of INBOX

    limit: seconds for each request.
    """

    settings: Settings
    limit: float

    async def signing(self, token: Secret) -> Finding:
        """Whether the signing service takes the token."""

        async def ask(suite: DirectSuite) -> object:
            """Refused, as a rule."""
            return await suite.signing.with_options(**self._once).get_doc_info(_NO_DOCUMENT)

        return await self._token("signing", token, ask)

    async def fax(self, token: Secret) -> Finding:
        """Whether the fax service takes the token."""

        async def ask(suite: DirectSuite) -> object:
            """An empty list, or refused."""
            return await suite.fax.with_options(**self._once).get_multiple_message_info(_NO_NUMBER)

        return await self._token("fax", token, ask)

    async def registration(self, login: Login) -> Finding:
        """Whether the registration service takes the login."""
        try:
            async with DirectSuite(self.settings, login=login, listeners=request_listeners()) as suite:
                await suite.registration.with_options(**self._once).login()
        except AuthenticationError:
            return failed("the service refuses the login: check DIRECTSUITE_LOGIN_USERNAME, and its password")
        except DirectSuiteError as error:
            return failed(_advice(error, "registration"))
        return ok("the login is accepted")

    async def mailbox(self, access: MailboxAccess) -> Finding:
        """Whether the messaging service takes the mailbox's password."""
        try:
            async with DirectSuite(self.settings, listeners=request_listeners()) as suite:
                box = suite.mailbox(access.address, access.password)
                await box.with_options(**self._once).get_message_count()
        except AuthenticationError:
            return failed("the service refuses the mailbox: check its address, and that the password belongs to it")
        except DirectSuiteError as error:
            return failed(_advice(error, "message"))
        return ok("the mailbox's password is accepted")

    async def _token(self, service: str, token: Secret, ask: Callable[[DirectSuite], Awaitable[object]]) -> Finding:
        error = await self._answer(self.settings, token, ask)
        if isinstance(error, AuthenticationError):
            return failed(RENEW)
        if isinstance(error, PermissionDeniedError):
            if service == "fax":  # the number that was asked for is nobody's
                return warning(
                    "the service knows the token, and refuses to tell of a number that isn't yours; "
                    "if it does so for yours, ask its provider for a token that may read faxes"
                )
            return failed("the service knows the token, which may not do this: ask its provider for one that may")
        if isinstance(error, ServiceError) and error.status == 404:
            return await self._not_found(service, token, ask, error)
        if error is None or isinstance(error, BadRequestError):
            return ok("the token is accepted")
        return failed(_advice(error, service))

    async def _not_found(
        self, service: str, token: Secret, ask: Callable[[DirectSuite], Awaitable[object]], error: ServiceError
    ) -> Finding:
        """404 is for a path that there isn't, and for some services for a document or number, too: which is it?"""
        name = f"{service}_url"
        url: dict[str, Any] = {name: f"{getattr(self.settings, name)}/{_NOWHERE}"}
        elsewhere = attrs.evolve(self.settings, **url)
        other = await self._answer(elsewhere, token, ask)
        same = isinstance(other, ServiceError) and _said(other) == _said(error)
        return failed(_advice(error, service)) if same else ok("the token is accepted")

    async def _answer(
        self, settings: Settings, token: Secret, ask: Callable[[DirectSuite], Awaitable[object]]
    ) -> DirectSuiteError | None:
        try:
            async with DirectSuite(settings, token=token, listeners=request_listeners()) as suite:
                await ask(suite)
        except DirectSuiteError as error:
            return error
        return None

    @property
    def _once(self) -> dict[str, Any]:
        return {"timeout": self.limit, "retry": RetryPolicy.none()}


def _said(error: ServiceError) -> tuple[object, ...]:
    """The status, and what the service's own body says, but for the path: both `error` and `description`."""
    try:
        body: object = json.loads(error.body)
    except (ValueError, RecursionError):
        body = None
    members = cast("dict[str, object]", body) if isinstance(body, dict) else {}
    texts = [str(members.get(name)).replace(f"/{_NOWHERE}", "") for name in ("error", "description")]
    return error.status, *texts


def _advice(error: DirectSuiteError, service: str) -> str:
    """The sentence that says what to do about an error."""
    if (isinstance(error, ServiceError) and error.status == 404) or isinstance(error, ResponseDecodeError):
        return f"what answers there isn't this service: check the path of DIRECTSUITE_{service.upper()}_URL"
    return ending_of(error, advice={ConnectFailedError: "see to what the checks before it say, and try again"})[1]
