"""`directsuite doctor`: find what prevents this machine from using the services, and what to do about it.

    this machine   settings, versions, extras, trusted certificates, proxy variables
    each service   URL ──► name ──► connection ──► TLS ──► response ──► clock ──► token, login or mailbox

If a check of a service fails, those after it are not run. Nothing is saved, sent or changed.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import attrs
import msgspec

import directsuite as ds
from directsuite.cli import credentials, doctor_checks
from directsuite.cli.command import Work
from directsuite.cli.conformance import Specification
from directsuite.cli.credentials import find_in_keyring
from directsuite.cli.deep import DeepExamination, DoctorOptions
from directsuite.cli.errors import UsageError
from directsuite.cli.options import make_app
from directsuite.cli.output import show_json, show_progress, show_table
from directsuite.cli.process import ExitStatus, echo_err, require_extra
from directsuite.config_file import Configuration, read_secret_file
from directsuite.durable.files import create_file
from directsuite.sandbox.quirks import OperationReport, Report
from directsuite.settings import SERVICES

app = make_app("doctor", "", "--timeout 5 --json", "--deep --report differences.json")

T = TypeVar("T")

_SUBJECTS = {"signing": "signing", "fax": "fax", "message": "messaging", "registration": "registration"}
_CREDENTIALS = {"signing": "token", "fax": "token", "message": "mailbox", "registration": "login"}
_DEEP_OPTIONS = ("fax_number", "document", "patient", "proofing_id", "tuser", "tuser_password_file", "report")


@app.default
def doctor(*, options: DoctorOptions = DoctorOptions()) -> Work:
    """Find problems, and explain how to fix them.

    The command checks this machine's settings, each service's URL, host name, connection, certificate and clock, and
    whether each service accepts your token, login or mailbox password. Nothing is saved, sent or changed. Exit status 0
    means that no check failed.

    With --deep it also calls each read-only operation that your credentials allow, and reports how the responses differ
    from the OpenAPI document of the services, as paths and types without values.
    """
    if not options.deep and any(getattr(options, name) is not None for name in _DEEP_OPTIONS):
        names = ", ".join(f"--{name.replace('_', '-')}" for name in _DEEP_OPTIONS)
        raise UsageError(f"These options need --deep: {names}.")
    if (options.tuser is None) != (options.tuser_password_file is None):
        raise UsageError("--tuser and --tuser-password-file must be given together.")
    if options.report is not None and os.path.lexists(options.report):  # otherwise reported after the examination
        raise UsageError("--report: The file exists. Name a new file.")
    settings, finding = _read_settings()
    machine = [("settings", finding), *doctor_checks.check_machine(settings, os.environ)]
    findings = [attrs.evolve(each, subject="this machine", check=name) for name, each in machine]
    return _Examination(options, settings).run(findings)


def _read_settings() -> tuple[ds.Settings, doctor_checks.Finding]:
    try:
        settings = ds.Settings.from_env()
    except ds.ConfigurationError as error:
        return ds.Settings(), doctor_checks.failed(error.explanation)
    if not any(getattr(settings, f"{service}_url") for service in SERVICES):
        text = "Set DIRECTSUITE_MESSAGE_URL, or the same with SIGNING, FAX or REGISTRATION, or use the settings file."
        return settings, doctor_checks.failed(f"No service has a URL. {text}")
    return settings, doctor_checks.ok("The environment and the settings file are valid.")


def _find(is_given: Callable[[], object], read: Callable[[], T], advice: str) -> T | doctor_checks.Finding:
    """Return a credential; if it is missing or invalid, the finding with the reason."""
    try:
        return read() if is_given() else doctor_checks.not_checked(advice)
    except UsageError as error:
        return doctor_checks.failed(str(error))
    except ds.ConfigurationError as error:
        return doctor_checks.failed(error.explanation)


class _Examination:
    """The services with their credentials. A password is requested only for a named mailbox or login with a URL."""

    def __init__(self, options: DoctorOptions, settings: ds.Settings) -> None:
        self._options, self._settings = options, settings
        self._token = _find(
            lambda: options.token_file or Configuration.read().read_secret("token") or find_in_keyring("token"),
            lambda: credentials.read_token(options.token_file),
            "There is no token. Set DIRECTSUITE_TOKEN, or give --token-file FILE.",
        )
        self._login = _find(
            lambda: settings.registration_url and (options.login or credentials.read_setting("login_username")),
            lambda: credentials.read_login(options.login, options.login_password_file),
            f"There is no login. Set {credentials.LOGIN_VAR}, or give --login USERNAME.",
        )
        self._mailbox = _find(
            lambda: settings.message_url and (options.mailbox or credentials.read_setting("mailbox")),
            lambda: credentials.get_mailbox_access(options.mailbox, options.password_file, settings=settings),
            f"No mailbox is named. Set {credentials.MAILBOX_VAR}, or give --mailbox ADDRESS.",
        )

    async def run(self, findings: list[doctor_checks.Finding]) -> int:
        """Add findings about the services, and print all. Return 1 if a check failed or responses differ, else 0."""
        options, reports = self._options, None
        async with show_progress("examining"):
            for found in await asyncio.gather(*map(self._check_service, SERVICES)):
                findings += found
            if options.deep:
                reports = await self._examine_deeply()
        counts = Counter(each.result for each in findings)
        failures, warnings = counts[doctor_checks.Result.FAILED], counts[doctor_checks.Result.WARNING]
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

    async def _check_service(self, service: str) -> list[doctor_checks.Finding]:
        settings, timeout, subject = self._settings, self._options.timeout, _SUBJECTS[service]
        url: str | None = getattr(settings, f"{service}_url")
        if url is None:
            advice = f"If you use this service, set DIRECTSUITE_{service.upper()}_URL."
            return [doctor_checks.not_checked(f"There is no valid URL. {advice}", subject, "URL")]
        server, name = doctor_checks.Server(url, settings), _CREDENTIALS[service]
        last = partial(doctor_checks.check_credential, service, settings, timeout, getattr(self, f"_{name}"))
        try:
            return await doctor_checks.run_checks(subject, [*server.list_checks(), (name, last)], timeout)
        finally:
            server.close()

    async def _examine_deeply(self) -> Report:
        """Return the report of --deep, and write it to the file of --report, if given."""
        require_extra("sandbox")
        from directsuite.sandbox.server import load_openapi_document

        options, tuser = self._options, None
        if options.tuser is not None and options.tuser_password_file is not None:
            password = read_secret_file(options.tuser_password_file, "the file of --tuser-password-file")
            tuser = ds.Login(options.tuser, password)
        deep = DeepExamination(
            settings=self._settings,
            specification=Specification(load_openapi_document()),
            options=options,
            token=None if isinstance(self._token, doctor_checks.Finding) else self._token,
            login=None if isinstance(self._login, doctor_checks.Finding) else self._login,
            mailbox=None if isinstance(self._mailbox, doctor_checks.Finding) else self._mailbox,
            tuser=tuser,
        )
        report = Report(directsuite=ds.__version__, operations=await deep.run())
        if options.report is not None:
            with create_file(options.report) as file:
                file.write(msgspec.json.format(msgspec.json.encode(report)))
        return report


def _show_findings(findings: Sequence[doctor_checks.Finding]) -> None:
    rows = [
        (each.subject, each.check, each.result.value, each.sentence)
        for result in (doctor_checks.Result.FAILED, doctor_checks.Result.WARNING, doctor_checks.Result.NOT_CHECKED)
        for each in findings
        if each.result is result
    ]
    for subject in dict.fromkeys(each.subject for each in findings):
        passed = [each.check for each in findings if each.subject == subject and each.result is doctor_checks.Result.OK]
        if passed:
            rows.append((subject, f"checks: {len(passed)}", doctor_checks.Result.OK.value, ", ".join(passed)))
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
