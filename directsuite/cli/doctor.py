"""`directsuite doctor`: find what prevents this machine from using the services, and what to do about it.

    this machine   settings, variables, versions, proxy variables
    each service   connection ──► clock ──► token, login or mailbox

If a check of a service fails, those after it are not run. Nothing is saved, sent or changed.
"""

from __future__ import annotations

import asyncio
import enum
import os
import platform
import ssl
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from functools import cache, partial
from importlib.metadata import version
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import aiohttp
import attrs
import msgspec

import directsuite as ds
from directsuite.cli import credentials
from directsuite.cli.command import Work, make_request_listeners
from directsuite.cli.config import find_unknown_variables
from directsuite.cli.credentials import MailboxAccess, find_in_keyring
from directsuite.cli.deep import DeepExamination, DoctorOptions, Specification
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
from directsuite.core.files import DedicatedThread, create_file, run_in_thread
from directsuite.core.operation import Operation
from directsuite.core.outcome import convert_exception
from directsuite.fax.operations import GET_MULTIPLE_MESSAGE_INFO
from directsuite.messaging.operations import GET_MESSAGE_COUNT
from directsuite.registration.operations import LOGIN
from directsuite.sandbox.quirks import OperationReport, Report
from directsuite.settings import SERVICES
from directsuite.signing.operations import GET_DOC_INFO
from directsuite.wire.codec import Codec
from directsuite.wire.values import read_http_date

if TYPE_CHECKING:
    from aiohttp.connector import Connection
    from aiohttp.tracing import Trace

app = make_app("doctor", "", "--timeout 5 --json", "--deep --report differences.json")

P = ParamSpec("P")
T = TypeVar("T")

_CREDENTIALS = {"signing": "token", "fax": "token", "message": "mailbox", "registration": "login"}
_DEEP_OPTIONS = ("fax_number", "document", "patient", "proofing_id", "tuser", "tuser_password_file", "report")
_LIBRARIES = ("aiohttp", "attrs", "cattrs", "msgspec", "oauthlib", "pybase64", "tenacity", "yarl")
_PROXY_VARIABLES = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")
_MIN_DAYS = 21  # a certificate that is valid for fewer days should be renewed
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


ok = partial(Finding, Result.OK)
warning = partial(Finding, Result.WARNING)
failed = partial(Finding, Result.FAILED)
not_checked = partial(Finding, Result.NOT_CHECKED)
_SKIPPED = not_checked("The check of connection failed.")


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
    machine = [("settings", finding), *_check_machine(settings, os.environ)]
    findings = [attrs.evolve(each, subject="this machine", check=name) for name, each in machine]
    return _examine(options, settings, _find_credentials(options, settings or ds.Settings()), findings)


def _read_settings() -> tuple[ds.Settings | None, Finding]:
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
    options: DoctorOptions, settings: ds.Settings | None, found: Mapping[str, Any], findings: list[Finding]
) -> int:
    """Add findings about the services, and print all. Return 1 if a check failed or responses differ, else 0."""
    reports = None
    asyncio.get_running_loop().set_default_executor(_DaemonThreads())
    async with show_progress("examining"):
        checking = (_check_service(each, options, settings, found) for each in SERVICES)
        for checked in await asyncio.gather(*checking):
            findings += checked
        if options.deep:
            reports = await _examine_deeply(options, settings or ds.Settings(), found)
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
    service: str, options: DoctorOptions, settings: ds.Settings | None, found: Mapping[str, Any]
) -> list[Finding]:
    subject, timeout = "messaging" if service == "message" else service, options.timeout
    if settings is None:
        return [not_checked("The settings are invalid: see the check of the settings.", subject, "connection")]
    if getattr(settings, f"{service}_url") is None:
        text = f"There is no URL. If you use this service, set DIRECTSUITE_{service.upper()}_URL."
        return [not_checked(text, subject, "connection")]
    advice = "Check the network, firewall and proxy, or give --timeout SECONDS."
    late = failed(f"It took more than {timeout:g} s. {advice}")
    connection, clock = await _limit_time(_check_server(service, settings), timeout, (late, _SKIPPED))
    last, credential = _SKIPPED, found[_CREDENTIALS[service]]
    if connection.result is not Result.FAILED:
        last = await _limit_time(_check_credential(service, settings, timeout, credential), timeout, late)
    checked = {"connection": connection, "clock": clock, _CREDENTIALS[service]: last}
    return [attrs.evolve(each, subject=subject, check=name) for name, each in checked.items()]


async def _limit_time(check: Coroutine[Any, Any, T], timeout: float, late: T) -> T:
    """Return the result of a check, or `late` if it takes longer."""
    try:
        async with asyncio.timeout(timeout):
            return await check
    except TimeoutError:
        return late


async def _examine_deeply(options: DoctorOptions, settings: ds.Settings, found: Mapping[str, Any]) -> Report:
    """Return the report of --deep, and write it to the file of --report, if given."""
    require_extra("sandbox")
    from directsuite.sandbox.server import load_openapi_document

    usable = {name: each for name, each in found.items() if not isinstance(each, Finding)}
    if options.tuser is not None and options.tuser_password_file is not None:
        label = with_value("the file of --tuser-password-file", options.tuser_password_file)
        password = read_secret_file(options.tuser_password_file, label)
        usable["tuser"] = ds.Login(options.tuser, password)
    specification = Specification(load_openapi_document(), Codec(settings.converter))
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


def _check_machine(settings: ds.Settings | None, environment: Mapping[str, str]) -> Iterator[tuple[str, Finding]]:
    """Yield a finding of each check that sends nothing, with the check's name."""
    if unknown := find_unknown_variables(environment):
        names = ", ".join(f"{name} (did you mean {similar}?)" if similar else name for name, similar in unknown.items())
        yield "variables", warning(f"Nothing reads {names}. Correct the name or unset it.")
    libraries = ", ".join(f"{library} {version(library)}" for library in _LIBRARIES)
    python = f"Python {platform.python_version()}, {ssl.OPENSSL_VERSION}"
    yield "versions", ok(f"directsuite {ds.__version__}, {python}, {libraries}")
    names = ", ".join(name for name in _PROXY_VARIABLES if environment.get(name))
    if names and (settings is None or settings.proxy is None):
        advice = 'If the services are behind a proxy, add proxy = "http://proxy.example.org:3128" to the settings file.'
        yield "proxy variables", warning(f"{names} is ignored. {advice}")
    else:
        yield "proxy variables", ok("They are not needed.")


class _DaemonThreads(ThreadPoolExecutor):
    """Runs each job in a daemon thread: the process would wait at its end for other threads, if the resolver hangs."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        return DedicatedThread().submit(fn, *args, **kwargs)


class _Connector(aiohttp.TCPConnector):
    """A connector that records the server's certificate, which aiohttp does not show."""

    certificate: Mapping[str, Any] = MappingProxyType({})

    async def connect(
        self, req: aiohttp.ClientRequest, traces: list[Trace], timeout: aiohttp.ClientTimeout
    ) -> Connection:
        connection = await super().connect(req, traces, timeout)
        if connection.transport is not None:
            self.certificate = connection.transport.get_extra_info("peercert") or {}
        return connection


async def _check_server(service: str, settings: ds.Settings) -> tuple[Finding, Finding]:
    """Check that the server responds to a request, and compare its clock with that of this machine."""
    service_url: str = getattr(settings, f"{service}_url")
    operation, tls = _CALLS[service][0], settings.tls
    context = await run_in_thread(ssl.create_default_context) if tls is None else tls
    connector = _Connector(ssl=context)
    try:
        async with (
            aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": f"directsuite/{ds.__version__}", "Cache-Control": "no-cache"},
            ) as session,
            session.head(service_url, allow_redirects=False, proxy=settings.proxy) as response,
        ):
            clock = _check_clock(response.headers.get("Date", ""))
            status, is_plain = response.status, response.url.scheme == "http"
    except (aiohttp.ClientError, OSError, UnicodeError) as error:
        failure = convert_exception(error, operation, started=not isinstance(error, UnicodeError))
        assert failure is not None  # noqa: S101  these are errors of the network
        setting = operation.service.url_setting
        advice = f"check the setting {setting}: the scheme and the port, and the proxy if there is one"
        problem = f"{failure.explanation}: {failure.advice or advice}"
        return failed(f"{problem[0].upper()}{problem[1:]}."), _SKIPPED
    end = connector.certificate.get("notAfter")
    days = _MIN_DAYS if end is None else int(ssl.cert_time_to_seconds(end) - time.time()) // 86_400
    if is_plain and find_url_problem(service_url) is not None:
        connection = warning("The URL starts with http://, so others can read everything that is sent. Use https://.")
    elif 300 <= status < 400:
        connection = warning(f"HTTP {status}: The server redirects, which is not followed. Use the new URL.")
    elif status in (502, 503, 504):
        connection = warning(f"HTTP {status}: The service is down or overloaded. Try again later.")
    elif days < _MIN_DAYS:
        advice = "Ask the service's provider to renew it."
        connection = warning(f"The certificate is valid for only {days} days. {advice}")
    else:
        connection = ok(f"{service_url} responds.")
    return connection, clock


def _check_clock(header: str) -> Finding:
    """Compare the clock of this machine with the header Date, which was just received."""
    date = read_http_date(header)
    if date is None:
        return not_checked("The response contains no date.")
    seconds = (date - datetime.now(UTC)).total_seconds()
    if abs(seconds) <= _MAX_SKEW:
        return ok("This machine's clock agrees with the server's.")
    return warning(
        f"This machine's clock is {abs(seconds) / 60:,.0f} minutes {'behind' if seconds > 0 else 'ahead of'} the "
        "server's, so tokens and sessions expire at other times than expected. Set it, for example with NTP."
    )


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
