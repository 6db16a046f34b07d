"""Where a password or token comes from: never from an argument, which other users of the machine can see.

    the option's file ──► the variable ──► the keyring ──► asked for, where stdin is a terminal

The first that there is counts.
"""

from __future__ import annotations

import contextlib
import getpass
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs

from directsuite.cli.private_files import private_bytes
from directsuite.cli.refusal import NO_TEXT, RefusedError, refuse_no_text
from directsuite.secret import Secret

KEYRING_SERVICE = "directsuite"
"""The name under which secrets stand in a keyring: `keyring set directsuite ADDRESS`."""


@attrs.frozen(kw_only=True)
class SecretPlaces:
    """The places of one secret. what: for people, as in "access token". option: of the file. name: in the keyring.

    called: what `name` is, for people. prompt: what is asked on a terminal, which may name whose secret it is.
    """

    what: str
    prompt: str = attrs.field(repr=False)
    option: str
    variable: str
    name: str = attrs.field(repr=False)
    called: str

    def secret(
        self,
        file: Path | None,
        environment: Mapping[str, str] = os.environ,
        ask: Callable[[str], str] = getpass.getpass,
    ) -> Secret:
        """The secret. Raises RefusedError where it is nowhere, or where others may read its file."""
        if file is not None:
            return self._of_file(file)
        if text := environment.get(self.variable):
            refuse_no_text(text, self.variable)
            return Secret(text)
        if (found := in_keyring(self.name)) is not None:
            return found
        if is_somebody_there():
            return self.asked(ask)
        raise RefusedError(
            f"there is no {self.what}: set {self.variable}, give {self.option} FILE, "
            f"or put it into a keyring with `keyring set {KEYRING_SERVICE} {self.called}`"
        )

    def asked(self, ask: Callable[[str], str] = getpass.getpass) -> Secret:
        """The secret that somebody types. Raises RefusedError where nothing is, or no text."""
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

    def _of_file(self, file: Path) -> Secret:
        content = private_bytes(file, f"the file of {self.option}")
        try:
            text = content.decode("utf-8-sig").rstrip("\r\n")
        except UnicodeDecodeError:
            text = ""
        if not text or "\n" in text:
            raise RefusedError(f"the file of {self.option} holds the {self.what} alone, on one line: this one doesn't")
        return Secret(text)


def is_somebody_there() -> bool:
    """Whether somebody can be asked: stdin is a terminal."""
    return sys.stdin is not None and sys.stdin.isatty()


def has_keyring() -> bool:
    """Whether there is a keyring to ask."""
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
