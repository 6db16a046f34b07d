"""Signatures that lock fields or the document, and seed values: no later change breaks a signature."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pikepdf
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from pikepdf import Dictionary, Name
from pyhanko.pdf_utils.incremental_writer import IncrementalPdfFileWriter
from pyhanko.sign.fields import FieldMDPAction, FieldMDPSpec, MDPPerm, SigFieldSpec, append_signature_field

from . import documents

if TYPE_CHECKING:
    from .caller import Json, SigningCaller

pytestmark = pytest.mark.wide

EXISTING, OTHER, INVISIBLE = {"name": "B"}, {"name": "C"}, {"name": "New"}
VISIBLE: Json = {"name": "New", "widget": {"x": 9, "y": 9, "width": 50, "height": 50, "page": 1}}


def with_lock(action: FieldMDPAction, names: list[str] | None, permission: MDPPerm | None) -> bytes:
    """A document with the empty signature fields A, B and C; the signature in A will lock what this says."""
    places = [(name, 0, (left, 100, left + 100, 150)) for left, name in ((300, "B"), (450, "C"))]
    writer: Any = IncrementalPdfFileWriter(
        io.BytesIO(documents.add_signature_fields(documents.make_plain_pages(), *places))
    )
    lock = FieldMDPSpec(action, names)
    append_signature_field(
        writer, SigFieldSpec("A", box=(50, 100, 200, 150), field_mdp_spec=lock, doc_mdp_update_value=permission)
    )
    output = io.BytesIO()
    writer.write(output)
    return output.getvalue()


LOCKS: dict[str, tuple[Any, list[Json]]] = {
    "all fields": ((FieldMDPAction.ALL, None, None), []),
    "one field": ((FieldMDPAction.INCLUDE, ["B"], None), [OTHER, INVISIBLE, VISIBLE]),
    "all but one": ((FieldMDPAction.EXCLUDE, ["B"], None), [EXISTING]),
    "no changes": ((FieldMDPAction.INCLUDE, ["Z"], MDPPerm.NO_CHANGES), []),
    "filling in": ((FieldMDPAction.INCLUDE, ["Z"], MDPPerm.FILL_FORMS), [EXISTING, OTHER, INVISIBLE]),
}


@pytest.mark.parametrize("name", LOCKS)
@pytest.mark.parametrize("body", [EXISTING, OTHER, INVISIBLE, VISIBLE])
async def test_a_signature_that_would_break_an_earlier_one_is_rejected(
    signing: SigningCaller, name: str, body: Json
) -> None:
    lock, allowed = LOCKS[name]
    identifier = await signing.save(with_lock(*lock))
    await signing.call_ok("PATCH", f"/{identifier}/sign", json={"name": "A"})
    if body in allowed:
        await signing.call_ok("PATCH", f"/{identifier}/sign", json=body)
    else:
        assert "locked by the signature 'A'" in await signing.call_rejected("PATCH", f"/{identifier}/sign", json=body)
    assert (await signing.get_signature_states(identifier))["A"] is True


async def test_a_lock_counts_from_the_next_signature_of_the_same_request(signing: SigningCaller) -> None:
    identifier = await signing.save(with_lock(FieldMDPAction.ALL, None, None))
    body = {"Signatures": [{"name": "A"}, {"name": "B"}]}
    assert "locked by" in await signing.call_rejected("PATCH", f"/{identifier}/multiSign", json=body)
    await signing.call_ok("PATCH", f"/{identifier}/multiSign", json={"Signatures": body["Signatures"][::-1]})
    assert await signing.get_signature_states(identifier) == {"A": True, "B": True, "C": None}


async def test_a_lock_on_a_group_locks_the_fields_in_it(signing: SigningCaller) -> None:
    with pikepdf.open(io.BytesIO(documents.make_nested_fields())) as pdf:
        form: Any = pdf.Root["/AcroForm"]
        first = form["/Fields"][0]["/Kids"][0]
        first["/Lock"] = Dictionary(Type=Name.SigFieldLock, Action=Name.Include, Fields=pikepdf.Array(["pair"]))
        identifier = await signing.save(documents.save_to_bytes(pdf))
    await signing.call_ok("PATCH", f"/{identifier}/sign", json={"name": "group.first"})
    assert "locked by" in await signing.call_rejected("PATCH", f"/{identifier}/sign", json={"name": "pair.one"})


async def test_empty_fields_stay_in_a_document_that_a_signature_locks(signing: SigningCaller) -> None:
    identifier = await signing.save(with_lock(FieldMDPAction.INCLUDE, ["Z"], MDPPerm.FILL_FORMS))
    await signing.call_ok("PATCH", f"/{identifier}/sign", json={"name": "A"})
    assert "locked by the signature 'A'" in await signing.call_rejected("PATCH", f"/{identifier}/clearUnsignedFields")
    assert (await signing.get_signature_states(identifier))["A"] is True


async def test_a_time_stamp_server_in_a_document_is_never_contacted(signing: SigningCaller) -> None:
    requests: list[str] = []

    async def response(request: web.Request) -> web.Response:
        requests.append(request.path)
        return web.Response(status=500)

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", response)
    async with TestServer(application, host="127.0.0.1") as server:
        with documents.open_field(FT=Name.Sig, T=pikepdf.String("A")) as (pdf, field):
            stamp = Dictionary(URL=pikepdf.String(str(server.make_url("/tsa"))), Ff=1)
            field["/SV"] = pdf.make_indirect(Dictionary(Type=Name.SV, TimeStamp=stamp))
            identifier = await signing.save(documents.save_to_bytes(pdf))
        refused = await signing.call_rejected("PATCH", f"/{identifier}/sign", json={"name": "A"})
    assert requests == []
    assert "time stamp" in refused
