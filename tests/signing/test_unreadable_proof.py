"""GetDocInfo as proof of a change whose response was lost must be readable."""

from __future__ import annotations

from typing import Any

import pytest

import directsuite as ds
from tests.core import responses
from tests.core.scripted_server import ScriptedServer
from tests.core.scripted_suite import open_suite

FORM_FIELD = {"name": "agree"}
INFO: dict[str, Any] = {"identifier": "1", "documentDigest": "before", "formFields": [FORM_FIELD]}


@pytest.mark.exhaustive(limit=3)
@pytest.mark.parametrize(
    ("members", "is_proof"),
    [
        ({"formFields": []}, True),
        ({"formFields": None, "createdTime": "soon", "pages": "x"}, True),
        ({"formFields": [FORM_FIELD]}, False),
        ({"formFields": [5]}, False),
        ({"formFields": "x"}, False),
    ],
    ids=str,
)
async def test_unreadable_form_field_proves_no_flattening(
    members: dict[str, Any], is_proof: bool, server: ScriptedServer
) -> None:
    server.enqueue(responses.respond(INFO), responses.reset)
    server.default_responder = responses.respond(INFO | {"documentDigest": "after"} | members)
    async with open_suite(server) as suite:
        before = await suite.signing.get_doc_info("1")
        if is_proof:
            assert (await suite.signing.flatten(before)).document_digest == "after"
        else:
            with pytest.raises(ds.OutcomeUnknownError):
                await suite.signing.flatten(before)
    assert len(server.find_requests("flatten")) == 1
