"""Options that several commands have, and the headings of `directsuite --help`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, cast

from cyclopts import Group, Parameter, Token, convert

MAIL = Group("Mail", sort_key=1)
SERVICES = Group("Documents, faxes, patients", sort_key=2)
TRYING = Group("To try things, and to find what is wrong", sort_key=3)
OTHERS = Group("Other", sort_key=4)
COMMANDS = Group("Commands")
"""Of a command that has some below it."""

EPILOGUE = "The exit statuses stand in `directsuite --help`."
"""Below the help of each command."""

Flag = Parameter(negative=(), show_default=False)
"""An option that is there or isn't."""
Several = Parameter(negative=(), consume_multiple=False, show_default=False)
"""An option that is given once for each value."""


def named(kind: Any, tokens: Sequence[Token]) -> Any:
    """A path, or several: a converter. An empty one, as of a variable that isn't set, would be the working folder."""
    if not all(token.value.strip() for token in tokens):
        raise ValueError("it is empty: name a file or a folder")
    return cast("Any", convert)(kind, tokens)


def named_file(kind: Any, tokens: Sequence[Token]) -> Any:
    """A file that need not be there yet: a converter."""
    if any(os.path.isdir(token.value) for token in tokens):  # noqa: PTH112  Path.is_dir raises for some names
        raise ValueError("it is a folder: name a file")
    return named(kind, tokens)


Json = Annotated[bool, Flag, Parameter(help="One JSON document on stdout, in place of what people read.")]
Mailbox = Annotated[
    str | None,
    Parameter(env_var="DIRECTSUITE_MAILBOX", help="The mailbox's Direct address.", show_default=False),
]
PasswordFile = Annotated[
    Path | None,
    Parameter(
        help="A file that holds the password alone, and that others may not read. Without it: "
        "DIRECTSUITE_MAILBOX_PASSWORD, the keyring, or a question on the terminal.",
    ),
]
TokenFile = Annotated[
    Path | None,
    Parameter(
        help="A file that holds the access token alone, and that others may not read. Without it: DIRECTSUITE_TOKEN, "
        "the keyring, or a question on the terminal.",
    ),
]
Login = Annotated[
    str | None,
    Parameter(env_var="DIRECTSUITE_LOGIN_USERNAME", help="The reseller's or T-User's name.", show_default=False),
]
LoginPasswordFile = Annotated[
    Path | None,
    Parameter(
        help="A file that holds the login's password alone, and that others may not read. Without it: "
        "DIRECTSUITE_LOGIN_PASSWORD, the keyring, or a question on the terminal.",
    ),
]
