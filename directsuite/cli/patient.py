"""`directsuite patient`: find patients, provision their Direct addresses, and set their passwords.

Who somebody is stands in a file that others may not read, because every user of the machine can read arguments.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import date
from pathlib import Path
from typing import Any

from directsuite.cli.command import Command, confirm
from directsuite.cli.credentials import login, private_document, private_passwords, settings_for
from directsuite.cli.errors import NotThereError, RefusedError, naming
from directsuite.cli.options import PatientAddOptions, PatientFindOptions, PatientOptions
from directsuite.cli.output import members_of, progress, show_effect, show_json, show_table
from directsuite.cli.process import ExitStatus, say, show_line
from directsuite.core.call import SETTLE_TIMEOUT
from directsuite.core.events import AttemptFailed, Event, Listener
from directsuite.errors import (
    BadRequestError,
    ConnectionLostError,
    DeadlineExceededError,
    NotFoundError,
    Outcome,
    OutcomeUnknownError,
    ResponseDecodeError,
    ServerError,
    TransportError,
)
from directsuite.registration import operations
from directsuite.registration.models import (
    AddUsersResponseV2,
    DirectUserDetail,
    IDProofedIndividual,
    IDProofedIndividualRESTful,
    PaymentConfirmation,
    UserPassword,
)
from directsuite.registration.service import Registration
from directsuite.suite import DirectSuite

_INDIVIDUAL_FILE = "the individual's file"
_PASSWORDS_FILE = "the passwords file"
_ARGUMENTS = {"direct_domain": "--domain", "direct_username": "the username", "individual": _INDIVIDUAL_FILE}
"""The option or argument of each parameter that an InvalidArgumentError may name."""

_NOBODY = "there is no such patient in this domain: check --domain, and how it is written"
_SAME_AGAIN = "the passwords may be set or not; the same command sets the same ones"
_FIND_OUT = (
    "`directsuite patient find` with the same file tells whether the patient is there, and the service's provider "
    "whether the account was debited; give the command again only where neither is so"
)

_HOLDING = "first_name, last_name, ssn4 and dob, or id"
_MEMBERS = ("id", "first_name", "last_name", "ssn4", "direct_username", "direct_password", "dob")
_FORMS = {
    "id": "has to be a whole number",
    "dob": "has to be a date, as 1980-02-29",
    "ssn4": 'has to be four digits, in quotes: "1234"',
}
"""The predicate of the sentence about a member that is wrong; all others are texts."""


def find(path: Path, options: PatientFindOptions) -> int:
    """Find the patient whom a file describes, and return the exit status. path: - for stdin, as for all commands."""
    command = Command(options=_ARGUMENTS, advice={BadRequestError: f"check --domain and {_INDIVIDUAL_FILE}"})

    def begin() -> Coroutine[Any, Any, int]:
        return _find(_suite(command, options), individual_of(path), options)

    return command.run(begin)


def find_by_username(argument: str, options: PatientFindOptions) -> int:
    """Find the patient of a username, and return the exit status. argument: - for a line of stdin."""
    command = Command(options=_ARGUMENTS, advice={BadRequestError: "check --domain and the username"})

    def begin() -> Coroutine[Any, Any, int]:
        username = (sys.stdin.readline() if argument == "-" else argument).strip()
        if not username or "@" in username:
            what = naming("the username", username) if username else "the username"
            raise RefusedError(f"{what} is the part before the @, as ada of ada@direct.example.org")
        return _find(_suite(command, options), username, options)

    return command.run(begin)


def add(path: Path, options: PatientAddOptions) -> int:
    """Provision an address, once, and only when somebody has said yes; return the exit status."""
    command = Command(
        resume="nothing was provisioned or debited: give the same command again",
        find_out=_FIND_OUT,
        options=_ARGUMENTS,
        advice={
            "002": "check direct_username: it is the part before the @, as ada of ada@direct.example.org",
            "014": "the direct_username may be taken: choose another",
            "205": "the service doesn't know this person as identity-proofed: check the individual's file",
            BadRequestError: "check the individual's file",
        },
    )

    def begin() -> Coroutine[Any, Any, int]:
        individual = individual_of(path)
        suite = _suite(command, options, listeners=[_tell_of_search] if individual.direct_username else [])
        if not options.yes:
            condition = "" if options.another else ", unless the person has one there"
            confirm(
                f"This provisions a Direct address in {options.domain} and debits the login's account{condition}. "
                "Go on?",
                unasked="this debits the account, and there is no terminal to ask on: say --yes if it is meant",
                declined="not confirmed: nothing was provisioned or debited",
            )
        return _add(suite, individual, options)

    return command.run(begin)


def set_passwords(path: Path, options: PatientOptions) -> int:
    """Set the passwords of a file, and return the exit status."""
    command = Command(
        resume=_SAME_AGAIN,
        options={**_ARGUMENTS, "passwords": _PASSWORDS_FILE},
        advice={
            "210": "check the usernames; the others' passwords may be set or not, and setting them again does no harm",
            **dict.fromkeys(
                (ConnectionLostError, DeadlineExceededError, ResponseDecodeError, ServerError, TransportError),
                _SAME_AGAIN,
            ),
        },
    )

    def begin() -> Coroutine[Any, Any, int]:
        passwords = private_passwords(path, naming(_PASSWORDS_FILE, path), keys="usernames")
        if not passwords or not all(name and password for name, password in passwords.items()):
            raise RefusedError('the passwords file lacks a username or a password: "ada" = "…" is a line of it')
        return _set(_suite(command, options), [UserPassword(*each) for each in passwords.items()], options)

    return command.run(begin)


def individual_of(path: Path) -> IDProofedIndividualRESTful:
    """The person whom a file describes. Raises RefusedError, which names the member that is wrong, not its value."""
    members = private_document(path, naming(_INDIVIDUAL_FILE, path), _HOLDING)
    if members.keys() - _MEMBERS:  # unnamed: where a file is something else, a key may be anything
        raise RefusedError(f"{_INDIVIDUAL_FILE} has a member that nobody knows; known are {', '.join(_MEMBERS)}")
    for name, value in members.items():
        if not _fits(name, value):
            raise RefusedError(f"{name} in {_INDIVIDUAL_FILE} {_FORMS.get(name, 'has to be a text, in quotes')}")
    return IDProofedIndividualRESTful(**members)


def _fits(name: str, value: Any) -> bool:
    if name == "id":
        return type(value) is int
    if name == "dob":
        return type(value) is date or (isinstance(value, str) and _is_date(value))
    if name == "ssn4":
        return isinstance(value, str) and len(value) == 4 and value.isascii() and value.isdigit()
    return isinstance(value, str) and bool(value)


def _is_date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _suite(command: Command, options: PatientOptions, listeners: Sequence[Listener] = ()) -> DirectSuite:
    if not options.domain.strip() or "@" in options.domain:
        raise RefusedError(f"{naming('--domain', options.domain)} is the part behind the @, as direct.example.org")
    settings = settings_for("registration")
    return command.suite(settings, login=login(options.login, options.password_file), listeners=listeners)


@asynccontextmanager
async def _opened(suite: DirectSuite) -> AsyncGenerator[Registration]:
    """The service of an open suite. Raises RefusedError where it doesn't know the domain."""
    async with suite:
        try:
            yield suite.registration
        except NotFoundError as error:
            if error.code != "208":
                raise
            raise RefusedError("--domain: the service has no organization for this Direct domain") from None


async def _users_of(service: Registration, whom: IDProofedIndividual | str, domain: str) -> list[DirectUserDetail]:
    """The users of a person or a username in a domain; none where there is no such patient."""
    try:
        if isinstance(whom, str):
            return await service.get_patient_address_by_username(domain, whom)
        person = IDProofedIndividual(
            id=whom.id, first_name=whom.first_name, last_name=whom.last_name, ssn4=whom.ssn4, dob=whom.dob
        )
        return await service.get_patient_address_by_meta(domain, person)
    except NotFoundError as error:
        if error.code != "210":
            raise
        return []


async def _find(suite: DirectSuite, whom: IDProofedIndividual | str, options: PatientFindOptions) -> int:
    async with _opened(suite) as service, progress("looking"):
        users = await _users_of(service, whom, options.domain)
    if not users:
        raise NotThereError(_NOBODY)
    if options.json:
        show_json([_members(user, options.domain) for user in users])
    else:
        _show_table(users, options.domain)
    return ExitStatus.DONE


async def _add(suite: DirectSuite, individual: IDProofedIndividualRESTful, options: PatientAddOptions) -> int:
    async with _opened(suite) as service:
        if not options.another:
            async with progress("looking"):
                users = await _users_of(service, individual, options.domain)
            if users:
                _show_users(users, options)
                say(
                    "this person has an address in this domain: nothing was provisioned or debited; --another "
                    "provisions one more"
                )
                return ExitStatus.FAILED
        try:
            async with progress("provisioning"):
                answer = await service.provision_id_proofed_patient(options.domain, individual)
        except OutcomeUnknownError as error:
            if error.found is not None:
                say("a user of this username and these names is there:")
                _show_users([error.found], options)
            raise
    is_shown = show_effect(lambda: _show_added(answer, options), "the patient was provisioned and the account debited")
    return ExitStatus.DONE if is_shown else ExitStatus.FAILED


def _tell_of_search(event: Event) -> None:
    """Say that the patient is looked for, as happens where the answer of a provisioning gets lost."""
    if (
        isinstance(event, AttemptFailed)
        and event.operation == operations.PROVISION_ID_PROOFED_PATIENT.name
        and event.outcome is Outcome.UNKNOWN
    ):
        say(f"no usable answer came: looking for the patient, for up to {SETTLE_TIMEOUT:.0f} s")


async def _set(suite: DirectSuite, passwords: Sequence[UserPassword], options: PatientOptions) -> int:
    async with _opened(suite) as service, progress("setting passwords"):
        await service.set_patients_passwords(options.domain, passwords)
    say(f"the password of {len(passwords)} patient{'' if len(passwords) == 1 else 's'} is set")
    return ExitStatus.DONE


def _show_added(answer: AddUsersResponseV2, options: PatientAddOptions) -> None:
    payment = answer.payment_confirmation
    if options.json:
        show_json(_document(answer.users, payment, options.domain))
        return
    _show_table(answer.users, options.domain)
    if payment is None:
        say("provisioned; the service told no payment")
        return
    show_line()
    show_table(("", "payment"), _rows(payment))


def _show_users(users: Sequence[DirectUserDetail], options: PatientAddOptions) -> None:
    """Show users who are there, in the shape of those who were added."""
    if options.json:
        show_json(_document(users, None, options.domain))
    else:
        _show_table(users, options.domain)


def _document(
    users: Sequence[DirectUserDetail], payment: PaymentConfirmation | None, domain: str
) -> Mapping[str, object]:
    return {
        "users": [_members(user, domain) for user in users],
        "payment_confirmation": None if payment is None else members_of(payment),
    }


def _members(user: DirectUserDetail, domain: str) -> Mapping[str, object]:
    """A user for programs: what to write to comes first, since `email` is an address outside of Direct messaging."""
    return {"direct_address": _direct_address(user, domain), **members_of(user)}


def _show_table(users: Sequence[DirectUserDetail], domain: str) -> None:
    show_table(
        ("Direct address", "first name", "last name", "state", "type", "regular e-mail"),
        [
            (
                _direct_address(each, domain),
                each.first_name,
                each.last_name,
                each.user_state,
                each.user_type,
                each.email,
            )
            for each in users
        ],
        whole=("Direct address", "regular e-mail"),
    )


def _direct_address(user: DirectUserDetail, domain: str) -> str | None:
    return user.direct_address(domain) if user.username else None


def _rows(payment: PaymentConfirmation) -> list[Sequence[object]]:
    rows: list[Sequence[object]] = [
        ("Order", payment.order_id),
        ("Time", payment.order_time),
        ("Amount", _price(payment.amount)),
    ]
    for each in payment.products:
        parts = (each.quantity, each.name, _price(each.sale_price), each.expire_date)
        rows.append(("Product", ", ".join(str(part) for part in parts if part is not None)))
    rows.append(("Detail", payment.detail))
    return [row for row in rows if row[1] is not None]


def _price(amount: float | None) -> str | None:
    return None if amount is None else f"{amount:.2f}"
