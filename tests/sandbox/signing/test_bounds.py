"""A small document does not have a large description."""

from __future__ import annotations

import base64
import io
import zlib
from typing import TYPE_CHECKING, Any

import pikepdf
import pytest
from pikepdf import Array, Dictionary, Name, String

from . import documents

if TYPE_CHECKING:
    from collections.abc import Callable

    from .caller import Caller


def value_that_unpacks_to_much() -> bytes:
    with pikepdf.open(io.BytesIO(documents.one_field(FT=Name.Tx, T=String("a")))) as pdf:
        form: Any = pdf.Root["/AcroForm"]
        form["/Fields"][0]["/V"] = documents.stream(pdf, zlib.compress(b"A" * 20_000_000), Filter=Name.FlateDecode)
        return documents.saved(pdf)


def value_with_two_filters() -> bytes:
    with pikepdf.open(io.BytesIO(documents.one_field(FT=Name.Tx, T=String("a")))) as pdf:
        form: Any = pdf.Root["/AcroForm"]
        packed = zlib.compress(zlib.compress(b"A" * 20_000_000))
        form["/Fields"][0]["/V"] = documents.stream(pdf, packed, Filter=Array([Name.FlateDecode, Name.FlateDecode]))
        output = io.BytesIO()
        pdf.save(output, stream_decode_level=pikepdf.StreamDecodeLevel.none)
        return output.getvalue()


def value_of_many_fields() -> bytes:
    with pikepdf.open(io.BytesIO(documents.plain())) as pdf:
        value: Any = pdf.make_indirect(String("A" * 60_000))
        names = (String(f"f{number}") for number in range(400))
        fields: list[Any] = [pdf.make_indirect(Dictionary(FT=Name.Tx, T=name, V=value)) for name in names]
        pdf.Root["/AcroForm"] = pdf.make_indirect(Dictionary(Fields=Array(fields)))
        return documents.saved(pdf)


def value_of_many_items() -> bytes:
    with pikepdf.open(io.BytesIO(documents.one_field(FT=Name.Ch, T=String("a")))) as pdf:
        form: Any = pdf.Root["/AcroForm"]
        item: Any = pdf.make_indirect(String("A" * 10_000))
        form["/Fields"][0]["/V"] = Array([item] * 2000)
        return documents.saved(pdf)


def metadata_of_many_keys() -> bytes:
    with pikepdf.open(io.BytesIO(documents.plain())) as pdf:
        value: Any = pdf.make_indirect(String("A" * 60_000))
        for number in range(400):
            pdf.docinfo[f"/K{number}"] = value
        return documents.saved(pdf)


@pytest.mark.parametrize(
    "build",
    [
        *(value_that_unpacks_to_much, value_with_two_filters, value_of_many_fields, value_of_many_items),
        metadata_of_many_keys,
    ],
)
async def test_the_texts_of_a_description_are_limited(signing: Caller, build: Callable[[], bytes]) -> None:
    identifier = await signing.save(build())
    info = await signing.info(identifier)
    assert sum(len(str(entry)) for entries in (info["formFields"], info["metaData"]) for entry in entries) < 5_000_000


async def test_the_beginning_of_a_long_value_is_described(signing: Caller) -> None:
    identifier = await signing.save(value_that_unpacks_to_much())
    [field] = (await signing.info(identifier))["formFields"]
    assert set(field["value"]) == {"A"}
    assert len(field["value"]) >= 10_000


async def test_a_form_with_too_many_widgets_is_refused(signing: Caller) -> None:
    with pikepdf.open(io.BytesIO(documents.plain())) as pdf:
        widget: Any = pdf.make_indirect(Dictionary(Type=Name.Annot, Subtype=Name.Widget, Rect=Array([0, 0, 9, 9])))
        kids: Any = pdf.make_indirect(Array([widget] * 6000))
        names = (String(f"f{number}") for number in range(10))
        fields: list[Any] = [pdf.make_indirect(Dictionary(FT=Name.Tx, T=name, Kids=kids)) for name in names]
        pdf.Root["/AcroForm"] = pdf.make_indirect(Dictionary(Fields=Array(fields)))
        body = base64.b64encode(documents.saved(pdf))
    assert "more than 50,000 form fields" in await signing.refused("POST", body=body)


def with_signatures(number: int) -> bytes:
    """A document with this number of fields that share one signature."""
    with pikepdf.open(io.BytesIO(documents.plain())) as pdf:
        signature: Any = pdf.make_indirect(Dictionary(Type=Name.Sig))
        names = (String(f"f{position}") for position in range(number))
        fields: list[Any] = [pdf.make_indirect(Dictionary(FT=Name.Sig, T=name, V=signature)) for name in names]
        pdf.Root["/AcroForm"] = pdf.make_indirect(Dictionary(Fields=Array(fields)))
        return documents.saved(pdf)


async def test_a_document_has_a_limited_number_of_signatures(signing: Caller) -> None:
    body = base64.b64encode(with_signatures(251))
    assert "more than 250 signatures" in await signing.refused("POST", body=body)
    identifier = await signing.save(with_signatures(249))
    refused = await signing.refused("PATCH", f"/{identifier}/multiSign", json={"Signatures": [{}, {}]})
    assert "more than 250 signatures" in refused
    await signing.ok("PATCH", f"/{identifier}/sign", json={})
