"""What a command needs to call a service: its URL, and who calls. Raises RefusedError, which says what to set."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import attrs

from directsuite.cli.refusal import RefusedError, refuse_no_text
from directsuite.cli.secret_places import SecretPlaces
from directsuite.errors import InvalidArgumentError
from directsuite.messaging import arguments
from directsuite.registration.models import Login
from directsuite.secret import Secret
from directsuite.settings import Settings

MAILBOX = "DIRECTSUITE_MAILBOX"
MAILBOX_PASSWORD = "DIRECTSUITE_MAILBOX_PASSWORD"  # noqa: S105  a variable's name
LOGIN = "DIRECTSUITE_LOGIN_USERNAME"

Needed = Literal["signing", "fax", "message", "registration"]

_NAMES: dict[Needed, str] = {
    "signing": "signing",
    "fax": "fax",
    "message": "messaging",
    "registration": "registration",
}


@attrs.frozen
class MailboxAccess:
    """A mailbox, and the settings to reach it with."""

    settings: Settings
    address: str = attrs.field(repr=False)
    password: Secret


def settings_for(service: Needed) -> Settings:
    """The settings of the environment, which have the URL of this service. Raises ConfigurationError, too."""
    settings = Settings.from_env()
    if getattr(settings, f"{service}_url") is None:
        raise RefusedError(
            f"where is the {_NAMES[service]} service? Set DIRECTSUITE_{service.upper()}_URL, "
            f"or {service}_url in the TOML file that DIRECTSUITE_CONFIG names"
        )
    return settings


def mailbox_access(
    address: str | None, password_file: Path | None, *, option: str = "--mailbox", settings: Settings | None = None
) -> MailboxAccess:
    """The mailbox of `option`, and its password. settings: None for the environment's, which have to have its URL."""
    settings = settings_for("message") if settings is None else settings
    if not address:
        raise RefusedError(f"which mailbox? Give {option} ADDRESS, or set {MAILBOX}")
    refuse_no_text(address, option)
    if not is_address(address):
        raise RefusedError(f"{option} is no address: nurse@direct.example.org is one")
    return MailboxAccess(settings, address, mailbox_password(address, "--password-file").secret(password_file))


def is_address(text: str) -> bool:
    """Whether it can be one: as the services' calls have it, and without blanks."""
    try:
        arguments.address(text, "address")
    except InvalidArgumentError:
        return False
    return not any(character.isspace() for character in text)


def mailbox_password(address: str, option: str) -> SecretPlaces:
    """The places of a mailbox's password. option: of its file."""
    return SecretPlaces(
        what="mailbox password",
        prompt=f"Password of {address}",
        option=option,
        variable=MAILBOX_PASSWORD,
        name=address,
        called="ADDRESS",
    )


def token(file: Path | None) -> Secret:
    """The access token for signing and fax."""
    places = SecretPlaces(
        what="access token",
        prompt="Access token",
        option="--token-file",
        variable="DIRECTSUITE_TOKEN",
        name="token",
        called="token",
    )
    return places.secret(file)


def login(username: str | None, password_file: Path | None) -> Login:
    """The login for registration. username: None for the environment's."""
    username = username or os.environ.get(LOGIN)
    if not username:
        raise RefusedError(f"who logs in? Give --login USERNAME, or set {LOGIN}")
    refuse_no_text(username, "--login")
    places = SecretPlaces(
        what="password of the login",
        prompt=f"Password of {username}",
        option="--password-file",
        variable="DIRECTSUITE_LOGIN_PASSWORD",
        name=username,
        called="USERNAME",
    )
    return Login(username, places.secret(password_file))
