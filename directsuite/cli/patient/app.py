"""The commands below `directsuite patient`, and their options."""

from __future__ import annotations

from pathlib import Path  # cyclopts reads the annotations when it runs
from typing import Annotated

from cyclopts import App, Parameter

from directsuite.cli.options import COMMANDS, EPILOGUE, SERVICES, Flag, Json, Login, LoginPasswordFile

_Domain = Annotated[str, Parameter(help="The Direct domain, as direct.example.org.")]

app = App(
    name="patient",
    help="Find and add patients, set their passwords.",
    help_epilogue=EPILOGUE,
    group_commands=COMMANDS,
    result_action="return_value",
    group=SERVICES,
    sort_key=3,
)


@app.command(sort_key=1)
def find(
    individual: Path,
    /,
    *,
    domain: _Domain,
    login: Login = None,
    password_file: LoginPasswordFile = None,
    json: Json = False,
) -> int:
    """Find a patient's Direct address by who that is.

    Parameters
    ----------
    individual: Path
        A file that says who it is, as TOML or JSON: first_name, last_name, ssn4 and dob, or the id of the proofing
        record. Others may not read it.
    """
    from directsuite.cli.patient.finding import Asked, find_individual

    asked = Asked(domain=domain, login=login, password_file=password_file, as_json=json)
    return find_individual(individual, asked)


@app.command(sort_key=2)
def by_username(
    username: Annotated[str, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    domain: _Domain,
    login: Login = None,
    password_file: LoginPasswordFile = None,
    json: Json = False,
) -> int:
    """Find a patient's Direct address by the username.

    Parameters
    ----------
    username: str
        The part before the @; - reads it from stdin, where other users of this machine can't see it.
    """
    from directsuite.cli.patient.finding import Asked, find_username

    asked = Asked(domain=domain, login=login, password_file=password_file, as_json=json)
    return find_username(username, asked)


@app.command(sort_key=3)
def add(
    individual: Path,
    /,
    *,
    domain: _Domain,
    yes: Annotated[bool, Flag] = False,
    login: Login = None,
    password_file: LoginPasswordFile = None,
    json: Json = False,
) -> int:
    """Provision a Direct address for a patient: it costs.

    It debits the login's account, and so asks before it does, and is never sent twice. Exit status 7 says that the
    answer got lost: look with `patient find` before you give the command again.

    Parameters
    ----------
    individual: Path
        A file that says who it is, as TOML or JSON: first_name, last_name, ssn4 and dob, or the id of the proofing
        record; with it direct_username and direct_password, where they are wanted. Others may not read it.
    yes: bool
        Don't ask.
    """
    from directsuite.cli.patient.adding import add_individual
    from directsuite.cli.patient.finding import Asked

    asked = Asked(domain=domain, login=login, password_file=password_file, as_json=json)
    return add_individual(individual, asked, confirmed=yes)


@app.command(sort_key=4)
def passwords(
    file: Path,
    /,
    *,
    domain: _Domain,
    login: Login = None,
    password_file: LoginPasswordFile = None,
) -> int:
    """Set the passwords of patients.

    The same command may be given again: it sets the same passwords.

    Parameters
    ----------
    file: Path
        Usernames and passwords, as TOML or JSON: "ada" = "…". Others may not read it.
    """
    from directsuite.cli.patient.finding import Asked
    from directsuite.cli.patient.passwords import set_passwords

    return set_passwords(file, Asked(domain=domain, login=login, password_file=password_file, as_json=False))
