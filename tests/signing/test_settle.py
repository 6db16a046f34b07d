"""How long a change whose outcome is unknown is verified."""

from __future__ import annotations

from typing import Any

import pytest

import directsuite as ds
from tests.core import responses
from tests.core.scripted_server import Exchange, ScriptedServer
from tests.core.scripted_suite import catch_error, open_suite
from tests.core.virtual_time import measure_elapsed

STORED = ds.StoredDocument(identifier="doc", document_digest="old")
SIGNATURE = ds.Signature(name="PatientSig")
UNCHANGED = responses.respond({"identifier": "doc", "documentDigest": "old"})

CHANGES: dict[str, tuple[object, ...]] = {
    "flatten": (STORED,),
    "flatten_and_pull": (STORED,),
    "clear_unsigned_fields": (STORED,),
    "clear_unsigned_fields_and_pull": (STORED,),
    "sign": (STORED, SIGNATURE),
    "sign_and_pull": (STORED, SIGNATURE),
    "multi_sign": (STORED, [SIGNATURE]),
    "multi_sign_and_pull": (STORED, [SIGNATURE]),
    "sign_pdf": (b"%PDF-", SIGNATURE),
}


async def fail_changes(exchange: Exchange) -> None:
    """Respond with 500 to changes, and otherwise as for a document that is unchanged."""
    await (responses.respond(b"", 500) if exchange.request.method == "PATCH" else UNCHANGED)(exchange)


@pytest.mark.parametrize(
    ("settings", "options", "seconds"),
    [({}, {}, 30), ({"settle": 5}, {}, 5), ({"settle": 5}, {"settle": 2.5}, 2.5), ({"settle": 0}, {}, 0)],
    ids=str,
)
@pytest.mark.parametrize("method", CHANGES)
async def test_change_is_verified_for_the_settle_time(
    server: ScriptedServer, method: str, settings: dict[str, Any], options: dict[str, Any], seconds: float
) -> None:
    server.default_responder = fail_changes
    errors: list[ds.DirectSuiteError] = []
    async with open_suite(server, **settings) as suite:

        async def call() -> None:
            errors.append(await catch_error(getattr(suite.signing, method)(*CHANGES[method], **options)))

        assert await measure_elapsed(call()) == pytest.approx(seconds, abs=0.1)
    [error] = errors
    assert isinstance(error, ds.OutcomeUnknownError)
    assert error.looked
    assert (len(server.find_requests("info")) == 1) == (seconds == 0)


@pytest.mark.parametrize("settle", [-1, float("nan"), "30", True])
@pytest.mark.parametrize("method", CHANGES)
async def test_invalid_settle_time_is_rejected_before_anything_is_sent(
    server: ScriptedServer, method: str, settle: Any
) -> None:
    async with open_suite(server) as suite:
        error = await catch_error(getattr(suite.signing, method)(*CHANGES[method], settle=settle))
    assert isinstance(error, ds.InvalidArgumentError)
    assert error.parameter == "settle"
    assert server.requests == []
