"""Step one: a Direct address for an identity-proofed patient."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

from directsuite.cli.demo.outcome import Done
from directsuite.cli.demo.scene import DOMAIN, MAILBOX_PASSWORD, PATIENT, PATIENT_USERNAME, NotHeldError, hold
from directsuite.errors import BadRequestError
from directsuite.registration.models import (
    DirectUserDetail,
    IDProofedIndividual,
    IDProofedIndividualRESTful,
    UserPassword,
    UserStateType,
)

if TYPE_CHECKING:
    from directsuite.cli.demo.scene import Scene

_FIRST_NAME, _LAST_NAME, _SSN4, _BORN = "Ada", "Example", "1234", date(1980, 2, 29)
_SESSION_AND_A_MINUTE = 11  # minutes: specification section 8, and one more


async def run(scene: Scene) -> Done:
    """Provision the address, find it by name and by username, with a session that runs out in between."""
    await scene.sandbox.add_individual(_FIRST_NAME, _LAST_NAME, _SSN4, _BORN.isoformat())
    registration = scene.suite.registration
    scene.progress.expect(5)

    wanted = IDProofedIndividualRESTful(
        first_name=_FIRST_NAME, last_name=_LAST_NAME, ssn4=_SSN4, dob=_BORN, direct_username=PATIENT_USERNAME
    )
    answer = await registration.provision_id_proofed_patient(DOMAIN, wanted)
    hold(_active(answer.users), "the provisioned address is not active")
    payment = answer.payment_confirmation
    hold(payment is not None and payment.amount, "no payment was confirmed")
    scene.progress.advance()

    await registration.set_patients_passwords(DOMAIN, [UserPassword(PATIENT_USERNAME, MAILBOX_PASSWORD)])
    hold(await scene.suite.mailbox(PATIENT, MAILBOX_PASSWORD).get_message_count() == 0, "the mailbox is not empty")
    scene.progress.advance()

    person = IDProofedIndividual(first_name=_FIRST_NAME, last_name=_LAST_NAME, ssn4=_SSN4, dob=_BORN)
    hold(_active(await registration.get_patient_address_by_meta(DOMAIN, person)), "not found by name and birth date")
    scene.progress.advance()

    scene.pass_time(minutes=_SESSION_AND_A_MINUTE)
    found = await registration.get_patient_address_by_username(DOMAIN, PATIENT_USERNAME)
    hold(_active(found), "not found by username once the session had run out")
    scene.progress.advance()

    await _refuses_a_taken_username(scene, wanted)
    scene.progress.advance()
    return Done(
        count=1,
        thing="patient",
        checked=(
            "address active and paid for, mailbox open",
            "found by name and by username",
            "session renewed once its 10 minutes were over",
            "a username that is taken was refused",
        ),
    )


async def _refuses_a_taken_username(scene: Scene, wanted: IDProofedIndividualRESTful) -> None:
    try:
        await scene.suite.registration.provision_id_proofed_patient(DOMAIN, wanted)
    except BadRequestError as refused:
        hold(refused.code == "014", f"the service refused with the code {refused.code} in place of 014")
        return
    raise NotHeldError("the same address was provisioned twice")


def _active(users: list[DirectUserDetail]) -> bool:
    return [(user.username, user.user_state) for user in users] == [(PATIENT_USERNAME, UserStateType.ACTIVATED)]
