"""A slow response to a provisioning is received completely: no time is reserved for finding its user."""

from __future__ import annotations

import pytest

import directsuite as ds
from tests.core import responses
from tests.core.scripted_server import Exchange, ScriptedServer
from tests.core.scripted_suite import LOGIN_RESPONSE, open_suite
from tests.core.virtual_time import measure_elapsed

ADA = ds.IDProofedIndividualRESTful(
    first_name="Ada", last_name="Example", ssn4="1234", dob="1980-02-29", direct_username="ada"
)
PERSON = {"firstName": "Ada", "lastName": "Example", "username": "ada"}
PROVISIONED = {"success": True, "code": "000", "users": [PERSON], "paymentConfirmation": {"orderId": 7}}
FOUND = {"success": True, "code": "000", "patient": [PERSON]}


def provisioning(server: ScriptedServer, seconds: float) -> None:
    async def responder(exchange: Exchange) -> None:
        target = exchange.request.target
        if "ProvisionIDProofedPatient" in target:
            await responses.delay(seconds, responses.respond(PROVISIONED))(exchange)
        else:
            await responses.respond(LOGIN_RESPONSE if target.endswith("/login") else FOUND)(exchange)

    server.default_responder = responder


@pytest.mark.parametrize("seconds", [29.5, 45, 57])
async def test_good_response_is_returned_however_slow(server: ScriptedServer, seconds: float) -> None:
    provisioning(server, seconds)
    async with open_suite(server) as suite:
        answer = await suite.registration.provision_id_proofed_patient("direct.example.test", ADA)
    assert answer.payment_confirmation == ds.PaymentConfirmation(order_id=7)


async def test_user_is_found_in_time_without_a_response_and_an_event_reports_it(server: ScriptedServer) -> None:
    provisioning(server, 900)
    events: list[ds.Event] = []
    async with open_suite(server, listeners=[events.append], leaky=True) as suite:
        with pytest.raises(ds.OutcomeUnknownError) as caught:
            assert (
                await measure_elapsed(suite.registration.provision_id_proofed_patient("direct.example.test", ADA)) <= 60
            )
    assert caught.value.found is not None
    [left] = [event for event in events if isinstance(event, ds.OutcomeLeftUnknown)]
    assert left.how_to_find_out == caught.value.how_to_find_out
    assert left.how_to_find_out.endswith("error.found is the user.")
