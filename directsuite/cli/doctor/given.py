"""What the services are reached with: settings, of which one wrong URL doesn't hide the others, and secrets."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

import attrs

from directsuite.cli import credentials
from directsuite.cli.credentials import in_keyring
from directsuite.cli.doctor.findings import Found, failed, not_checked, ok
from directsuite.cli.errors import RefusedError, in_own_words
from directsuite.errors import ConfigurationError
from directsuite.registration.models import Login
from directsuite.secret import Secret
from directsuite.settings import SERVICES, Settings, Variables

T = TypeVar("T")

_SAFE = "http://127.0.0.1"


@attrs.frozen(kw_only=True)
class GivenSettings:
    """The settings, without the URLs that can't be right. problems: of those, by service.

    lacks_file: the file of DIRECTSUITE_CONFIG can't be used, and what stands in it isn't known.
    """

    settings: Settings
    problems: Mapping[str, str]
    found: Found
    lacks_file: bool = False


@attrs.frozen
class Given(Generic[T]):
    """A secret that was given, or why there is none to check."""

    value: T | None
    found: Found | None = None


def settings_of(environment: Mapping[str, str] = os.environ) -> GivenSettings:
    """The settings of the environment."""
    names = ("DIRECTSUITE_CONFIG", *(f"DIRECTSUITE_{service.upper()}_URL" for service in SERVICES))
    variables, problems = {name: environment[name] for name in names if name in environment}, dict[str, str]()
    trouble: Found | None = None
    while True:
        try:
            settings = Settings.from_env(Variables(variables))
        except ConfigurationError as error:
            origin = variables.get("DIRECTSUITE_CONFIG") or "the environment"
            problem = error.explanation.removeprefix(f"{origin}: ")
            wrong = next((each for each in SERVICES if problem.startswith(f"{each}_url ")), None)
            if wrong is not None and wrong not in problems:
                problems[wrong] = in_own_words(problem).removeprefix(f"{wrong}_url ")
                variables[f"DIRECTSUITE_{wrong.upper()}_URL"] = (
                    _SAFE  # it goes before the file's, and is left out below
                )
            elif variables.pop("DIRECTSUITE_CONFIG", None):
                trouble = failed(in_own_words(error.explanation))  # the URLs of variables are looked at all the same
            else:
                return GivenSettings(settings=Settings(), problems={}, found=failed(in_own_words(error.explanation)))
        else:
            break
    without: dict[str, Any] = {f"{each}_url": None for each in problems}
    settings = attrs.evolve(settings, **without)
    if trouble is not None:
        found = trouble
    elif not problems and not any(getattr(settings, f"{each}_url") for each in SERVICES):
        found = failed(
            "no service has a URL: set DIRECTSUITE_MESSAGE_URL or one of its sisters (SIGNING, FAX, REGISTRATION), "
            "or name a TOML file with them in DIRECTSUITE_CONFIG"
        )
    else:
        file = " and the file of DIRECTSUITE_CONFIG" if variables.get("DIRECTSUITE_CONFIG") else ""
        found = ok(f"read from the environment{file}")
    return GivenSettings(settings=settings, problems=problems, found=found, lacks_file=trouble is not None)


def token_of(file: Path | None) -> Given[Secret]:
    """The token for signing and fax; nobody is asked for one."""
    if file is None and not os.environ.get("DIRECTSUITE_TOKEN") and in_keyring("token") is None:
        return Given(None, not_checked("there is no token: set DIRECTSUITE_TOKEN, or give --token-file FILE"))
    return _given(lambda: credentials.token(file))


def login_of(username: str | None, file: Path | None) -> Given[Login]:
    """The login for registration."""
    if not username:
        return Given(None, not_checked(f"there is no login: set {credentials.LOGIN}, or give --login USERNAME"))
    return _given(lambda: credentials.login(username, file))


def mailbox_of(address: str | None, file: Path | None, settings: Settings) -> Given[credentials.MailboxAccess]:
    """The mailbox, and its password; whether there is a URL for it is another check's."""
    if not address:
        return Given(None, not_checked("no mailbox is named: give --mailbox ADDRESS"))
    return _given(lambda: credentials.mailbox_access(address, file, settings=settings))


def _given(look: Callable[[], T]) -> Given[T]:
    try:
        return Given(look())
    except RefusedError as refused:
        return Given(None, failed(str(refused)))
    except ConfigurationError as error:
        return Given(None, failed(in_own_words(error.explanation)))
