"""The command `doctor`, and its options."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from directsuite.cli.options import Json, Login, LoginPasswordFile, Mailbox, PasswordFile, TokenFile


def doctor(
    *,
    mailbox: Mailbox = None,
    password_file: PasswordFile = None,
    token_file: TokenFile = None,
    login: Login = None,
    login_password_file: LoginPasswordFile = None,
    timeout: Annotated[float, Parameter(validator=Number(gt=0, lte=600))] = 10.0,
    json: Json = False,
) -> int:
    """Find what is wrong, and say what to do about it.

    It looks at this machine's settings, and at each service's URL, name, connection, certificate, clock, and whether it
    takes your token, login or mailbox password. Nothing is saved, sent or changed. Exit status 0 says that nothing
    failed.

    Parameters
    ----------
    timeout: float
        Seconds for each check.
    """
    from directsuite.cli.doctor.command import Asked, examine

    return examine(
        Asked(
            mailbox=mailbox,
            password_file=password_file,
            token_file=token_file,
            login=login,
            login_password_file=login_password_file,
            timeout=timeout,
            as_json=json,
        )
    )
