"""Files of secrets and of people: read only where others can't, and never shown. Errors hold no word of them."""

from __future__ import annotations

import json
import os
import stat
import sys
import tomllib
from pathlib import Path
from typing import Any, cast

from directsuite.cli.refusal import RefusedError
from directsuite.core.system_errors import reason_of
from directsuite.secret import Secret


def private_bytes(path: Path, named: str) -> bytes:
    """What a file holds that only its owner and group may read. named: the file, for people. Raises RefusedError."""
    try:
        with path.open("rb") as file:
            check_private(os.fstat(file.fileno()), named)
            return file.read()
    except OSError as error:
        raise RefusedError(f"{named} can't be read ({reason_of(error)}): give another") from None


def check_private(about: os.stat_result, named: str) -> None:
    """Raise RefusedError where others than a file's owner and its group may read it."""
    if sys.platform != "win32" and about.st_mode & stat.S_IRWXO:
        raise RefusedError(f"others may read {named}: take that from them, with chmod o=")


def document_in(content: bytes, named: str, holding: str, *, suffix: str = "") -> dict[str, Any]:
    """A table of TOML or an object of JSON. named: the file, for people. holding: what it is to hold.

    Raises RefusedError, without a cause: errors of parsers hold what they read.
    """
    found: Any = None
    try:
        text = content.decode("utf-8-sig")
        is_toml = suffix == ".toml" or (suffix != ".json" and not text.lstrip().startswith("{"))
        found = tomllib.loads(text) if is_toml else json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise RefusedError(f"{named} can't be understood: it holds {holding}, as JSON or TOML")
    return cast("dict[str, Any]", found)


def passwords_in(content: bytes, named: str, *, suffix: str = "") -> dict[str, Secret]:
    """Names and their passwords. Raises RefusedError."""
    found = document_in(content, named, "addresses and their passwords", suffix=suffix)
    if not all(isinstance(each, str) for each in found.values()):
        raise RefusedError(
            f"an address or a password in {named.removeprefix('the passwords file ')} is no text: "
            'in TOML both go into quotes, "a@b" = "c"'
        )
    return {name: Secret(password) for name, password in found.items()}
