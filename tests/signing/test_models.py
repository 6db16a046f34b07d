"""The signing types as JSON: absent members, and GetDocInfo in either spelling."""

from __future__ import annotations

import json

import pytest

import directsuite as ds
from directsuite.wire.codec import Codec

CODEC = Codec()


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
