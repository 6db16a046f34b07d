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
import json
import sys
import tomllib
from pathlib import Path
from typing import Any, Literal, cast

import attrs

import directsuite as ds
from directsuite.cli import process
from directsuite.cli.errors import (
    NOT_TEXT_PROBLEM,
    UsageError,
    validate_text,
    with_value,
)
from directsuite.cli.process import is_verbose
from directsuite.config_file import (
    DEFAULT_FILE,
    MAX_SECRETS_BYTES,
    PREFIX,
    Configuration,
    explain_syntax_error,
    read_private_file,
    read_secret_file,
)
from directsuite.core.credentials import find_header_problem
from directsuite.core.files import explain_os_error
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


_SECRET_SOURCES = {
    "token": ("access token", "--token-file", "token"),
    "mailbox_password": ("mailbox password", "--password-file", "ADDRESS"),
    "login_password": ("password of the login", "--password-file", "USERNAME"),
}
"""The description, the option, and the name in the keyring of each secret, for messages."""


def find_secret(name: str, file: Path | None, owner: str = "") -> ds.Secret:
    """Return the secret from the first of its places.

    Raises UsageError if no place has it or a token is malformed, ConfigurationError if its file is invalid.

    name: such as "token". file: the value of its option. owner: the address or user name of a password.
    """
    if owner:
        process.state.secret_owners[name] = owner
    secret, process.state.secret_sources[name] = _find_secret(name, file, owner)
    if name == "token" and (problem := find_header_problem(secret.reveal())) is not None:
        raise UsageError(f"The access token from {process.state.secret_sources[name]} {problem}. Correct it there.")
    return secret


def _find_secret(name: str, file: Path | None, owner: str) -> tuple[ds.Secret, str]:
    description, option, placeholder = _SECRET_SOURCES[name]
    if file is not None:
        source = with_value(f"the file of {option}", file)
        return read_secret_file(file, source), source
    configuration, variable = Configuration.read(), f"{PREFIX}{name.upper()}"
    validate_text(configuration.variables.get(variable), variable)
    if (secret := configuration.read_secret(name)) is not None:
        return secret, configuration.find_origin(name)
    if (secret := find_in_keyring(owner or name)) is not None:
        return secret, "the keyring"
    if is_interactive():
        prompt = f"Password of {owner}" if owner else "Access token from the service's provider"
        return ask_for_secret(description, prompt), "your answer to the question"
    raise UsageError(
        f"No {description} is set. Set {variable}, give {option} FILE, "
        f"or add it to a keyring with `keyring set {KEYRING_SERVICE} {placeholder}`."
    )


def ask_for_secret(description: str, prompt: str) -> ds.Secret:
    """Ask for a secret on the terminal. Raises UsageError if the text is empty or can't be decoded."""
    text = ""
    with contextlib.suppress(EOFError):
        try:
            text = getpass.getpass(f"{prompt}: ")
        except UnicodeDecodeError:  # replaced, because it contains the typed bytes
            raise UsageError(f"The {description} {NOT_TEXT_PROBLEM}.") from None
    if not text:
        raise UsageError(f"No {description} was typed.")
    validate_text(text, f"The {description}")
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


def find_setting(typed: str | None, option: str, name: str) -> tuple[str | None, str]:
    """Return the value of an option, or else of a setting, and its source for messages. name: the setting."""
    if typed:
        return typed, option
    configuration = Configuration.read()
    text = configuration.get_text(name)
    is_in_file = name in configuration and not configuration[name].is_variable
    return text, f"{name} in {configuration[name].origin}" if is_in_file else f"{PREFIX}{name.upper()}"


def get_mailbox_address(address: str | None) -> str:
    """Return the mailbox's address. address: the value of --mailbox; None for the configured mailbox."""
    address, source = find_setting(address, "--mailbox", "mailbox")
    if not address:
        raise UsageError(
            f"No mailbox is given. Give --mailbox ADDRESS, or set {MAILBOX_VAR}, or mailbox in the settings file."
        )
    validate_text(address, source)
    validate_address(address, source)
    return address


def get_mailbox_access(
    address: str | None, password_file: Path | None, *, settings: ds.Settings | None = None
) -> MailboxAccess:
    """Return a mailbox with its password. address: see `get_mailbox_address`. settings: None to load them."""
    settings = load_settings("message") if settings is None else settings
    address = get_mailbox_address(address)
    return MailboxAccess(settings, address, find_secret("mailbox_password", password_file, address))


def validate_address(address: str, source: str) -> None:
    """Raise UsageError if the services don't accept the address, or if it contains whitespace."""
    with contextlib.suppress(ds.InvalidArgumentError):
        arguments.validate_address(address, "address")
        if not any(character.isspace() for character in address):
            return
    raise UsageError(
        f"{with_value(source, address)} is not an e-mail address. Expected something like nurse@direct.example.org."
    )


def read_token(file: Path | None) -> ds.Secret | ds.ClientCredentials | ds.RefreshToken:
    """Return the access token for signing and fax, or the OAuth 2.0 grant with which the suite requests tokens.

    file: the value of --token-file. Raises UsageError if neither is set, ConfigurationError if a setting or file is
    invalid, or both are set in the same place.
    """
    if file is None:
        token = Configuration.read().read_token(allow_insecure_http=ds.Settings.from_env().allow_insecure_http)
        if token is not None and not isinstance(token, ds.Secret):
            process.state.secret_sources["token"] = "the OAuth client of token_url"  # noqa: S105  a source
            return token
    return find_secret("token", file)


def read_login(username: str | None, password_file: Path | None) -> ds.Login:
    """Return the login for registration.

    username: the value of --login; None for the configured user name. password_file: the value of --password-file.
    """
    username, source = find_setting(username, "--login", "login_username")
    if not username:
        raise UsageError(
            f"No login is given. Give --login USERNAME, or set {LOGIN_VAR}, or login_username in the settings file."
        )
    validate_text(username, source)
    return ds.Login(username, find_secret("login_password", password_file, username))


def is_interactive() -> bool:
    """Return True if stdin is a terminal."""
    return sys.stdin is not None and sys.stdin.isatty()


def has_keyring() -> bool:
    """Return True if the package keyring is installed and has a usable back end."""
    with contextlib.suppress(Exception):  # each back end raises its own errors
        keyring: Any = importlib.import_module("keyring")
        return bool(keyring.get_keyring().priority > 0)  # keyring's back end that always fails has 0
    return False


def find_in_keyring(name: str) -> ds.Secret | None:
    """Return a secret from the keyring; None if the secret is missing, or the keyring is locked or missing."""
    text = None
    if has_keyring():
        with contextlib.suppress(Exception):  # as above
            text = importlib.import_module("keyring").get_password(KEYRING_SERVICE, name)
    return ds.Secret(text) if text else None


def read_input(path: Path, name: str, *, limit: int, advice: str = "Name a different file.") -> bytes:
    """Read a file that the user named, or stdin for -. Raises UsageError if it can't be read or exceeds `limit` bytes.

    name: the file in messages, such as "The file of --image". advice: what to do about a file that is too large.
    """
    try:
        with contextlib.nullcontext(sys.stdin.buffer) if str(path) == "-" else path.open("rb") as file:
            content = file.read(limit + 1)
    except OSError as error:
        raise UsageError(f"{name} can't be read ({explain_os_error(error)}). Check its path and permissions.") from None
    if len(content) > limit:
        raise UsageError(f"{name} has more than {limit:,} bytes. {advice}")
    return content


def decode_input(content: bytes, name: str, *, advice: str = "Save it in UTF-8.") -> str:
    """Decode UTF-8 text and remove a byte order mark. Raises UsageError if `content` is not UTF-8."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"{name[0].upper()}{name[1:]} is not text in UTF-8. {advice}") from None


def read_private_document(path: Path, name: str, expected_members: str) -> dict[str, Any]:
    """Read a TOML table or a JSON object from a private file.

    path: - for stdin. name: the file's name in messages. expected_members: the expected content, for messages.
    """
    is_stdin = str(path) == "-"
    if is_stdin:
        content = read_input(path, name, limit=MAX_SECRETS_BYTES)
    else:
        content = read_private_file(path, name, is_path_shown=is_verbose())
    text = decode_input(content, name)

    def make_table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(table := dict(pairs)) < len(pairs):
            raise UsageError(f"Could not parse {name}: a name is in it twice. List each name once.")
        return table

    is_toml = path.suffix == ".toml" or (path.suffix != ".json" and not text.lstrip().startswith("{"))
    try:
        document = tomllib.loads(text) if is_toml else json.loads(text, object_pairs_hook=make_table)
    except (ValueError, RecursionError) as error:  # not chained, because parsers' errors quote the content
        problem = f"{explain_syntax_error(error, 'TOML' if is_toml else 'JSON')}. Correct the file"
    else:
        if isinstance(document, dict):
            return cast("dict[str, Any]", document)
        problem = f"it must contain {expected_members}, as JSON or TOML"
    raise UsageError(f"Could not parse {name}: {problem}.")


def read_private_passwords(
    path: Path, name: str = "the passwords file", *, keys: Literal["addresses", "usernames"] = "addresses"
) -> dict[str, ds.Secret]:
    """Return the passwords in a private TOML or JSON file by their names. keys: the kind of names, for messages."""
    document = read_private_document(path, name, f"{keys} and their passwords")
    if not all(isinstance(each, str) for each in document.values()):
        raise UsageError(
            f"Not all {keys} and passwords in {name} are strings. "
            f'In TOML, both must be in quotes, such as "{"a@b" if keys == "addresses" else "ada"}" = "c".'
        )
    return {address: ds.Secret(password) for address, password in document.items()}
