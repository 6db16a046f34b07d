"""`directsuite doctor`: what keeps this machine from using the services, and what to do about it.

    this machine   versions, extras, settings, trusted certificates, proxy
    each service   URL ──► name ──► connection ──► TLS ──► answer ──► clock ──► token, login or mailbox

Each check ends within its time; what stands behind a failed one isn't checked. The services go side by side. Nothing is
saved, sent or changed anywhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import attrs
import msgspec
from yarl import URL

from directsuite._version import __version__
from directsuite.cli import credentials
from directsuite.cli.command import Command
from directsuite.cli.conformance import Specification
from directsuite.cli.credentials import MailboxAccess, in_keyring
from directsuite.cli.deep import DeepExamination
from directsuite.cli.doctor_checks import (
    MACHINE,
    Credentials,
    Finding,
    HttpAnswer,
    Result,
    Route,
    failed,
    not_checked,
    of_this_machine,
    ok,
)
from directsuite.cli.errors import RefusedError, in_own_words
from directsuite.cli.options import DoctorOptions
from directsuite.cli.output import progress, show_json, show_table
from directsuite.cli.process import REMEDY, ExitStatus, say
from directsuite.configuration import Configuration, secret_of_file
from directsuite.durable.files import create
from directsuite.errors import ConfigurationError
from directsuite.registration.models import Login
from directsuite.sandbox.dialect import OperationReport, Report
from directsuite.secret import Secret
from directsuite.settings import SERVICES, Settings
from directsuite.settings import settings_of as read_settings

T = TypeVar("T")
Check = tuple[str, Callable[[], Awaitable[Finding]]]

_SAFE = "http://127.0.0.1"
_NAMES = {"signing": "signing", "fax": "fax", "message": "messaging", "registration": "registration"}
_BY_PROXY = "connections go by the proxy of the settings"


def doctor(options: DoctorOptions) -> int:
    """Find what is wrong, and return the exit status."""

    def begin() -> Coroutine[Any, Any, int]:
        if not options.deep and any(
            (
                *(options.fax_number, options.document, options.patient, options.proofing_id is not None),
                *(options.tuser, options.tuser_password_file, options.report),
            )
        ):
            raise RefusedError(
                "--fax-number, --document, --patient, --proofing-id, --tuser, --tuser-password-file and --report go "
                "with --deep"
            )
        if (options.tuser is None) != (options.tuser_password_file is None):
            raise RefusedError("--tuser and --tuser-password-file go together")
        sources = settings_of()
        settings = sources.settings
        urls = [getattr(settings, f"{service}_url") for service in SERVICES]
        findings = [
            sources.finding.of(MACHINE, "settings"),
            *of_this_machine(
                os.environ,
                uses_proxy=settings.proxy is not None,
                uses_tls=any(url is not None and url.startswith("https:") for url in urls),
            ),
        ]
        examination = Examination(
            sources=sources,
            token=token_of(options.token_file),
            login=login_of(options.login, options.login_password_file),
            mailbox=mailbox_of(options.mailbox, options.password_file, settings),
            limit=options.timeout,
        )
        return _examine(examination, findings, options)

    return Command().run(begin)


async def _examine(examination: Examination, of_machine: Sequence[Finding], options: DoctorOptions) -> int:
    async with progress("examining"):
        findings = [*of_machine, *await examination.findings()]
        reports = await _deep(examination, options) if options.deep else None
    failures = sum(each.result is Result.FAILED for each in findings)
    warnings = sum(each.result is Result.WARNING for each in findings)
    differences = sum(len(each.differences) for each in reports or ())
    if options.json:
        shown = {"ok": not failures, "failed": failures, "warnings": warnings, "checks": [*map(_member, findings)]}
        show_json(
            shown
            if reports is None
            else shown | msgspec.to_builtins(Report(directsuite=__version__, operations=reports))
        )
    else:
        show_table(
            ("of", "check", "result", "in words"),
            _rows(findings),
            whole=("of", "check", "result"),
            styles={Result.FAILED: "red", Result.WARNING: "yellow", Result.OK: "green"},
        )
        if reports is not None:
            show_table(("operation", "where", "what"), _deep_rows(reports), whole=("operation",))
    if failures:
        say(
            f"{_counted(failures, 'check')} failed: the table says what to do about {'it' if failures == 1 else 'each'}"
        )
        return ExitStatus.FAILED
    say(f"nothing failed; {_counted(warnings, 'warning')}" if warnings else "nothing failed")
    if differences:
        say(f"{_counted(differences, 'difference')} from what is known of the services")
    return ExitStatus.FAILED if differences else ExitStatus.DONE


async def _deep(examination: Examination, options: DoctorOptions) -> list[OperationReport]:
    """What all that can be read shows; written into the file of --report, too."""
    from directsuite.sandbox.server import openapi_document

    try:
        specification = Specification(openapi_document())
    except ImportError:
        raise RefusedError(f"--deep needs packages that are missing: {REMEDY}") from None
    deep = DeepExamination(
        settings=examination.sources.settings,
        specification=specification,
        options=options,
        token=None if isinstance(examination.token, Finding) else examination.token,
        login=None if isinstance(examination.login, Finding) else examination.login,
        mailbox=None if isinstance(examination.mailbox, Finding) else examination.mailbox,
        tuser=_tuser_of(options),
    )
    reports = await deep.run()
    if options.report is not None:
        with create(options.report) as file:
            file.write(msgspec.json.format(msgspec.json.encode(Report(directsuite=__version__, operations=reports))))
    return reports


def _tuser_of(options: DoctorOptions) -> Login | None:
    """The T-User, with the password of the file."""
    if options.tuser is None or options.tuser_password_file is None:
        return None
    return Login(options.tuser, secret_of_file(options.tuser_password_file, "the file of --tuser-password-file"))


def _deep_rows(reports: Sequence[OperationReport]) -> list[tuple[str, str, str]]:
    """Differences first; then what was not asked for; and how many operations answer as described."""
    rows = [(each.operation, found.path, found.what) for each in reports for found in (*each.differences, *each.forms)]
    rows += [(each.operation, "not asked", each.skipped) for each in reports if each.skipped]
    well = sum(not (each.differences or each.skipped) for each in reports)
    return [*rows, (_counted(well, "other"), "", "as described")]


def _rows(findings: Sequence[Finding]) -> list[tuple[str, str, str, str]]:
    """What failed first, then warnings, then what was not checked; what is well, in one row for each subject."""
    first = {Result.FAILED: 0, Result.WARNING: 1, Result.NOT_CHECKED: 2}
    others = sorted((each for each in findings if each.result in first), key=lambda each: first[each.result])
    rows = [(each.subject, each.check, each.result.value, each.sentence) for each in others]
    for subject in dict.fromkeys(each.subject for each in findings):
        well = [each.check for each in findings if each.subject == subject and each.result is Result.OK]
        if well:
            rows.append((subject, f"{len(well)} checks" if well[1:] else well[0], Result.OK.value, ", ".join(well)))
    return rows


def _member(finding: Finding) -> dict[str, Any]:
    return {
        "subject": finding.subject,
        "check": finding.check,
        "result": finding.result.value,
        "sentence": finding.sentence,
        "details": dict(finding.details),
    }


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


@attrs.frozen(kw_only=True)
class Examination:
    """What is examined, and with what. limit: seconds for each check."""

    sources: SettingsSources
    token: Secret | Finding
    login: Login | Finding
    mailbox: MailboxAccess | Finding
    limit: float

    async def findings(self) -> list[Finding]:
        """Of the proxy, where there is one, and of all services."""
        settings, behind = self.sources.settings, list[Finding]()
        if settings.proxy is not None:
            route = Route(URL(settings.proxy), limit=self.limit)
            behind = await self._in_turn("proxy", [("name", route.name), ("connection", route.connection)])
            route.close()
            if any(each.result is Result.FAILED for each in behind):
                unreached = not_checked("the proxy can't be reached")
                return [*behind, *(unreached.of(name, "connection") for name in _NAMES.values())]
        credentials = Credentials(settings=settings, limit=self.limit)
        last: dict[str, Check] = {
            "signing": _tried("token", self.token, credentials.signing),
            "fax": _tried("token", self.token, credentials.fax),
            "message": _tried("mailbox", self.mailbox, credentials.mailbox),
            "registration": _tried("login", self.login, credentials.registration),
        }
        by_service = await asyncio.gather(*(self._service(service, check) for service, check in last.items()))
        return [*behind, *(each for some in by_service for each in some)]

    async def _service(self, service: str, last: Check) -> list[Finding]:
        name, url = _NAMES[service], getattr(self.sources.settings, f"{service}_url")
        if url is None:
            return [self._without_url(service).of(name, "URL")]
        proxy = self.sources.settings.proxy
        route, answer = Route(URL(url), limit=self.limit), HttpAnswer(url, proxy=proxy)
        reaching: list[Check] = [("name", route.name), ("connection", route.connection), ("TLS", route.tls)]
        if proxy is not None:
            reaching = [("connection", partial(_at_once, not_checked(_BY_PROXY)))]
        checks: list[Check] = [
            ("URL", partial(_at_once, ok(url, url=url))),
            *reaching,
            ("answer", answer.answer),
            ("clock", answer.clock),
            last,
        ]
        try:
            return await self._in_turn(name, checks)
        finally:
            route.close()

    def _without_url(self, service: str) -> Finding:
        problem = self.sources.problems.get(service)
        variable = f"DIRECTSUITE_{service.upper()}_URL"
        if problem is not None:
            return failed(f"{variable}, or {service}_url in the settings file, {problem}")
        if self.sources.lacks_file:
            return not_checked("its URL may stand in the settings file: see to that one first")
        advice = f"set {variable}, or {service}_url in the settings file"
        if service == "message" and (not isinstance(self.mailbox, Finding) or self.mailbox.result is Result.FAILED):
            return failed(f"there is no URL for the mailbox: {advice}")
        return not_checked(f"there is no URL; if you use this service, {advice}")

    async def _in_turn(self, subject: str, checks: Sequence[Check]) -> list[Finding]:
        findings, broken = list[Finding](), ""
        for name, check in checks:
            if broken:
                finding = not_checked(f"the check of {broken} failed")
            else:
                finding = await self._in_time(check)
            if finding.result is Result.FAILED:
                broken = broken or name
            findings.append(finding.of(subject, name))
        return findings

    async def _in_time(self, check: Callable[[], Awaitable[Finding]]) -> Finding:
        try:
            async with asyncio.timeout(self.limit):
                return await check()
        except TimeoutError:
            return failed(
                f"it took more than {self.limit:g} s: see to the network and to the service, or give --timeout SECONDS"
            )


def _tried(name: str, credential: T | Finding, check: Callable[[T], Awaitable[Finding]]) -> Check:
    """The check of a credential, or why there is none."""
    if isinstance(credential, Finding):
        return name, partial(_at_once, credential)
    return name, partial(check, credential)


async def _at_once(finding: Finding) -> Finding:
    return finding


@attrs.frozen(kw_only=True)
class SettingsSources:
    """The settings, of which one wrong URL doesn't hide the others."""

    settings: Settings
    """Without the URLs that can't be right."""
    problems: Mapping[str, str]
    """What is wrong with those URLs, by service."""
    finding: Finding
    lacks_file: bool = False
    """The settings file can't be used, and what stands in it isn't known."""


_URLS = {f"DIRECTSUITE_{service.upper()}_URL" for service in SERVICES}
_WRONG_URL = re.compile(rf"(?:\A|: )({'|'.join(SERVICES)})_url (.*)", re.DOTALL)


def settings_of(environment: Mapping[str, str] = os.environ) -> SettingsSources:
    """The settings of the environment."""
    variables, problems = dict(environment), dict[str, str]()
    trouble: Finding | None = None
    while True:
        try:
            configuration = Configuration.read(variables)
            settings = read_settings(Settings, configuration)
        except ConfigurationError as error:
            said = in_own_words(error.explanation)
            wrong = _WRONG_URL.search(said)
            if wrong is not None and wrong[1] not in problems:
                problems[wrong[1]] = wrong[2]
                variables[f"DIRECTSUITE_{wrong[1].upper()}_URL"] = _SAFE  # before the file's, and left out below
            elif trouble is None:
                trouble = failed(said)  # the URLs of variables are looked at all the same
                variables = {name: text for name, text in variables.items() if name in _URLS}
            else:
                return SettingsSources(settings=Settings(), problems={}, finding=trouble)
        else:
            break
    without: dict[str, Any] = {f"{each}_url": None for each in problems}
    settings = attrs.evolve(settings, **without)
    if trouble is not None:
        finding = trouble
    elif not problems and not any(getattr(settings, f"{each}_url") for each in SERVICES):
        finding = failed(
            "no service has a URL: set DIRECTSUITE_MESSAGE_URL, or the same with SIGNING, FAX or REGISTRATION, "
            "or name them in the settings file"
        )
    else:
        file = f" and {configuration.file}" if configuration.file is not None else ""
        finding = ok(f"read from the environment{file}")
    return SettingsSources(settings=settings, problems=problems, finding=finding, lacks_file=trouble is not None)


def token_of(file: Path | None) -> Secret | Finding:
    """The token for signing and fax; nobody is asked for one."""
    try:
        has_token = file is not None or Configuration.read().secret("token") is not None
    except ConfigurationError as error:
        return failed(error.explanation)
    if not has_token and in_keyring("token") is None:
        return not_checked("there is no token: set DIRECTSUITE_TOKEN, or give --token-file FILE")
    return _or_finding(lambda: credentials.token(file))


def login_of(username: str | None, file: Path | None) -> Login | Finding:
    """The login for registration."""
    username = username or _configured("login_username")
    if not username:
        return not_checked(f"there is no login: set {credentials.LOGIN}, or give --login USERNAME")
    return _or_finding(lambda: credentials.login(username, file))


def mailbox_of(address: str | None, file: Path | None, settings: Settings) -> MailboxAccess | Finding:
    """The mailbox, and its password; whether there is a URL for it is another check's."""
    address = address or _configured("mailbox")
    if not address:
        return not_checked("no mailbox is named: give --mailbox ADDRESS")
    return _or_finding(lambda: credentials.mailbox_access(address, file, settings=settings))


def _configured(name: str) -> str | None:
    """A text of the configuration; what is wrong with that is told where the settings are checked."""
    with contextlib.suppress(ConfigurationError):
        return credentials.configured(name)
    return None


def _or_finding(read: Callable[[], T]) -> T | Finding:
    try:
        return read()
    except RefusedError as refused:
        return failed(str(refused))
    except ConfigurationError as error:
        return failed(in_own_words(error.explanation))
