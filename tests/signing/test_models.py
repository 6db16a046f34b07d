"""The signing types as JSON: the Sign body, and GetDocInfo in either spelling."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

import directsuite as ds
from directsuite import types
from directsuite.wire.codec import Codec

CODEC = Codec()

SIGNATURE = ds.Signature(
    name="approval",
    widget=ds.Widget(x=72, y=144.5, width=200, height=50, page=1),
    reason="Approved",
    gs_name="Alice",
    timezone="America/New_York",
    gmt_offset=-5,
    graphical_signature=b"\x89PNG",
)
SIGNATURE_ON_THE_WIRE = {
    "name": "approval",
    "widget": {"x": 72, "y": 144.5, "width": 200, "height": 50, "page": 1},
    "reason": "Approved",
    "gsName": "Alice",
    "timezone": "America/New_York",
    "GMTOffset": -5,
    "graphicalSignature": "iVBORw==",
}


def test_signature_is_written_as_specified() -> None:
    assert json.loads(CODEC.encode(SIGNATURE)) == SIGNATURE_ON_THE_WIRE


def test_several_signatures_stand_in_a_list_with_a_capital() -> None:
    written = json.loads(CODEC.encode(types.MultiSignRequest(signatures=[SIGNATURE, ds.Signature(name="second")])))
    assert written == {"Signatures": [SIGNATURE_ON_THE_WIRE, {"name": "second"}]}


def test_what_is_left_out_is_not_written() -> None:
    assert CODEC.encode(ds.Signature()) == b"{}"
    assert CODEC.encode(ds.Signature(gmt_offset=0, reason="")) == b'{"reason":"","GMTOffset":0}'


@pytest.mark.parametrize(
    "meta_data",
    [
        {"Title": "Referral", "Author": "Alice"},
        [{"key": "Title", "value": "Referral"}, {"key": "Author", "value": "Alice"}],
    ],
)
def test_meta_data_is_read_in_both_shapes(meta_data: object) -> None:
    document = CODEC.decode(ds.DocumentInfo, json.dumps({"metaData": meta_data}).encode())
    assert document.meta_data == {"Title": "Referral", "Author": "Alice"}


@pytest.mark.parametrize("meta_data", [{"key": "a", "value": "1"}, {"key": "a"}, {"value": "1"}, {}])
def test_meta_data_named_like_a_pair_comes_back_as_it_was(meta_data: dict[str, str]) -> None:
    document = ds.DocumentInfo(meta_data=meta_data)
    assert CODEC.decode(ds.DocumentInfo, CODEC.encode(document)) == document


@pytest.mark.parametrize("names", [("signatureTime", "reason"), ("SignatureTime", "Reason")])
def test_found_signature_is_read_in_both_spellings(names: tuple[str, str]) -> None:
    document = {names[0]: "2016-07-05 17:47:15", names[1]: "Approved", "isSigned": True}
    found = CODEC.decode(ds.DocumentSignature, json.dumps(document).encode())
    assert (found.signature_time, found.reason, found.is_signed) == ("2016-07-05 17:47:15", "Approved", True)
    assert found.extra == {}


def test_stored_document_tells_when_it_was_saved() -> None:
    document = CODEC.decode(ds.StoredDocument, b'{"identifier":"d1","createdTime":1467740835000,"documentDigest":""}')
    assert document.created_time == datetime(2016, 7, 5, 17, 47, 15, tzinfo=UTC)
    assert document.document_digest == ""
    assert repr(document) == f"StoredDocument(identifier='d1', created_time={document.created_time!r})"
