"""`directsuite patient find` and `by-username`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import attrs

from directsuite.cli.command import Command
from directsuite.cli.credentials import login, settings_for
from directsuite.cli.errors import NotThereError, RefusedError
from directsuite.cli.output import members_of, progress, show_json, show_table
from directsuite.cli.patient.individual_file import individual_of
from directsuite.cli.process import ExitStatus
from directsuite.errors import NotFoundError
from directsuite.registration.models import DirectUserDetail, IDProofedIndividual, Login
from directsuite.registration.service import Registration
from directsuite.settings import Settings

OPTIONS = {"direct_domain": "--domain", "direct_username": "the username", "individual": "the individual's file"}
"""The options of parameters that an InvalidArgumentError may name."""

_NOBODY = "there is no such patient in this domain: check --domain, and how it is written"


@attrs.frozen(kw_only=True, repr=False)
class Asked:
    """The options that all commands have."""

    domain: str
    login: str | None
    password_file: Path | None
    as_json: bool


def find_individual(path: Path, asked: Asked) -> int:
    """Find somebody by who that is; the exit status."""
    command = Command(options=OPTIONS)

    def begin() -> Coroutine[Any, Any, int]:
        person = individual_of(path)
        individual = IDProofedIndividual(
            id=person.id,
            first_name=person.first_name,
            last_name=person.last_name,
            ssn4=person.ssn4,
            dob=person.dob,
        )
        settings, credentials = access(asked)
        return _find(
            command,
            settings,
            credentials,
            asked,
            lambda service: service.get_patient_address_by_meta(asked.domain, individual),
        )

    return command.run(begin)


def find_username(username: str, asked: Asked) -> int:
    """Find somebody by the username; the exit status."""
    command = Command(options=OPTIONS)

    def begin() -> Coroutine[Any, Any, int]:
        wanted = (sys.stdin.readline() if username == "-" else username).strip()
        if not wanted or "@" in wanted:
            raise RefusedError("the username is the part before the @, as ada of ada@direct.example.org")
        settings, credentials = access(asked)
        return _find(
            command,
            settings,
            credentials,
            asked,
            lambda service: service.get_patient_address_by_username(asked.domain, wanted),
        )

    return command.run(begin)


def access(asked: Asked) -> tuple[Settings, Login]:
    """The settings, and who logs in. Raises RefusedError."""
    if not asked.domain.strip() or "@" in asked.domain:
        raise RefusedError("--domain is the part behind the @, as direct.example.org")
    return settings_for("registration"), login(asked.login, asked.password_file)


def show_users(users: Sequence[DirectUserDetail], asked: Asked) -> None:
    """Users on stdout."""
    if asked.as_json:
        show_json([members_of(user) for user in users])
        return
    show_table(
        ("username", "first name", "last name", "state", "type", "email"),
        [
            (each.username, each.first_name, each.last_name, each.user_state, each.user_type, each.email)
            for each in users
        ],
    )


async def _find(
    command: Command,
    settings: Settings,
    credentials: Login,
    asked: Asked,
    look: Callable[[Registration], Coroutine[Any, Any, list[DirectUserDetail]]],
) -> int:
    async with command.suite(settings, login=credentials) as suite, progress("looking"):
        try:
            users = await look(suite.registration)
        except NotFoundError as error:
            if error.code is None:  # no answer of the service's own: it may be the URL
                raise
            users = []
    if not users:
        raise NotThereError(_NOBODY)
    show_users(users, asked)
    return ExitStatus.DONE
