"""The settings, user names and secrets that a command needs to call a service.

A secret is never an argument, because other users of the machine can see arguments. It is read from the first of these
places that has it:

    the option's file ──► the variable ──► the file named in the configuration ──► the keyring
        ──► a question, if stdin is a terminal

A file with secrets or personal data, a private file, is read only if other users can't read it. The errors contain no
part of a secret or file.
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

import directsuite as ds
from directsuite.cli.errors import NOT_TEXT_PROBLEM, UsageError, validate_text, with_value
from directsuite.configuration import (
    DEFAULT_FILE,
    MAX_SECRETS_BYTES,
    PREFIX,
    Configuration,
    read_private_file,
    read_secret_file,
)
from directsuite.messaging import arguments

MAILBOX_VAR = "DIRECTSUITE_MAILBOX"
MAILBOX_PASSWORD_VAR = "DIRECTSUITE_MAILBOX_PASSWORD"  # noqa: S105  a variable's name
LOGIN_VAR = "DIRECTSUITE_LOGIN_USERNAME"
KEYRING_SERVICE = "directsuite"
"""The service name of secrets in a keyring: `keyring set directsuite ADDRESS`."""

Service = Literal["signing", "fax", "message", "registration"]


@attrs.frozen
class MailboxAccess:
    """A mailbox, its password and the settings to connect."""

    settings: ds.Settings
    address: str = attrs.field(repr=False)
    password: ds.Secret


@attrs.frozen(kw_only=True)
class SecretLookup:
    """The places to look for a secret."""

    description: str
    """The kind of secret, such as "access token", for messages."""
    prompt: str = attrs.field(repr=False)
    """The question on a terminal. It may contain the owner's name."""
    option: str
    """The option with the secret's file."""
    setting: str
    """The setting's name: in upper case it names a variable; with `_file` appended, a key of the settings file."""
    keyring_name: str = attrs.field(repr=False)
    """The secret's user name in the keyring."""
    keyring_placeholder: str
    """The kind of `keyring_name` for messages, such as ADDRESS."""

    def find_secret(
        self,
        file: Path | None,
        environment: Mapping[str, str] = os.environ,
        ask: Callable[[str], str] = getpass.getpass,
    ) -> ds.Secret:
        """Return the secret. Raises UsageError if it is missing or not text, ConfigurationError if a file is invalid.

        file: the value of `option`; None if it was not given.
        """
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
            f"No {self.description} is set. Set {self._variable}, give {self.option} FILE, "
            f"or add it to a keyring with `keyring set {KEYRING_SERVICE} {self.keyring_placeholder}`."
        )

    @property
    def _variable(self) -> str:
        return f"{PREFIX}{self.setting.upper()}"

    def ask_for_secret(self, ask: Callable[[str], str] = getpass.getpass) -> ds.Secret:
        """Ask for the secret on the terminal. Raises UsageError if the text is empty or can't be decoded."""
        text = ""
        with contextlib.suppress(EOFError):
            try:
                text = ask(f"{self.prompt}: ")
            except UnicodeDecodeError:  # replaced, because it contains the typed bytes
                raise UsageError(f"The {self.description} {NOT_TEXT_PROBLEM}.") from None
        if not text:
            raise UsageError(f"No {self.description} was typed.")
        validate_text(text, f"The {self.description}")
        return ds.Secret(text)


def load_settings(service: Service) -> ds.Settings:
    """Return the settings. Raises ConfigurationError if they are invalid, UsageError if `service` has no URL."""
    settings = ds.Settings.from_env()
    if getattr(settings, f"{service}_url") is None:
        name = "messaging" if service == "message" else service
        raise UsageError(
            f"The URL of the {name} service is not set. Set DIRECTSUITE_{service.upper()}_URL, "
            f"or {service}_url in the settings file, {DEFAULT_FILE}. "
            "For trials, `directsuite sandbox` runs all services on this machine."
        )
    return settings


def read_setting(name: str) -> str | None:
    """Return a setting's text; None if it is not set. Raises ConfigurationError if the settings file is invalid."""
    return Configuration.read().get_text(name)


def get_mailbox_access(
    address: str | None, password_file: Path | None, *, option: str = "--mailbox", settings: ds.Settings | None = None
) -> MailboxAccess:
    """Return a mailbox with its password.

    address: the value of `option`; None for the configured mailbox. settings: None to load them.
    Raises UsageError if a mailbox, password or URL is missing or the address is invalid, ConfigurationError for an
    invalid setting or file.
    """
    settings = load_settings("message") if settings is None else settings
    address = address or read_setting("mailbox")
    if not address:
        raise UsageError(
            f"No mailbox is given. Give {option} ADDRESS, or set {MAILBOX_VAR}, or mailbox in the settings file."
        )
    validate_text(address, option)
    if not is_address(address):
        raise UsageError(
            f"{with_value(option, address)} is not an e-mail address. Expected something like nurse@direct.example.org."
        )
    return MailboxAccess(settings, address, make_password_lookup(address, "--password-file").find_secret(password_file))


def is_address(text: str) -> bool:
    """Return True if the services accept the address and it contains no whitespace."""
    try:
        arguments.validate_address(text, "address")
    except ds.InvalidArgumentError:
        return False
    return not any(character.isspace() for character in text)


def make_password_lookup(address: str, option: str) -> SecretLookup:
    """Return the places of a mailbox's password. option: the option with its file."""
    return SecretLookup(
        description="mailbox password",
        prompt=f"Password of {address}",
        option=option,
        setting="mailbox_password",
        keyring_name=address,
        keyring_placeholder="ADDRESS",
    )


def read_token(file: Path | None) -> ds.Secret:
    """Return the access token for signing and fax.

    file: the value of --token-file. Raises UsageError if no token is set, ConfigurationError if a file is invalid.
    """
    places = SecretLookup(
        description="access token",
        prompt="Access token from the service's provider",
        option="--token-file",
        setting="token",
        keyring_name="token",
        keyring_placeholder="token",
    )
    return places.find_secret(file)


def read_login(username: str | None, password_file: Path | None) -> ds.Login:
    """Return the login for registration.

    username: the value of --login; None for the configured user name. password_file: the value of --password-file.
    Raises UsageError if the user name or password is missing, ConfigurationError if a file is invalid.
    """
    username = username or read_setting("login_username")
    if not username:
        raise UsageError(
            f"No login is given. Give --login USERNAME, or set {LOGIN_VAR}, or login_username in the settings file."
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
    return ds.Login(username, places.find_secret(password_file))


def is_interactive() -> bool:
    """Return True if stdin is a terminal."""
    return sys.stdin is not None and sys.stdin.isatty()


def has_keyring() -> bool:
    """Return True if the package keyring is installed and has a usable back end."""
    if importlib.util.find_spec("keyring") is None:
        return False
    with contextlib.suppress(Exception):  # each back end raises its own errors
        keyring: Any = importlib.import_module("keyring")
        return bool(keyring.get_keyring().priority > 0)  # keyring's back end that always fails has 0
    return False


def find_in_keyring(name: str) -> ds.Secret | None:
    """Return a secret from the keyring; None if the secret is missing, or the keyring is locked or missing."""
    if not has_keyring():
        return None
    with contextlib.suppress(Exception):  # as above
        keyring: Any = importlib.import_module("keyring")
        text = keyring.get_password(KEYRING_SERVICE, name)
        return ds.Secret(text) if text else None
    return None


def read_private_document(path: Path, name: str, expected_members: str) -> dict[str, Any]:
    """Read a TOML table or a JSON object from a private file.

    path: - for stdin. name: the file's name in messages. expected_members: the expected content, for messages.
    Raises ConfigurationError if the file can't be read or is not private, UsageError if its content is invalid.
    """
    content = sys.stdin.buffer.read(MAX_SECRETS_BYTES + 1) if str(path) == "-" else read_private_file(path, name)
    if len(content) > MAX_SECRETS_BYTES:
        raise UsageError(f"Could not read {name}: it has more than {MAX_SECRETS_BYTES:,} bytes. Name a different file.")
    document: Any = None
    with contextlib.suppress(ValueError, RecursionError):  # not chained, because parsers' errors quote the content
        text = content.decode("utf-8-sig")
        is_toml = path.suffix == ".toml" or (path.suffix != ".json" and not text.lstrip().startswith("{"))
        document = tomllib.loads(text) if is_toml else json.loads(text, object_pairs_hook=_reject_duplicate_keys)
    if not isinstance(document, dict):
        raise UsageError(f"Could not parse {name}. It must contain {expected_members}, as JSON or TOML.")
    return cast("dict[str, Any]", document)


def _reject_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) < len(pairs):
        raise ValueError
    return document


def read_private_passwords(
    path: Path, name: str = "the passwords file", *, keys: Literal["addresses", "usernames"] = "addresses"
) -> dict[str, ds.Secret]:
    """Return the passwords in a private TOML or JSON file by their names. keys: the kind of names, for messages.

    Raises ConfigurationError or UsageError as `read_private_document`.
    """
    document = read_private_document(path, name, f"{keys} and their passwords, each name once")
    if not all(isinstance(each, str) for each in document.values()):
        raise UsageError(
            f"Not all {keys} and passwords in {name} are strings. "
            f'In TOML, both must be in quotes, such as "{"a@b" if keys == "addresses" else "ada"}" = "c".'
        )
    return {address: ds.Secret(password) for address, password in document.items()}
