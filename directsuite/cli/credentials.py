"""What a command needs to call a service: its URL, who calls, and the password or token.

A secret is never an argument, which other users of the machine can see. The first of these places that has it counts:

    the option's file ──► the variable ──► the file that the configuration names ──► the keyring
        ──► a question, where stdin is a terminal

Files of secrets and of people are read only where others can't read them. Every refusal is a RefusedError, or a
ConfigurationError, that says what to set and holds no word of a secret or a file.
"""

from __future__ import annotations

import contextlib
import getpass
import importlib
import importlib.util
import json
import os
import sys
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, cast

import attrs

from directsuite.cli.errors import NO_TEXT, RefusedError, naming, refuse_no_text
from directsuite.configuration import DEFAULT_FILE, PREFIX, Configuration, private_bytes, secret_of_file
from directsuite.errors import InvalidArgumentError
from directsuite.messaging import arguments
from directsuite.registration.models import Login
from directsuite.secret import Secret
from directsuite.settings import Settings

MAILBOX = "DIRECTSUITE_MAILBOX"
MAILBOX_PASSWORD = "DIRECTSUITE_MAILBOX_PASSWORD"  # noqa: S105  a variable's name
LOGIN = "DIRECTSUITE_LOGIN_USERNAME"
KEYRING_SERVICE = "directsuite"
"""The name under which secrets stand in a keyring: `keyring set directsuite ADDRESS`."""

Service = Literal["signing", "fax", "message", "registration"]


@attrs.frozen
class MailboxAccess:
    """A mailbox, and the settings to reach it with."""

    settings: Settings
    address: str = attrs.field(repr=False)
    password: Secret


@attrs.frozen(kw_only=True)
class SecretPlaces:
    """The places of one secret."""

    what: str
    """The secret's kind in a sentence, as in "access token"."""
    prompt: str = attrs.field(repr=False)
    """The question on a terminal, which may name whose secret it is."""
    option: str
    setting: str
    """Its name among the settings, which has a variable and, with `_file` at its end, a place in the settings file."""
    name: str = attrs.field(repr=False)
    """The secret's name in the keyring."""
    called: str
    """What `name` is, in a sentence that names nobody."""

    def secret(
        self,
        file: Path | None,
        environment: Mapping[str, str] = os.environ,
        ask: Callable[[str], str] = getpass.getpass,
    ) -> Secret:
        """The secret. file: that of the option, if it was given."""
        if file is not None:
            return secret_of_file(file, f"the file of {self.option}")
        refuse_no_text(environment.get(self._variable), self._variable)
        if (value := Configuration.read(environment).secret(self.setting)) is not None:
            return value
        if (kept := in_keyring(self.name)) is not None:
            return kept
        if is_somebody_there():
            return self.typed(ask)
        raise RefusedError(
            f"there is no {self.what}: set {self._variable}, give {self.option} FILE, "
            f"or put it into a keyring with `keyring set {KEYRING_SERVICE} {self.called}`"
        )

    @property
    def _variable(self) -> str:
        return f"{PREFIX}{self.setting.upper()}"

    def typed(self, ask: Callable[[str], str] = getpass.getpass) -> Secret:
        """The secret that somebody types."""
        text = ""
        with contextlib.suppress(EOFError):
            try:
                text = ask(f"{self.prompt}: ")
            except UnicodeDecodeError:  # which has what was typed
                raise RefusedError(f"the {self.what} {NO_TEXT}") from None
        if not text:
            raise RefusedError(f"no {self.what} was typed")
        refuse_no_text(text, f"the {self.what}")
        return Secret(text)


def settings_for(service: Service) -> Settings:
    """The settings of the environment, which have the URL of this service. Raises ConfigurationError, too."""
    settings = Settings.from_env()
    if getattr(settings, f"{service}_url") is None:
        name = "messaging" if service == "message" else service
        raise RefusedError(
            f"where is the {name} service? Set DIRECTSUITE_{service.upper()}_URL, "
            f"or {service}_url in the settings file, {DEFAULT_FILE}; "
            "to try things, `directsuite sandbox` runs all services on this machine"
        )
    return settings


def configured(name: str) -> str | None:
    """A text of the configuration. Raises ConfigurationError, too."""
    return Configuration.read().text(name)


def mailbox_access(
    address: str | None, password_file: Path | None, *, option: str = "--mailbox", settings: Settings | None = None
) -> MailboxAccess:
    """The mailbox of `option`, and its password. settings: None for the environment's, which have to have its URL."""
    settings = settings_for("message") if settings is None else settings
    address = address or configured("mailbox")
    if not address:
        raise RefusedError(f"which mailbox? Give {option} ADDRESS, or set {MAILBOX}, or mailbox in the settings file")
    refuse_no_text(address, option)
    if not is_address(address):
        raise RefusedError(f"{naming(option, address)} is no address: nurse@direct.example.org is one")
    return MailboxAccess(settings, address, mailbox_password(address, "--password-file").secret(password_file))


def is_address(text: str) -> bool:
    """Return True if the services' calls take `text` as an address and it has no blanks."""
    try:
        arguments.address(text, "address")
    except InvalidArgumentError:
        return False
    return not any(character.isspace() for character in text)


def mailbox_password(address: str, option: str) -> SecretPlaces:
    """The places of a mailbox's password. option: that of its file."""
    return SecretPlaces(
        what="mailbox password",
        prompt=f"Password of {address}",
        option=option,
        setting="mailbox_password",
        name=address,
        called="ADDRESS",
    )


def token(file: Path | None) -> Secret:
    """The access token for signing and fax."""
    places = SecretPlaces(
        what="access token",
        prompt="Access token, which the service's provider gives",
        option="--token-file",
        setting="token",
        name="token",
        called="token",
    )
    return places.secret(file)


def login(username: str | None, password_file: Path | None) -> Login:
    """The login for registration. username: None for the environment's."""
    username = username or configured("login_username")
    if not username:
        raise RefusedError(
            f"who logs in? Give --login USERNAME, or set {LOGIN}, or login_username in the settings file"
        )
    refuse_no_text(username, "--login")
    places = SecretPlaces(
        what="password of the login",
        prompt=f"Password of {username}",
        option="--password-file",
        setting="login_password",
        name=username,
        called="USERNAME",
    )
    return Login(username, places.secret(password_file))


def is_somebody_there() -> bool:
    """Return True if somebody can be asked: stdin is a terminal."""
    return sys.stdin is not None and sys.stdin.isatty()


def has_keyring() -> bool:
    """Return True if there is a keyring to ask."""
    if importlib.util.find_spec("keyring") is None:
        return False
    with contextlib.suppress(Exception):  # a keyring that can't be set up has as many errors as back ends
        keyring: Any = importlib.import_module("keyring")
        return bool(keyring.get_keyring().priority > 0)  # the back end that always fails has 0
    return False


def in_keyring(name: str) -> Secret | None:
    """A secret of the keyring; None where it has none, is locked, or isn't there."""
    if not has_keyring():
        return None
    with contextlib.suppress(Exception):  # as above
        keyring: Any = importlib.import_module("keyring")
        text = keyring.get_password(KEYRING_SERVICE, name)
        return Secret(text) if text else None
    return None


def private_document(path: Path, name: str, holding: str) -> dict[str, Any]:
    """The table of TOML or the object of JSON in a private file. name: the file, for people. holding: its members.

    path: - for stdin.
    """
    content = sys.stdin.buffer.read() if str(path) == "-" else private_bytes(path, name)
    document: Any = None
    with contextlib.suppress(ValueError, RecursionError):  # the errors of parsers hold what they read
        text = content.decode("utf-8-sig")
        is_toml = path.suffix == ".toml" or (path.suffix != ".json" and not text.lstrip().startswith("{"))
        document = tomllib.loads(text) if is_toml else json.loads(text, object_pairs_hook=_without_repetition)
    if not isinstance(document, dict):
        raise RefusedError(f"{name} can't be understood: it holds {holding}, as JSON or TOML")
    return cast("dict[str, Any]", document)


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON. Raises ValueError where it names a member twice, as TOML does."""
    document = dict(pairs)
    if len(document) < len(pairs):
        raise ValueError
    return document


def private_passwords(
    path: Path, name: str = "the passwords file", *, keys: Literal["addresses", "usernames"] = "addresses"
) -> dict[str, Secret]:
    """Names and their passwords, in a private file of TOML or JSON. name: the file, for people. keys: the names."""
    document = private_document(path, name, f"{keys} and their passwords, each name once")
    if not all(isinstance(each, str) for each in document.values()):
        raise RefusedError(
            f"not all {keys} and passwords in {name.removeprefix('the passwords file ')} are texts: "
            f'in TOML both go into quotes, "{"a@b" if keys == "addresses" else "ada"}" = "c"'
        )
    return {address: Secret(password) for address, password in document.items()}
