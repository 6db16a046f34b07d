"""Where the mailboxes' passwords come from: never from an argument, which other users of the machine can see.

    --passwords FILE ──► DIRECTSUITE_MAILBOX_PASSWORD, for a single mailbox ──► the keyring ──► asked for on a terminal

The first that there is counts. A file is read again where it has changed, so that a new password needs no restart.
"""

from __future__ import annotations

import asyncio
import getpass
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from directsuite.cli.credentials import (
    MAILBOX_PASSWORD,
    has_keyring,
    in_keyring,
    is_somebody_there,
    mailbox_password,
    private_passwords,
)
from directsuite.cli.errors import RefusedError
from directsuite.core.failures import reason_of
from directsuite.errors import ConfigurationError
from directsuite.secret import Secret
from directsuite.sync.turns import Passwords

_ELSEWHERE = f"give --passwords FILE, or {MAILBOX_PASSWORD} for a single mailbox, or put it into a keyring"


def passwords_for(
    addresses: Sequence[str],
    file: Path | None,
    environment: Mapping[str, str] = os.environ,
    ask: Callable[[str], str] = getpass.getpass,
) -> Passwords:
    """The source of the passwords of these mailboxes. Raises RefusedError where there is none."""
    if file is not None:
        of_file = _File(file)
        of_file.load()
        return of_file
    text = environment.get(MAILBOX_PASSWORD)
    if text:
        if len(addresses) != 1:
            raise RefusedError(f"{MAILBOX_PASSWORD} is for a single mailbox: give --passwords FILE for several")
        return _of_keyring_or({addresses[0]: Secret(text)})
    typed = dict[str, Secret]()
    if is_somebody_there():
        missing = [address for address in addresses if in_keyring(address) is None]
        typed = {address: mailbox_password(address, "--passwords").typed(ask) for address in missing}
    if typed or has_keyring():
        return _of_keyring_or(typed)
    raise RefusedError(f"there are no passwords: {_ELSEWHERE}")


class _File:
    """Passwords by address, in a file of JSON or TOML that only its owner and its group can read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read: tuple[int, int, int, int] | None = None
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
        name = f"the passwords file {self._path}"
        try:
            about = self._path.stat()
        except OSError as error:
            raise RefusedError(f"{name} can't be read ({reason_of(error)}): give another") from None
        version = (about.st_mtime_ns, about.st_ctime_ns, about.st_size, about.st_ino)
        if version != self._read:
            self._passwords = private_passwords(self._path, name)
            self._read = version


def _of_keyring_or(given: Mapping[str, Secret]) -> Passwords:
    async def password(address: str) -> Secret:
        """As it was given, or as it stands in the keyring by now."""
        found = given.get(address) or await asyncio.to_thread(in_keyring, address)
        if found is None:
            raise ConfigurationError(f"The keyring has no password for this mailbox: put it there, or {_ELSEWHERE}.")
        return found

    return password
