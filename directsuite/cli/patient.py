"""`directsuite patient`: find patients, provision their Direct addresses, and set their passwords.

Identities are read from private files, because every user of the machine can read command-line arguments.
"""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import date
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

import directsuite as ds
from directsuite.cli import options as opt
from directsuite.cli.command import Command, CommandParameter, Work, confirm
from directsuite.cli.credentials import load_settings, read_login, read_private_document, read_private_passwords
from directsuite.cli.errors import ItemNotFoundError, NotDoneError, UsageError, with_value
from directsuite.cli.output import format_count, model_to_dict, show_effect, show_json, show_progress, show_table
from directsuite.cli.process import echo_err, show_line
from directsuite.core.similar import find_similar
from directsuite.registration import operations

app = opt.make_app(
    "patient", "find ada.toml --domain direct.example.test", "by-username ada --domain direct.example.test"
)


@opt.record
class _PatientOptions(opt.CommonOptions):
    domain: str
    """The Direct domain, such as direct.example.org."""
    login: opt.LoginOption = None
    password_file: opt.LoginPasswordFile = None


@opt.record
class _FindOptions(_PatientOptions):
    json: opt.Json = False


@opt.record
class _AddOptions(_FindOptions):
    another: Annotated[bool, opt.Flag] = False
    """Provision an additional address, even if the person has one in the domain."""
    yes: Annotated[bool, opt.Flag] = False
    """Don't ask for confirmation."""


_PRIVATE_FILE = Parameter(allow_leading_hyphen=True, converter=opt.convert_path)
"""A file that other users must not be able to read, or - for stdin."""
_IndividualFile = Annotated[
    Path,
    _PRIVATE_FILE,
    Parameter(
        help="A TOML or JSON file that describes the patient: first_name, last_name, ssn4 (the last four digits of the "
        "social security number) and dob (the date of birth), or the id of the identity-proofing record; for `patient "
        "add` optionally with direct_username and direct_password. It must be readable only by you and your group "
        "(`chmod o= FILE`); - is stdin."
    ),
]
_PasswordsFile = Annotated[
    Path,
    _PRIVATE_FILE,
    Parameter(
        help='A TOML or JSON file of usernames and passwords: "ada" = "…". It must be readable only by you and your '
        "group; - is stdin."
    ),
]
_Username = Annotated[
    str,
    Parameter(
        allow_leading_hyphen=True,
        help="The part of the address before the @. With -, it is read from stdin, which other users of this machine "
        "can't see.",
    ),
]
_INDIVIDUAL_FILE = "the individual's file"
_PASSWORDS_FILE = "the passwords file"
_OPTION_NAMES = {
    "direct_domain": "--domain",
    "direct_username": "the username",
    "individual": _INDIVIDUAL_FILE,
    "passwords": _PASSWORDS_FILE,
}
_HINT_REPEAT_PASSWORDS = "the passwords may or may not have been set; you can safely run the same command again"
_RECOVERY_HINT = (
    "run `directsuite patient find` with the same file to see whether the patient exists, and ask the service's "
    "provider whether the account was debited; run the command again only if neither is the case"
)

_EXPECTED_MEMBERS = "first_name, last_name, ssn4 and dob, or id"
_KNOWN_MEMBERS = ("id", "first_name", "last_name", "ssn4", "direct_username", "direct_password", "dob")


_Rule = tuple[Callable[[Any], object], str]


def _is_date(value: Any) -> bool:
    with suppress(TypeError, ValueError):
        return type(value) is date or bool(date.fromisoformat(value))
    return False


_MEMBER_RULES: Mapping[str, _Rule] = {
    "id": (lambda value: type(value) is int, "must be an integer"),
    "dob": (_is_date, "must be a date, such as 1980-02-29"),
    "ssn4": (
        lambda value: isinstance(value, str) and re.fullmatch("[0-9]{4}", value),
        'must be four digits, in quotes: "1234"',
    ),
}
"""For each member that is not only a text: whether a value is valid, and the predicate for invalid ones."""
_TEXT_RULE: _Rule = (lambda value: isinstance(value, str) and value, "must be a string, in quotes")


@opt.register(app, "find", "ada.toml --domain direct.example.test", "ada.toml --domain direct.example.test --json")
def find_patient(individual: _IndividualFile, /, *, command: CommandParameter, options: _FindOptions) -> Work:
    """Find the Direct address of the patient described by a file."""
    command.advice = {ds.BadRequestError: f"check --domain and {_INDIVIDUAL_FILE}"}
    return _find_patient(_make_suite(command, options), read_individual(individual), options)


@opt.register(app, "by-username", "ada --domain direct.example.test", "- --domain direct.example.test --json")
def find_by_username(username: _Username, /, *, command: CommandParameter, options: _FindOptions) -> Work:
    """Find the Direct address of the patient with a username."""
    command.advice = {ds.BadRequestError: "check --domain and the username"}
    typed = (sys.stdin.readline() if username == "-" else username).strip()
    if not typed or "@" in typed:
        what = with_value("The username", typed) if typed else "The username"
        raise UsageError(f"{what} must be the part before the @, such as ada of ada@direct.example.org.")
    return _find_patient(_make_suite(command, options), typed, options)


@opt.register(app, "add", "ada.toml --domain direct.example.test", "grace.toml --domain direct.example.test --yes")
def add_patient(individual: _IndividualFile, /, *, command: CommandParameter, options: _AddOptions) -> Work:
    """Provision a Direct address for a patient, and debit the login's account.

    The command asks first, and never sends the request twice. If the person has an address in the domain, the command
    provisions nothing and shows the address, with exit status 1. Exit status 7 means that the response was lost: check
    with `patient find` before you repeat the command.
    """
    command.resume_hint = "nothing was provisioned or debited: run the same command again"
    command.recovery_hint = _RECOVERY_HINT
    command.advice = {
        "002": "check direct_username: it must be the part before the @, such as ada of ada@direct.example.org",
        "014": "the user name may be in use: give a different direct_username in the individual's file",
        "205": "the service does not know this person as identity-proofed; check the individual's file",
        ds.BadRequestError: "check the individual's file",
    }
    person = read_individual(individual)
    suite = _make_suite(command, options, listeners=[_report_search] if person.direct_username else [])
    return _add_patient(suite, person, options)


@opt.register(
    app, "passwords", "passwords.toml --domain direct.example.test", "passwords.toml --domain direct.example.test -v"
)
def set_passwords(file: _PasswordsFile, /, *, command: CommandParameter, options: _PatientOptions) -> Work:
    """Set the passwords of patients.

    After a failure, repeat the same command: it sets the same passwords.
    """
    lost = (ds.ConnectionLostError, ds.DeadlineExceededError, ds.ResponseDecodeError, ds.ServerError, ds.TransportError)
    command.resume_hint = _HINT_REPEAT_PASSWORDS
    command.advice = {
        "210": "check the usernames; the other passwords may or may not have been set, and can safely be set again",
        **dict.fromkeys(lost, _HINT_REPEAT_PASSWORDS),
    }
    label = with_value("The passwords file", file)
    passwords = read_private_passwords(file, with_value(_PASSWORDS_FILE, file), keys="usernames")
    if not passwords or not all(name and password for name, password in passwords.items()):
        raise UsageError(f'{label} lacks a username or a password. Expected lines such as "ada" = "…".')
    suite = _make_suite(command, options)

    async def set_all() -> None:
        async with _open_registration(suite, options.domain) as service, show_progress("setting passwords"):
            await service.set_patients_passwords(options.domain, [ds.UserPassword(*each) for each in passwords.items()])
        echo_err(f"Passwords were set for {format_count(len(passwords), 'patient')}.")

    return set_all()


def read_individual(path: Path) -> ds.IDProofedIndividualRESTful:
    """Return the person described in a private file."""
    label = with_value(_INDIVIDUAL_FILE, path)
    members = read_private_document(path, label, _EXPECTED_MEMBERS)
    if unknown := [member for member in members if member not in _KNOWN_MEMBERS]:
        suggestion = "".join(f"Did you mean {each}? " for each in find_similar(unknown[0], _KNOWN_MEMBERS))
        # The member is not named in a log, because in a wrong file the key may be confidential.
        raise UsageError(
            f"{with_value('Unknown member', unknown[0])} in {label}. {suggestion}"
            f"The members must be among {', '.join(_KNOWN_MEMBERS)}."
        )
    for name, value in members.items():
        is_valid, rule = _MEMBER_RULES.get(name, _TEXT_RULE)
        if not is_valid(value):
            raise UsageError(f"{name} in {label} {rule}.")
    return ds.IDProofedIndividualRESTful(**members)


def _make_suite(command: Command, options: _PatientOptions, listeners: Sequence[ds.Listener] = ()) -> ds.DirectSuite:
    command.option_names = _OPTION_NAMES
    if not options.domain.strip() or "@" in options.domain:
        raise UsageError(
            f"{with_value('--domain', options.domain)} must be the part behind the @, such as direct.example.org."
        )
    settings = load_settings("registration")
    return command.make_suite(settings, login=read_login(options.login, options.password_file), listeners=listeners)


@asynccontextmanager
async def _open_registration(suite: ds.DirectSuite, domain: str) -> AsyncGenerator[ds.Registration]:
    """Open the suite, and yield its registration service. Raises UsageError if the service doesn't know `domain`."""
    async with suite:
        try:
            yield suite.registration
        except ds.NotFoundError as error:
            if error.code != "208":
                raise
            raise UsageError(
                f"{with_value('--domain', domain)}: the service has no organization with this Direct domain. Check the "
                "spelling, or ask the service's provider for your domains."
            ) from None


async def _find_users(
    service: ds.Registration, person_or_username: ds.IDProofedIndividual | str, domain: str
) -> list[ds.DirectUserDetail]:
    """Return the users of a person, or with a username, in a domain; empty if the service finds none."""
    try:
        if isinstance(person_or_username, str):
            return await service.get_patient_address_by_username(domain, person_or_username)
        members = {name: getattr(person_or_username, name) for name in ("id", "first_name", "last_name", "ssn4", "dob")}
        return await service.get_patient_address_by_meta(domain, ds.IDProofedIndividual(**members))
    except ds.NotFoundError as error:
        if error.code != "210":
            raise
        return []


async def _find_patient(
    suite: ds.DirectSuite, person_or_username: ds.IDProofedIndividual | str, options: _FindOptions
) -> None:
    async with _open_registration(suite, options.domain) as service, show_progress("searching"):
        users = await _find_users(service, person_or_username, options.domain)
    if not users:
        raise ItemNotFoundError(
            f"There is no such patient in {with_value('this domain', options.domain)}. Check --domain and the spelling "
            "of the patient's data."
        )
    if options.json:
        show_json([_user_to_dict(user, options.domain) for user in users])
    else:
        _show_user_table(users, options.domain)


async def _add_patient(suite: ds.DirectSuite, individual: ds.IDProofedIndividualRESTful, options: _AddOptions) -> None:
    if not options.yes:
        condition = "" if options.another else ", unless the person already has an address there"
        await confirm(
            f"This provisions a Direct address in {options.domain} and debits the login's account{condition}.",
            explanation="This debits the account.",
            declined_message="Not confirmed. Nothing was provisioned or debited.",
        )
    async with _open_registration(suite, options.domain) as service:
        if not options.another:
            async with show_progress("searching"):
                users = await _find_users(service, individual, options.domain)
            if users:
                _show_users(users, options)
                raise NotDoneError(
                    "This person already has an address in this domain. Nothing was provisioned or debited: use that "
                    "address. To provision another one, give --another and a different direct_username."
                )
        try:
            async with show_progress("provisioning"):
                response = await service.provision_id_proofed_patient(options.domain, individual)
        except ds.OutcomeUnknownError as error:
            if error.found is not None:
                echo_err("A user with this username and these names exists:")
                _show_users([error.found], options)
            raise

    def show() -> None:
        payment = response.payment_confirmation
        _show_users(response.users, options, payment)
        if options.json:
            return
        if payment is None:
            echo_err("The patient was provisioned. The service returned no payment.")
            return
        show_line()
        show_table(("", "payment"), _build_payment_rows(payment))

    show_effect(show, "The patient was provisioned and the account debited")


def _report_search(event: ds.Event) -> None:
    if (
        isinstance(event, ds.AttemptFailed)
        and event.operation == operations.PROVISION_ID_PROOFED_PATIENT.name
        and event.outcome is ds.Outcome.UNKNOWN
    ):
        echo_err("There was no usable response. Searching for the patient.")


def _show_users(
    users: Sequence[ds.DirectUserDetail], options: _AddOptions, payment: ds.PaymentConfirmation | None = None
) -> None:
    if options.json:
        listed = [_user_to_dict(user, options.domain) for user in users]
        show_json({"users": listed, "payment_confirmation": payment})
    else:
        _show_user_table(users, options.domain)


def _user_to_dict(user: ds.DirectUserDetail, domain: str) -> Mapping[str, object]:
    return {"direct_address": user.direct_address(domain) if user.username else None, **model_to_dict(user)}


def _show_user_table(users: Sequence[ds.DirectUserDetail], domain: str) -> None:
    members = ("direct_address", "first_name", "last_name", "user_state", "user_type", "email")
    titles = ("Direct address", "first name", "last name", "state", "type", "regular e-mail")
    rows = [[_user_to_dict(each, domain)[member] for member in members] for each in users]
    show_table(titles, rows, no_wrap=("Direct address", "regular e-mail"))


def _build_payment_rows(payment: ds.PaymentConfirmation) -> list[Sequence[object]]:
    rows: list[Sequence[object]] = [
        ("Order", payment.order_id),
        ("Time", payment.order_time),
        ("Amount", _format_price(payment.amount)),
    ]
    for each in payment.products:
        parts = (each.quantity, each.name, _format_price(each.sale_price), each.expire_date)
        rows.append(("Product", ", ".join(str(part) for part in parts if part is not None)))
    return [row for row in (*rows, ("Detail", payment.detail)) if row[1] is not None]


def _format_price(amount: float | None) -> str | None:
    return None if amount is None else f"{amount:.2f}"
