"""`directsuite patient passwords`: the passwords of a file become those of the patients."""

from __future__ import annotations

from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from directsuite.cli.command import Command
from directsuite.cli.credentials import private_passwords
from directsuite.cli.errors import RefusedError
from directsuite.cli.output import progress
from directsuite.cli.patient.finding import OPTIONS, Asked, access
from directsuite.cli.process import ExitStatus, say
from directsuite.errors import NotFoundError
from directsuite.registration.models import Login, UserPassword
from directsuite.settings import Settings

_FILE = "the passwords file"


def set_passwords(path: Path, asked: Asked) -> int:
    """Set them; the exit status."""
    command = Command(
        resume="passwords may have been set or not: the same command sets the same ones",
        options={**OPTIONS, "passwords": _FILE},
        advice={NotFoundError: "check the usernames and --domain; not all of the passwords are set"},
    )

    def begin() -> Coroutine[Any, Any, int]:
        found = private_passwords(path, _FILE)
        if not found or not all(name and password for name, password in found.items()):
            raise RefusedError('the passwords file lacks a username or a password: "ada" = "…" is a line of it')
        settings, credentials = access(asked)
        return _set(command, settings, credentials, [UserPassword(*each) for each in found.items()], asked.domain)

    return command.run(begin)


async def _set(
    command: Command, settings: Settings, credentials: Login, passwords: list[UserPassword], domain: str
) -> int:
    async with command.suite(settings, login=credentials) as suite, progress("setting passwords"):
        await suite.registration.set_patients_passwords(domain, passwords)
    say(f"the password of {len(passwords)} patient{'' if len(passwords) == 1 else 's'} is set")
    return ExitStatus.DONE
