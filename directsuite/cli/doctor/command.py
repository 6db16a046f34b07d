"""`directsuite doctor` from its options to its exit status."""

from __future__ import annotations

import os
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

import attrs

from directsuite.cli.command import Command
from directsuite.cli.doctor.examination import Examination
from directsuite.cli.doctor.findings import Finding, Result
from directsuite.cli.doctor.given import login_of, mailbox_of, settings_of, token_of
from directsuite.cli.doctor.machine import MACHINE, of_this_machine
from directsuite.cli.output import progress, show_json, show_table
from directsuite.cli.process import ExitStatus, say
from directsuite.settings import SERVICES


@attrs.frozen(kw_only=True, repr=False)
class Asked:
    """The options of the command. timeout: seconds for each check."""

    mailbox: str | None
    password_file: Path | None
    token_file: Path | None
    login: str | None
    login_password_file: Path | None
    timeout: float
    as_json: bool


def examine(asked: Asked) -> int:
    """Find what is wrong; the exit status."""

    def begin() -> Coroutine[Any, Any, int]:
        given = settings_of()
        settings = given.settings
        urls = [getattr(settings, f"{service}_url") for service in SERVICES]
        found = [
            given.found.of(MACHINE, "settings"),
            *of_this_machine(
                os.environ,
                uses_proxy=settings.proxy is not None,
                uses_tls=any(url is not None and url.startswith("https:") for url in urls),
            ),
        ]
        examination = Examination(
            given=given,
            token=token_of(asked.token_file),
            login=login_of(asked.login, asked.login_password_file),
            mailbox=mailbox_of(asked.mailbox, asked.password_file, settings),
            limit=asked.timeout,
        )
        return _examine(examination, found, as_json=asked.as_json)

    return Command().run(begin)


async def _examine(examination: Examination, found: Sequence[Finding], *, as_json: bool) -> int:
    async with progress("examining"):
        findings = [*found, *await examination.findings()]
    failures = sum(each.result is Result.FAILED for each in findings)
    warnings = sum(each.result is Result.WARNING for each in findings)
    if as_json:
        show_json({"ok": not failures, "failed": failures, "warnings": warnings, "checks": [*map(_member, findings)]})
    else:
        show_table(
            ("of", "check", "result", "in words"),
            [(each.subject, each.check, each.result.value, each.sentence) for each in findings],
        )
    if failures:
        say(f"{_counted(failures, 'check')} failed: what to do stands beside {'it' if failures == 1 else 'each'}")
        return ExitStatus.FAILED
    say(f"nothing failed; {_counted(warnings, 'warning')}" if warnings else "nothing failed")
    return ExitStatus.DONE


def _member(finding: Finding) -> dict[str, Any]:
    return {**attrs.asdict(finding), "result": finding.result.value}


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"
