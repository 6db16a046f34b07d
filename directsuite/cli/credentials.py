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

from directsuite.cli.errors import NOT_TEXT_PROBLEM, UsageError, validate_text, with_value
from directsuite.configuration import DEFAULT_FILE, PREFIX, Configuration, read_private_file, read_secret_file
from directsuite.errors import InvalidArgumentError
from directsuite.messaging import arguments
from directsuite.registration.models import Login
from directsuite.secret import Secret
from directsuite.settings import Settings

MAILBOX_VAR = "DIRECTSUITE_MAILBOX"
MAILBOX_PASSWORD_VAR = "DIRECTSUITE_MAILBOX_PASSWORD"  # noqa: S105  a variable's name
LOGIN_VAR = "DIRECTSUITE_LOGIN_USERNAME"
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
class SecretLookup:
    """The places of one secret."""

    description: str
    """The secret's kind in a sentence, as in "access token"."""
    prompt: str = attrs.field(repr=False)
    """The question on a terminal, which may name whose secret it is."""
    option: str
    setting: str
    """Its name among the settings, which has a variable and, with `_file` at its end, a place in the settings file."""
    keyring_name: str = attrs.field(repr=False)
    """The secret's name in the keyring."""
    keyring_placeholder: str
    """What `name` is, in a sentence that names nobody."""

    def find_secret(
        self,
        file: Path | None,
        environment: Mapping[str, str] = os.environ,
        ask: Callable[[str], str] = getpass.getpass,
    ) -> Secret:
        """The secret. file: that of the option, if it was given."""
        if file is not None:
            return read_secret_file(file, f"the file of {self.option}")
        validate_text(environment.get(self._variable), self._variable)
        if (value := Configuration.read(environment).read_secret(self.setting)) is not None:
            return value
        if (stored_secret := find_in_keyring(self.keyring_name)) is not None:
            return stored_secret
        if is_interactive():
            return self.ask_for_secret(ask)
        raise UsageError(
            f"there is no {self.description}: set {self._variable}, give {self.option} FILE, "
            f"or put it into a keyring with `keyring set {KEYRING_SERVICE} {self.keyring_placeholder}`"
        )

    @property
    def _variable(self) -> str:
        return f"{PREFIX}{self.setting.upper()}"

    def ask_for_secret(self, ask: Callable[[str], str] = getpass.getpass) -> Secret:
        """The secret that somebody types."""
        text = ""
        with contextlib.suppress(EOFError):
            try:
                text = ask(f"{self.prompt}: ")
            except UnicodeDecodeError:  # which has what was typed
                raise UsageError(f"the {self.description} {NOT_TEXT_PROBLEM}") from None
        if not text:
            raise UsageError(f"no {self.description} was typed")
        validate_text(text, f"the {self.description}")
        return Secret(text)


def load_settings(service: Service) -> Settings:
    """The settings of the environment, which have the URL of this service. Raises ConfigurationError, too."""
    settings = Settings.from_env()
    if getattr(settings, f"{service}_url") is None:
        name = "messaging" if service == "message" else service
        raise UsageError(
            f"where is the {name} service? Set DIRECTSUITE_{service.upper()}_URL, "
            f"or {service}_url in the settings file, {DEFAULT_FILE}; "
            "to try things, `directsuite sandbox` runs all services on this machine"
        )
    return settings


def read_setting(name: str) -> str | None:
    """A text of the configuration. Raises ConfigurationError, too."""
    return Configuration.read().get_text(name)


def get_mailbox_access(
    address: str | None, password_file: Path | None, *, option: str = "--mailbox", settings: Settings | None = None
) -> MailboxAccess:
    """The mailbox of `option`, and its password. settings: None for the environment's, which have to have its URL."""
    settings = load_settings("message") if settings is None else settings
    address = address or read_setting("mailbox")
    if not address:
        raise UsageError(f"which mailbox? Give {option} ADDRESS, or set {MAILBOX_VAR}, or mailbox in the settings file")
    validate_text(address, option)
    if not is_address(address):
        raise UsageError(
            f"{with_value(option, address)} is not an e-mail address: expected something like nurse@direct.example.org"
        )
    return MailboxAccess(settings, address, make_password_lookup(address, "--password-file").find_secret(password_file))


def is_address(text: str) -> bool:
    """Return True if the services' calls take `text` as an address and it has no blanks."""
    try:
        arguments.validate_address(text, "address")
    except InvalidArgumentError:
        return False
    return not any(character.isspace() for character in text)


def make_password_lookup(address: str, option: str) -> SecretLookup:
    """The places of a mailbox's password. option: that of its file."""
    return SecretLookup(
        description="mailbox password",
        prompt=f"Password of {address}",
        option=option,
        setting="mailbox_password",
        keyring_name=address,
        keyring_placeholder="ADDRESS",
    )


def read_token(file: Path | None) -> Secret:
    """The access token for signing and fax."""
    places = SecretLookup(
        description="access token",
        prompt="Access token, which the service's provider gives",
        option="--token-file",
        setting="token",
        keyring_name="token",
        keyring_placeholder="token",
    )
    return places.find_secret(file)


def read_login(username: str | None, password_file: Path | None) -> Login:
    """The login for registration. username: None for the environment's."""
    username = username or read_setting("login_username")
    if not username:
        raise UsageError(
            f"who logs in? Give --login USERNAME, or set {LOGIN_VAR}, or login_username in the settings file"
        )
    validate_text(username, "--login")
    places = SecretLookup(
        description="password of the login",
        prompt=f"Password of {username}",
        option="--password-file",
        setting="login_password",
        keyring_name=username,
        keyring_placeholder="USERNAME",
    )
    return Login(username, places.find_secret(password_file))


def is_interactive() -> bool:
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


def find_in_keyring(name: str) -> Secret | None:
    """A secret of the keyring; None where it has none, is locked, or isn't there."""
    if not has_keyring():
        return None
    with contextlib.suppress(Exception):  # as above
        keyring: Any = importlib.import_module("keyring")
        text = keyring.get_password(KEYRING_SERVICE, name)
        return Secret(text) if text else None
    return None


def read_private_document(path: Path, name: str, expected_members: str) -> dict[str, Any]:
    """The table of TOML or the object of JSON in a private file. name: the file, for people. holding: its members.

    path: - for stdin.
    """
    content = sys.stdin.buffer.read() if str(path) == "-" else read_private_file(path, name)
    document: Any = None
    with contextlib.suppress(ValueError, RecursionError):  # the errors of parsers hold what they read
        text = content.decode("utf-8-sig")
        is_toml = path.suffix == ".toml" or (path.suffix != ".json" and not text.lstrip().startswith("{"))
        document = tomllib.loads(text) if is_toml else json.loads(text, object_pairs_hook=_reject_duplicate_keys)
    if not isinstance(document, dict):
        raise UsageError(f"{name} can't be understood: it holds {expected_members}, as JSON or TOML")
    return cast("dict[str, Any]", document)


def _reject_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON. Raises ValueError where it names a member twice, as TOML does."""
    document = dict(pairs)
    if len(document) < len(pairs):
        raise ValueError
    return document


def read_private_passwords(
    path: Path, name: str = "the passwords file", *, keys: Literal["addresses", "usernames"] = "addresses"
) -> dict[str, Secret]:
    """Names and their passwords, in a private file of TOML or JSON. name: the file, for people. keys: the names."""
    document = read_private_document(path, name, f"{keys} and their passwords, each name once")
    if not all(isinstance(each, str) for each in document.values()):
        raise UsageError(
            f"not all {keys} and passwords in {name.removeprefix('the passwords file ')} are texts: "
            f'in TOML both go into quotes, "{"a@b" if keys == "addresses" else "ada"}" = "c"'
        )
    return {address: Secret(password) for address, password in document.items()}
