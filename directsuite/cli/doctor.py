"""`directsuite doctor`: find what prevents this machine from using the services, and what to do about it.

    this machine   settings, variables, versions, proxy variables
    each service   connection ──► clock ──► token, login or mailbox

If a check of a service fails, those after it are not run. Nothing is saved, sent or changed.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import os
import platform
import socket
import ssl
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache, partial
from importlib.metadata import version
from typing import Any, TypeVar

import aiohttp
import attrs
import msgspec
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

import directsuite as ds
from directsuite.cli import credentials
from directsuite.cli.command import Work, make_request_listeners
from directsuite.cli.config import find_unknown_variables
from directsuite.cli.conformance import Specification
from directsuite.cli.credentials import MailboxAccess, find_in_keyring
from directsuite.cli.deep import DeepExamination, DoctorOptions
from directsuite.cli.errors import (
    HINT_CHECK_CLIENT,
    HINT_RENEW_CREDENTIAL,
    Advice,
    UsageError,
    describe_secret_source,
    exit_for_error,
    explain_error,
    explain_file_errors,
    require_writable_folder,
    with_value,
)
from directsuite.cli.options import make_app
from directsuite.cli.output import show_json, show_progress, show_table
from directsuite.cli.process import ExitStatus, echo_err, require_extra
from directsuite.config_file import Configuration, read_secret_file
from directsuite.core.checks import find_url_problem
from directsuite.core.facade import Facade
from directsuite.core.files import create_file, run_in_thread
from directsuite.core.operation import Operation
from directsuite.core.outcome import convert_exception
from directsuite.fax.operations import GET_MULTIPLE_MESSAGE_INFO
from directsuite.messaging.operations import GET_MESSAGE_COUNT
from directsuite.registration.operations import LOGIN
from directsuite.sandbox.quirks import OperationReport, Report
from directsuite.settings import SERVICES
from directsuite.signing.operations import GET_DOC_INFO
from directsuite.wire.values import read_http_date

app = make_app("doctor", "", "--timeout 5 --json", "--deep --report differences.json")

T = TypeVar("T")

_CREDENTIALS = {"signing": "token", "fax": "token", "message": "mailbox", "registration": "login"}
_DEEP_OPTIONS = ("fax_number", "document", "patient", "proofing_id", "tuser", "tuser_password_file", "report")
_LIBRARIES = ("aiohttp", "attrs", "cattrs", "msgspec", "oauthlib", "pybase64", "tenacity", "yarl")
_PROXY_VARIABLES = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")
_MIN_DAYS = 21  # a certificate that is valid for fewer days should be renewed
_MAX_CERTIFICATE_SECONDS = 3.0  # for an additional connection that only shows how long the certificate is valid
_MAX_SKEW = 60.0  # seconds; tokens and sessions expire by the server's clock, and are renewed by this machine's
_MISSING_PATH = "/directsuite-doctor"
"""A path that no service has."""
_FAX_NUMBER = "0000000000"  # not a valid number
_CALLS: Mapping[str, tuple[Operation[Any], Callable[[Any], Awaitable[object]]]] = {
    # No document has this id.
    "signing": (GET_DOC_INFO, lambda facade: facade.get_doc_info("00000000-0000-0000-0000-000000000000")),
    "fax": (GET_MULTIPLE_MESSAGE_INFO, lambda facade: facade.get_multiple_message_info(_FAX_NUMBER)),
    "message": (GET_MESSAGE_COUNT, lambda facade: facade.get_message_count()),
    "registration": (LOGIN, lambda facade: facade.login()),
}
"""The request with which a service checks a credential: its operation, and the call."""


class Result(enum.StrEnum):
    """The result of a check."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    NOT_CHECKED = "not checked"


@attrs.frozen
class Finding:
    """The finding of one check."""

    result: Result
    sentence: str
    """The state of what was checked, then advice if something is wrong."""
    subject: str = ""
    """A service, the proxy, or this machine."""
    check: str = ""


Check = tuple[str, Callable[[], Awaitable[Finding]]]
"""The name of a check, and the check."""

ok = partial(Finding, Result.OK)
warning = partial(Finding, Result.WARNING)
failed = partial(Finding, Result.FAILED)
not_checked = partial(Finding, Result.NOT_CHECKED)


@app.default
def doctor(*, options: DoctorOptions = DoctorOptions()) -> Work:
    """Find problems, and explain how to fix them.

    The command checks this machine's settings, the connection to each service and its clock, and whether each service
    accepts your token, login or mailbox password. Nothing is saved, sent or changed. Exit status 0 means that no check
    failed.

    With --deep it also calls each read-only operation that your credentials allow, and reports how the responses differ
    from the OpenAPI document of the services, as paths and types without values.
    """
    if not options.deep and any(getattr(options, name) is not None for name in _DEEP_OPTIONS):
        names = ", ".join(f"--{name.replace('_', '-')}" for name in _DEEP_OPTIONS)
        raise UsageError(f"These options need --deep: {names}.")
    if (options.tuser is None) != (options.tuser_password_file is None):
        raise UsageError("--tuser and --tuser-password-file must be given together.")
    if options.report is not None:  # otherwise reported after the examination
        if os.path.lexists(options.report):
            raise UsageError(f"{with_value('--report', options.report)} exists already. Name a new file.")
        require_writable_folder("--report", options.report)
    settings, finding = _read_settings()
    missing_url = "The settings are invalid: see the check of the settings."
    if settings is not None:
        missing_url = "There is no URL. If you use this service, set DIRECTSUITE_{service}_URL."
    settings = settings or ds.Settings()
    machine = [("settings", finding), *_check_machine(settings, os.environ)]
    findings = [attrs.evolve(each, subject="this machine", check=name) for name, each in machine]
    return _examine(options, settings, _find_credentials(options, settings), findings, missing_url)


def _read_settings() -> tuple[ds.Settings | None, Finding]:
    """Return the settings, None if they are invalid."""
    try:
        settings = ds.Settings.from_env()
    except ds.ConfigurationError as error:
        return None, failed(explain_error(error))
    if not any(getattr(settings, f"{service}_url") for service in SERVICES):
        text = "Set DIRECTSUITE_MESSAGE_URL, or the same with SIGNING, FAX or REGISTRATION, or use the settings file."
        return settings, failed(f"No service has a URL. {text}")
    return settings, ok("The environment and the settings file are valid.")


def _find(is_given: Callable[[], object], read: Callable[[], T], advice: str) -> T | Finding:
    """Return a credential; if it is missing or invalid, the finding with the reason."""
    try:
        return read() if is_given() else not_checked(advice)
    except UsageError as error:
        return failed(str(error))
    except ds.ConfigurationError as error:
        return failed(explain_error(error))


_NOT_CHECKED_TEXT = "Refresh tokens are not checked, because each use may replace them. Run a command of the service."


def _find_credentials(options: DoctorOptions, settings: ds.Settings) -> Mapping[str, Any]:
    """Return the credentials, or a Finding of each that is missing or invalid.

    A password is requested only for a named mailbox or login with a URL.
    """
    read_configuration = cache(Configuration.read)
    token = _find(
        lambda: (
            options.token_file
            or read_configuration().read_token(allow_insecure_http=settings.allow_insecure_http)
            or find_in_keyring("token")
        ),
        lambda: credentials.read_token(options.token_file),
        "There is no token. Set DIRECTSUITE_TOKEN, or give --token-file FILE.",
    )
    return {
        # Each check opens a suite, but a refresh token must be used in only one suite at a time.
        "token": not_checked(_NOT_CHECKED_TEXT) if isinstance(token, ds.RefreshToken) else token,
        "login": _find(
            lambda: settings.registration_url and (options.login or read_configuration().get_text("login_username")),
            lambda: credentials.read_login(options.login, options.login_password_file),
            f"There is no login. Set {credentials.LOGIN_VAR}, or give --login USERNAME.",
        ),
        "mailbox": _find(
            lambda: settings.message_url and (options.mailbox or read_configuration().get_text("mailbox")),
            lambda: credentials.get_mailbox_access(options.mailbox, options.password_file, settings=settings),
            f"No mailbox is named. Set {credentials.MAILBOX_VAR}, or give --mailbox ADDRESS.",
        ),
    }


async def _examine(
    options: DoctorOptions,
    settings: ds.Settings,
    found: Mapping[str, Any],
    findings: list[Finding],
    missing_url: str,
) -> int:
    """Add findings about the services, and print all. Return 1 if a check failed or responses differ, else 0.

    missing_url: the finding for a service without a URL.
    """
    reports = None
    async with show_progress("examining"):
        checking = (_check_service(each, options, settings, found, missing_url) for each in SERVICES)
        for checked in await asyncio.gather(*checking):
            findings += checked
        if options.deep:
            reports = await _examine_deeply(options, settings, found)
    counts = Counter(each.result for each in findings)
    failures, warnings = counts[Result.FAILED], counts[Result.WARNING]
    if options.json:
        checks = [attrs.asdict(each) for each in findings]
        document: dict[str, Any] = {"ok": not failures, "failed": failures, "warnings": warnings, "checks": checks}
        show_json(document if reports is None else document | msgspec.to_builtins(reports))
    else:
        _show_findings(findings)
        if reports is not None:
            _show_reports(reports.operations)
    if failures:
        echo_err(f"Checks failed: {failures}. Follow the advice in the table.")
        return ExitStatus.FAILED
    echo_err(f"Nothing failed. Warnings: {warnings}." if warnings else "Nothing failed.")
    if differences := sum(len(each.differences) for each in reports.operations) if reports else 0:
        echo_err(f"Differences from the OpenAPI document: {differences}.")
    return ExitStatus.FAILED if differences else ExitStatus.DONE


async def _check_service(
    service: str, options: DoctorOptions, settings: ds.Settings, found: Mapping[str, Any], missing_url: str
) -> list[Finding]:
    subject = "messaging" if service == "message" else service
    url: str | None = getattr(settings, f"{service}_url")
    if url is None:
        return [not_checked(missing_url.format(service=service.upper()), subject, "connection")]
    server, name = Server(service, url, settings, options.timeout), _CREDENTIALS[service]
    last = partial(_check_credential, service, settings, options.timeout, found[name])
    checks: list[Check] = [("connection", server.check_connection), ("clock", server.check_clock), (name, last)]
    return await _run_checks(subject, checks, options.timeout)


async def _examine_deeply(options: DoctorOptions, settings: ds.Settings, found: Mapping[str, Any]) -> Report:
    """Return the report of --deep, and write it to the file of --report, if given."""
    require_extra("sandbox")
    from directsuite.sandbox.server import load_openapi_document

    usable = {name: each for name, each in found.items() if not isinstance(each, Finding)}
    if options.tuser is not None and options.tuser_password_file is not None:
        label = with_value("the file of --tuser-password-file", options.tuser_password_file)
        password = read_secret_file(options.tuser_password_file, label)
        usable["tuser"] = ds.Login(options.tuser, password)
    specification = Specification(load_openapi_document())
    deep = DeepExamination(settings=settings, specification=specification, options=options, **usable)
    report = Report(directsuite=ds.__version__, operations=await deep.run())
    if options.report is not None:
        with explain_file_errors("--report", options.report), create_file(options.report) as file:
            file.write(msgspec.json.format(msgspec.json.encode(report)))
    return report


def _show_findings(findings: Sequence[Finding]) -> None:
    sentences, explained = dict[Finding, str](), dict[str, str]()
    for each in findings:
        # Failures of services may have the same cause, such as the proxy or token_url.
        problem = each.sentence.replace(f"the {each.subject} service", "the service")
        first = explained.setdefault(problem, each.subject) if each.result is Result.FAILED else each.subject
        sentences[each] = each.sentence if first == each.subject else f"See {first}: the text is the same."
    rows = [
        (each.subject, each.check, each.result.value, sentences[each])
        for result in (Result.FAILED, Result.WARNING, Result.NOT_CHECKED)
        for each in findings
        if each.result is result
    ]
    for subject in dict.fromkeys(each.subject for each in findings):
        passed = [each.check for each in findings if each.subject == subject and each.result is Result.OK]
        if passed:
            rows.append((subject, f"checks: {len(passed)}", Result.OK.value, ", ".join(passed)))
    show_table(
        ("subject", "check", "result", "details"),
        rows,
        no_wrap=("subject", "check", "result"),
        styles={"failed": "red", "warning": "yellow", "ok": "green"},
    )


def _show_reports(reports: Sequence[OperationReport]) -> None:
    rows = [(each.operation, found.path, found.what) for each in reports for found in (*each.differences, *each.forms)]
    rows += [(each.operation, "no result", each.skipped) for each in reports if each.skipped]
    rows.append((f"others: {sum(not (each.differences or each.skipped) for each in reports)}", "", "no differences"))
    show_table(("operation", "path", "difference"), rows, no_wrap=("operation",))


async def _run_checks(subject: str, checks: Sequence[Check], timeout: float) -> list[Finding]:
    """Run a subject's checks until one fails. Return a finding of each, NOT_CHECKED after a failure.

    timeout: seconds for each check, which fails if it takes longer.
    """
    findings, failed_check = list[Finding](), ""
    for name, check in checks:
        if failed_check:
            finding = not_checked(f"The check of {failed_check} failed.")
        else:
            try:
                async with asyncio.timeout(timeout):
                    finding = await check()
            except TimeoutError:
                advice = "Check the network, firewall and proxy, or give --timeout SECONDS."
                finding = failed(f"It took more than {timeout:g} s. {advice}")
        if finding.result is Result.FAILED:
            failed_check = failed_check or name
        findings.append(attrs.evolve(finding, subject=subject, check=name))
    return findings


def _check_machine(settings: ds.Settings, environment: Mapping[str, str]) -> Iterator[tuple[str, Finding]]:
    """Yield a finding of each check that sends nothing, with the check's name."""
    if unknown := find_unknown_variables(environment):
        names = ", ".join(f"{name} (did you mean {similar}?)" if similar else name for name, similar in unknown.items())
        yield "variables", warning(f"Nothing reads {names}. Correct the name or unset it.")
    libraries = ", ".join(f"{library} {version(library)}" for library in _LIBRARIES)
    python = f"Python {platform.python_version()}, {ssl.OPENSSL_VERSION}"
    yield "versions", ok(f"directsuite {ds.__version__}, {python}, {libraries}")
    names = ", ".join(name for name in _PROXY_VARIABLES if environment.get(name))
    if names and settings.proxy is None:
        advice = 'If the services are behind a proxy, add proxy = "http://proxy.example.org:3128" to the settings file.'
        yield "proxy variables", warning(f"{names} is ignored. {advice}")
    else:
        yield "proxy variables", ok("They are not needed.")


class _Resolver(AbstractResolver):
    """Resolves host names in separate threads. The process would wait for those of aiohttp's resolver at its end."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Return the addresses of a host."""
        found = await run_in_thread(socket.getaddrinfo, host, port, family, socket.SOCK_STREAM, 0, socket.AI_ADDRCONFIG)
        return [
            ResolveResult(hostname=host, host=str(at[0]), port=port, family=kind, proto=proto, flags=0)
            for kind, _, proto, _, at in found
        ]

    async def close(self) -> None:
        """Do nothing."""


class Server:
    """The checks of the server of one service."""

    def __init__(self, service: str, url: str, settings: ds.Settings, timeout: float) -> None:
        self._operation = _CALLS[service][0]
        self._url = url
        self._settings = settings
        self._timeout = timeout
        self._date, self._received = "", datetime.now(UTC)

    async def check_connection(self) -> Finding:
        """Check that the server accepts a connection, and responds to a request."""
        tls, began = self._settings.tls, time.monotonic()
        context = await asyncio.to_thread(ssl.create_default_context) if tls is None else tls
        try:
            async with (
                aiohttp.ClientSession(
                    connector=aiohttp.TCPConnector(ssl=context, resolver=_Resolver()),
                    cookie_jar=aiohttp.DummyCookieJar(),
                    headers={"User-Agent": f"directsuite/{ds.__version__}", "Cache-Control": "no-cache"},
                ) as session,
                session.head(self._url, allow_redirects=False, proxy=self._settings.proxy) as response,
            ):
                self._date, self._received = response.headers.get("Date", ""), datetime.now(UTC)
                status, url = response.status, response.url
        except (aiohttp.ClientError, OSError, UnicodeError) as error:
            failure = convert_exception(error, self._operation, started=not isinstance(error, UnicodeError))
            assert failure is not None  # noqa: S101  these are errors of the network
            setting = self._operation.service.url_setting
            advice = f"check the setting {setting}: the scheme and the port, and the proxy if there is one"
            problem = f"{failure.explanation}: {failure.advice or advice}"
            return failed(f"{problem[0].upper()}{problem[1:]}.")
        if url.scheme == "http" and find_url_problem(self._url) is not None:
            return warning("The URL starts with http://, so others can read everything that is sent. Use https://.")
        if 300 <= status < 400:
            return warning(f"HTTP {status}: The server redirects, which is not followed. Use the new URL.")
        if status in (502, 503, 504):
            return warning(f"HTTP {status}: The service is down or overloaded. Try again later.")
        days = _MIN_DAYS
        if url.scheme == "https" and self._settings.proxy is None:
            left = self._timeout - (time.monotonic() - began)
            with contextlib.suppress(OSError):  # such as TimeoutError
                async with asyncio.timeout(min(_MAX_CERTIFICATE_SECONDS, left / 2)):
                    days = await _count_valid_days(url, context)
        if days < _MIN_DAYS:
            return warning(f"The certificate is valid for only {days} days. Ask the service's provider to renew it.")
        return ok(f"{self._url} responds.")

    async def check_clock(self) -> Finding:
        """Compare the clocks of this machine and of the server."""
        date = read_http_date(self._date)
        if date is None:
            return not_checked("The response contains no date.")
        seconds = (date - self._received).total_seconds()
        if abs(seconds) <= _MAX_SKEW:
            return ok("This machine's clock agrees with the server's.")
        return warning(
            f"This machine's clock is {abs(seconds) / 60:,.0f} minutes {'behind' if seconds > 0 else 'ahead of'} the "
            "server's, so tokens and sessions expire at other times than expected. Set it, for example with NTP."
        )


async def _count_valid_days(url: URL, context: ssl.SSLContext) -> int:
    """Return the number of days for which the server's certificate is valid, which aiohttp does not show."""
    await _Resolver().resolve(url.raw_host or "")  # the process would wait at its end for a resolver that hangs here
    _, writer = await asyncio.open_connection(url.raw_host, url.port, ssl=context, happy_eyeballs_delay=0.25)
    certificate: Mapping[str, Any] = writer.get_extra_info("peercert") or {}
    writer.transport.abort()
    end = certificate.get("notAfter")
    return _MIN_DAYS if end is None else int(ssl.cert_time_to_seconds(end) - time.time()) // 86_400


async def _check_credential(
    service: str,
    settings: ds.Settings,
    timeout: float,
    credential: ds.Secret | ds.ClientCredentials | ds.Login | MailboxAccess | Finding,
) -> Finding:
    """Check that a service accepts a token, login or mailbox password. If `credential` is a Finding, return it."""
    if isinstance(credential, Finding):
        return credential
    token = credential if isinstance(credential, ds.Secret | ds.ClientCredentials) else None
    login = credential if isinstance(credential, ds.Login) else None

    async def call(settings: ds.Settings) -> ds.DirectSuiteError | None:
        try:
            async with ds.DirectSuite(settings, token=token, login=login, listeners=make_request_listeners()) as suite:
                facade: Facade = (
                    suite.mailbox(credential.address, credential.password)
                    if isinstance(credential, MailboxAccess)
                    else getattr(suite, service)
                )
                await _CALLS[service][1](facade.with_options(timeout=timeout, retry=ds.RetryPolicy.none()))
        except ds.DirectSuiteError as error:
            return error
        return None

    if isinstance(credential, ds.ClientCredentials) and settings.proxy is None:
        with contextlib.suppress(OSError, ValueError):  # reported by the call
            await _Resolver().resolve(URL(credential.token_url).raw_host or "")
    error = await call(settings)
    if isinstance(credential, ds.ClientCredentials) and error is not None and error.service == "oauth":
        if isinstance(error, ds.AuthenticationError):
            return failed(f"The token endpoint rejects the client credentials: {HINT_CHECK_CLIENT}.")
        advice: Advice = {ds.ConnectFailedError: error.advice} if error.advice else {}  # without a hint at this command
        return failed(f"{exit_for_error(error, advice=advice)[1]}.")
    if token is not None and isinstance(error, ds.ServiceError) and error.status == 404:
        # Either the document does not exist, or the path. If the path does not, another path gets the same response.
        urls: dict[str, Any] = {f"{service}_url": f"{getattr(settings, f'{service}_url')}{_MISSING_PATH}"}
        other = await call(attrs.evolve(settings, **urls))
        if not isinstance(other, ds.ServiceError) or _list_texts(other) != _list_texts(error):
            return ok("The credential is accepted.")
    return _explain(service, error, has_token=token is not None)


def _list_texts(error: ds.ServiceError) -> list[str]:
    """Return the error's code and description without the path, to compare responses; empty if the body isn't JSON."""
    try:
        body: Any = msgspec.json.decode(error.body)
        return [str(body.get(name)).replace(_MISSING_PATH, "") for name in ("error", "description")]
    except (msgspec.DecodeError, AttributeError, RecursionError):
        return []


def _explain(service: str, error: ds.DirectSuiteError | None, *, has_token: bool) -> Finding:
    if error is None or (has_token and isinstance(error, ds.BadRequestError)):
        return ok("The credential is accepted.")
    if isinstance(error, ds.AuthenticationError):
        credential = "mailbox" if service == "message" else "login"
        text = f"The service rejects the {credential}. Check its name, and that the password belongs to it"
        text = f"{HINT_RENEW_CREDENTIAL[0].upper()}{HINT_RENEW_CREDENTIAL[1:]}" if has_token else text
        return failed(f"{text}{describe_secret_source(error)}.")
    if has_token and isinstance(error, ds.PermissionDeniedError):
        if service == "fax":  # because the number in the request is not the user's
            return warning(
                f"The service accepts the token, but not for {_FAX_NUMBER}, the number in the request of this check. "
                "If it also rejects your own number, ask its provider for a token that may read faxes."
            )
        return failed("The service accepts the token, but not for this operation. Ask its provider for another token.")
    is_not_found = isinstance(error, ds.ServiceError) and error.status == 404
    if is_not_found or isinstance(error, ds.ResponseDecodeError):
        return failed(f"This is not the service. Check the path of DIRECTSUITE_{service.upper()}_URL.")
    advice: Advice = {ds.ConnectFailedError: "see the checks before this one, and try again"}
    return failed(exit_for_error(error, advice=advice)[1])
