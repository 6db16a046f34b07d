"""Where the mailboxes' passwords come from: never from an argument, which other users of the machine can see.

    --passwords FILE ──► DIRECTSUITE_MAILBOX_PASSWORD, for a single mailbox ──► the keyring ──► asked for on a terminal

The first that there is counts. A file is read again where it has changed, so that a new password needs no restart.
"""

from __future__ import annotations

import asyncio
import getpass
import importlib
import importlib.util
import json
import os
import stat
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from directsuite.cli.sync.refusal import RefusedError
from directsuite.errors import ConfigurationError
from directsuite.secret import Secret
from directsuite.sync.turns import Passwords

VARIABLE = "DIRECTSUITE_MAILBOX_PASSWORD"
SERVICE = "directsuite"
"""The name under which passwords stand in a keyring: `keyring set directsuite ADDRESS`."""

_FORM = "it holds addresses and their passwords, as JSON or TOML"
_ELSEWHERE = f"give --passwords FILE, or {VARIABLE} for a single mailbox, or put it into a keyring"


def passwords_for(
    addresses: Sequence[str],
    file: Path | None,
    environment: Mapping[str, str] = os.environ,
    ask: Callable[[str], str] = getpass.getpass,
) -> Passwords:
    """The source of the passwords of these mailboxes. Raises RefusedError where there is none."""
    if file is not None:
        of_file = PasswordFile(file)
        of_file.load()
        return of_file
    text = environment.get(VARIABLE)
    if text:
        if len(addresses) != 1:
            raise RefusedError(f"{VARIABLE} is for a single mailbox: give --passwords FILE for several")
        return _fixed({addresses[0]: Secret(text)})
    has_keyring = importlib.util.find_spec("keyring") is not None
    asked = dict[str, Secret]()
    if sys.stdin.isatty():
        missing = [address for address in addresses if not (has_keyring and _in_keyring(address))]
        asked = {address: Secret(ask(f"Password of {address}: ")) for address in missing}
    if has_keyring or asked:
        return _of_keyring_or(asked)
    raise RefusedError(f"there are no passwords: {_ELSEWHERE}")


class PasswordFile:
    """Passwords by address, in a file of JSON or TOML that only its owner and its group can read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read: tuple[int, int, int] | None = None
        self._passwords: dict[str, Secret] = {}

    async def __call__(self, address: str) -> Secret:
        """The password of a mailbox. Raises ConfigurationError."""
        try:
            self.load()
        except RefusedError as error:
            raise ConfigurationError(f"No password can be had: {error}") from None
        if address not in self._passwords:
            raise ConfigurationError("The passwords file has none for this mailbox: add it, the file is read again.")
        return self._passwords[address]

    def load(self) -> None:
        """Read the file, if it is another than before. Raises RefusedError."""
        try:
            about = self._path.stat()
            version = (about.st_mtime_ns, about.st_size, about.st_ino)
            if sys.platform != "win32" and about.st_mode & stat.S_IRWXO:
                raise RefusedError(f"others may read {self._path}: take that from them, chmod o= {self._path}")
            if version != self._read:
                self._passwords = _parsed(self._path.read_bytes(), self._path)
                self._read = version
        except OSError as error:
            raise RefusedError(f"the passwords file {self._path} can't be read ({type(error).__name__})") from None


def _parsed(content: bytes, path: Path) -> dict[str, Secret]:
    """Errors of parsers hold what they read: none is a cause."""
    found: Any = None
    try:
        text = content.decode("utf-8-sig")
        if path.suffix == ".toml" or (path.suffix != ".json" and not text.lstrip().startswith("{")):
            import tomllib

            found = tomllib.loads(text)
        else:
            found = json.loads(text)
    except ValueError:
        raise RefusedError(f"the passwords file {path} can't be understood: {_FORM}") from None
    if not isinstance(found, dict):
        raise RefusedError(f"the passwords file {path} can't be understood: {_FORM}")
    passwords = cast("dict[str, Any]", found)
    if not all(isinstance(each, str) for each in passwords.values()):
        raise RefusedError(f'an address or a password in {path} is no text: in TOML both go into quotes, "a@b" = "c"')
    return {address: Secret(password) for address, password in passwords.items()}


def _fixed(passwords: Mapping[str, Secret]) -> Passwords:
    async def password(address: str) -> Secret:
        """As it was given."""
        return passwords[address]

    return password


def _of_keyring_or(asked: Mapping[str, Secret]) -> Passwords:
    async def password(address: str) -> Secret:
        """As it was typed, or as it stands in the keyring by now."""
        found = asked.get(address) or await asyncio.to_thread(_in_keyring, address)
        if found is None:
            raise ConfigurationError(f"The keyring has no password for this mailbox: put it there, or {_ELSEWHERE}.")
        return found

    return password


def _in_keyring(address: str) -> Secret | None:
    keyring: Any = importlib.import_module("keyring")
    try:
        password = keyring.get_password(SERVICE, address)
    except keyring.errors.KeyringError:  # it is locked, or this machine has none
        return None
    return None if password is None else Secret(password)
