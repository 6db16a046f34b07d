"""`directsuite patient add`: provision an address, once, and only when somebody has said yes."""

from __future__ import annotations

import sys
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

from directsuite.cli.command import Command
from directsuite.cli.errors import RefusedError
from directsuite.cli.output import members_of, progress, show_effect, show_json, show_table
from directsuite.cli.patient.finding import OPTIONS, Asked, access, show_users
from directsuite.cli.patient.individual_file import individual_of
from directsuite.cli.process import ExitStatus, say
from directsuite.errors import BadRequestError, NotFoundError, OutcomeUnknownError
from directsuite.registration.models import (
    AddUsersResponseV2,
    DirectUserDetail,
    IDProofedIndividualRESTful,
    Login,
    PaymentConfirmation,
)
from directsuite.settings import Settings

_FIND_OUT = (
    "`directsuite patient find` with the same file tells whether the patient is there, and the service's provider "
    "whether the account was debited; give the command again only where neither is so"
)


def add_individual(path: Path, asked: Asked, *, confirmed: bool) -> int:
    """Provision the address; the exit status."""
    command = Command(
        resume="nothing was provisioned or debited: give the same command again",
        find_out=_FIND_OUT,
        options=OPTIONS,
        advice={
            BadRequestError: "check the individual's file: the username may be taken, or the proofing not be known",
            NotFoundError: "check --domain",
        },
    )

    def begin() -> Coroutine[Any, Any, int]:
        individual = individual_of(path)
        settings, credentials = access(asked)
        if not confirmed:
            _ask(asked.domain)
        return _add(command, settings, credentials, individual, asked)

    return command.run(begin)


def _ask(domain: str) -> None:
    """Raises RefusedError, unless somebody says yes."""
    if sys.stdin is None or not sys.stdin.isatty():
        raise RefusedError("this debits the account, and there is no terminal to ask on: say --yes if it is meant")
    sys.stderr.write(f"This provisions a Direct address in {domain} and debits the login's account. Go on? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise RefusedError("not confirmed: nothing was provisioned or debited")


async def _add(
    command: Command, settings: Settings, credentials: Login, individual: IDProofedIndividualRESTful, asked: Asked
) -> int:
    async with command.suite(settings, login=credentials) as suite:
        try:
            async with progress("provisioning"):
                answer = await suite.registration.provision_id_proofed_patient(asked.domain, individual)
        except OutcomeUnknownError as error:
            if error.found is not None:
                say("a user of this username and these names is there:")
                _show_users([error.found], None, asked)
            raise
    is_shown = show_effect(lambda: _show(answer, asked), "the patient was provisioned and the account debited")
    return ExitStatus.DONE if is_shown else ExitStatus.FAILED


def _show(answer: AddUsersResponseV2, asked: Asked) -> None:
    payment = answer.payment_confirmation
    _show_users(answer.users, payment, asked)
    if asked.as_json:
        return
    if payment is None:
        say("provisioned; the service told no payment")
        return
    sys.stdout.write("\n")
    show_table(("", "payment"), _of_payment(payment))


def _show_users(users: Sequence[DirectUserDetail], payment: PaymentConfirmation | None, asked: Asked) -> None:
    """Who is there; as JSON with the payment, as far as it is known."""
    if not asked.as_json:
        show_users(users, asked)
        return
    show_json(
        {
            "users": [members_of(user) for user in users],
            "payment_confirmation": None if payment is None else members_of(payment),
        }
    )


def _of_payment(payment: PaymentConfirmation) -> list[Sequence[object]]:
    products = [
        (
            "Product",
            ", ".join(
                str(part)
                for part in (each.quantity, each.name, _price(each.sale_price), each.expire_date)
                if part is not None
            ),
        )
        for each in payment.products
    ]
    rows: list[Sequence[object]] = [
        ("Order", payment.order_id),
        ("Time", payment.order_time),
        ("Amount", _price(payment.amount)),
        *products,
        ("Detail", payment.detail),
    ]
    return [row for row in rows if row[1] is not None]


def _price(amount: float | None) -> str | None:
    return None if amount is None else f"{amount:.2f}"
