"""Sign and MultiSign: the validity and the places of signatures."""

from __future__ import annotations

import asyncio
import base64
import io
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from PIL import Image

from . import documents
from .caller import Json, SigningCaller, count_pdfsig_valid, extract_poppler_text

if TYPE_CHECKING:
    from pathlib import Path

    from directsuite.sandbox.clock import Clock
    from directsuite.sandbox.signing.keys import FileKeyStore


async def test_three_signatures_at_once_are_valid(signing: SigningCaller, tmp_path: Path, picture: str) -> None:
    identifier = await signing.save(documents.make_consent_form())
    response = await signing.call_ok(
        "PATCH",
        f"/{identifier}/multiSign",
        json={
            "Signatures": [
                {"name": "PatientSig", "gsName": "alice", "reason": "agreed", "graphicalSignature": picture},
                {"name": "WitnessSig", "gsName": "bob"},
                {"name": "Turned", "widget": {"x": 300, "y": 100, "width": 200, "height": 60, "page": 2}},
            ]
        },
    )
    assert set(response) == {"documentDigest", "description"}
    info = await signing.get_doc_info(identifier)
    assert info["documentDigest"] == response["documentDigest"]
    assert await signing.get_signature_states(identifier) == {
        "PatientSig": True, "WitnessSig": True, "UnusedSig": None, "Turned": True,
    }  # fmt: skip
    assert count_pdfsig_valid(await signing.get_doc(identifier), tmp_path) == 3
    [effect] = await signing.list_effects("MultiSign")
    assert effect["subject"] == identifier
    assert effect["detail"]["digest"] == response["documentDigest"]
    assert effect["detail"]["names"] == ["PatientSig", "WitnessSig", "Turned"]


async def test_a_signature_has_signer_reason_and_local_time(signing: SigningCaller) -> None:
    identifier = await signing.save(documents.make_plain_pages())
    body = {"name": "A", "gsName": "Żółć alice", "reason": "because", "timezone": "America/New_York", "GMTOffset": 3}
    await signing.call_ok("PATCH", f"/{identifier}/sign", json=body)
    [entry] = (await signing.get_doc_info(identifier))["signatures"]
    assert entry["signerName"] == "Żółć alice"
    assert entry["reason"] == "because"
    assert entry["signatureTime"] == "2026-03-01T07:00:00.000-0500"
    assert (entry["isSigned"], entry["isValid"], entry["pageIndex"]) == (True, True, 1)


@pytest.mark.parametrize("spelling", [("x", "y", "page"), ("left", "top", "pageIndex")])
async def test_a_widget_is_placed_from_the_top_left_of_the_crop_box(
    signing: SigningCaller, spelling: tuple[str, str, str]
) -> None:
    left, top, page = spelling
    identifier = await signing.save(documents.make_rotated_page(90, crop=(50, 100, 500, 700)))
    widget = {left: 20, top: 40, "width": 200, "height": 70, page: 1.0}
    await signing.call_ok("PATCH", f"/{identifier}/sign", json={"name": "A", "widget": widget})
    [entry] = (await signing.get_doc_info(identifier))["signatures"]
    assert [entry[key] for key in ("left", "top", "width", "height", "pageIndex")] == [20, 40, 200, 70, 1]


@pytest.mark.parametrize(
    "degrees", [pytest.param(0, marks=pytest.mark.wide), 90, pytest.param(180, marks=pytest.mark.wide), 270]
)
async def test_a_signature_is_upright_on_a_rotated_page(signing: SigningCaller, tmp_path: Path, degrees: int) -> None:
    identifier = await signing.save(documents.make_rotated_page(degrees))
    body = {"gsName": "Alexandra", "widget": {"x": 200, "y": 300, "width": 120, "height": 120, "page": 1}}
    content = await signing.call_ok("PATCH", f"/{identifier}/sign/pull", json=body)
    words = extract_poppler_text(content, tmp_path, "-bbox")
    [line] = [line for line in words.splitlines() if ">Alexandra<" in line]
    box = {part.split("=")[0]: float(part.split("=")[1].strip('"')) for part in line.split(">")[0].split()[1:]}
    assert box["xMax"] - box["xMin"] > 2 * (box["yMax"] - box["yMin"])
    across = {0: (200, 320), 90: (372, 492), 180: (292, 412), 270: (300, 420)}[degrees]
    assert across[0] <= box["xMin"] < box["xMax"] <= across[1]


async def test_an_existing_empty_field_keeps_its_place(signing: SigningCaller) -> None:
    identifier = await signing.save(documents.make_consent_form())
    widget = {"x": 1, "y": 1, "width": 10, "height": 10, "page": 3}
    await signing.call_ok("PATCH", f"/{identifier}/sign", json={"name": "PatientSig", "widget": widget})
    entry = (await signing.get_doc_info(identifier))["signatures"][0]
    assert [entry[key] for key in ("left", "top", "width", "height", "pageIndex")] == [72, 622, 200, 70, 1]


async def test_missing_signature_names_are_generated(signing: SigningCaller) -> None:
    identifier = await signing.save(documents.make_plain_pages())
    await signing.call_ok("PATCH", f"/{identifier}/sign", json={})
    await signing.call_ok("PATCH", f"/{identifier}/multiSign", json={"Signatures": [{}, {}]})
    assert await signing.get_signature_states(identifier) == {
        "Signature1": True,
        "Signature2": True,
        "Signature3": True,
    }


WIDGET: Json = {"x": 0, "y": 0, "width": 50, "height": 10}


async def test_a_wrong_parameter_is_rejected_by_name(signing: SigningCaller) -> None:
    identifier = await signing.save(documents.make_plain_pages())
    cases: list[tuple[object, str]] = [
        ({"widget": WIDGET | {"page": 2}}, "page 2, but the document has 1"),
        ({"widget": WIDGET | {"page": 0}}, "widget.page must be a whole number, counted from 1"),
        ({"widget": WIDGET | {"page": 1.5}}, "widget.page must be a whole number"),
        *(({"widget": WIDGET | size}, "at least 1 point") for size in ({"width": 0}, {"width": -5}, {"height": 0.9})),
        ({"widget": WIDGET | {"x": 600}}, "612 wide and 792 high"),
        ({"widget": WIDGET | {"y": -20}}, "beyond page 1"),
        ({"widget": WIDGET | {"x": "far"}}, "widget.x must be a number"),
        ({"widget": WIDGET | {"x": None}}, "widget.x must be a number"),
        ({"widget": "here"}, "$.widget"),
        *(({"timezone": zone}, "time zone") for zone in ("Nowhere/Land", "../../etc/passwd")),
        ({"GMTOffset": 10_000}, "14 hours"),
        ({"GMTOffset": "five"}, "$.GMTOffset"),
        ({"graphicalSignature": "!!!"}, "graphicalSignature is not valid base64"),
        ({"graphicalSignature": base64.b64encode(b"no picture").decode()}, "not a readable"),
        ({"name": 5}, "$.name"),
        ({"name": "new.name"}, "period"),
        ({"reason": "a\0b"}, "$.reason"),
        ({"username": "alice"}, "none of a signature's members"),
        ([], "Expected `object`, got `array`"),
    ]
    for body, expected in cases:
        assert expected in await signing.call_rejected("PATCH", f"/{identifier}/sign", json=body), (body, expected)
        assert await signing.get_signature_states(identifier) == {}, (body, expected)


@pytest.mark.exhaustive(limit=2)
@pytest.mark.parametrize(
    ("member", "value"), [("timezone", "GMT-05:00"), ("timezone", "EST"), ("GMTOffset", -5), ("GMTOffset", -300)]
)
async def test_time_zones_are_understood_in_several_forms(signing: SigningCaller, member: str, value: object) -> None:
    identifier = await signing.save(documents.make_plain_pages())
    await signing.call_ok("PATCH", f"/{identifier}/sign", json={member: value})
    [entry] = (await signing.get_doc_info(identifier))["signatures"]
    assert entry["signatureTime"] == "2026-03-01T07:00:00.000-0500"


async def test_an_invalid_body_is_rejected(signing: SigningCaller) -> None:
    identifier = await signing.save(documents.make_plain_pages())
    for operation, body, reason in (
        ("sign", b"{", "JSON"),
        *(("multiSign", body, "Signatures") for body in (b"{}", b'{"Signatures": []}', b'{"Signatures": {}}')),
        ("multiSign", b'{"Signatures": [5]}', "Signatures"),
    ):
        assert reason in await signing.call_rejected("PATCH", f"/{identifier}/{operation}", body=body), operation


async def test_multi_sign_makes_all_signatures_or_none(signing: SigningCaller) -> None:
    identifier = await signing.save(documents.make_consent_form())
    before = await signing.get_doc(identifier)
    body = {
        "Signatures": [
            {"name": "PatientSig"},
            {"name": "B", "widget": {"x": 0, "y": 0, "width": 9, "height": 9, "page": 9}},
        ]
    }
    await signing.call_rejected("PATCH", f"/{identifier}/multiSign", json=body)
    await signing.call_rejected(
        "PATCH", f"/{identifier}/multiSign", json={"Signatures": [{"name": "A"}, {"name": "A"}]}
    )
    assert await signing.get_doc(identifier) == before
    assert await signing.list_effects("MultiSign") == []


async def test_a_name_that_is_signed_already_is_rejected(signing: SigningCaller) -> None:
    identifier = await signing.save(documents.make_consent_form())
    await signing.call_ok("PATCH", f"/{identifier}/sign", json={"name": "PatientSig"})
    assert "already signed" in await signing.call_rejected("PATCH", f"/{identifier}/sign", json={"name": "PatientSig"})
    assert "text field" in await signing.call_rejected("PATCH", f"/{identifier}/sign", json={"name": "patient_name"})


@pytest.mark.parametrize(
    "side",
    [
        5_001,  # too many for the sandbox
        pytest.param(10_000, marks=pytest.mark.wide),  # Pillow warns
        pytest.param(20_000, marks=pytest.mark.wide),  # Pillow raises an error
    ],
)
async def test_a_picture_that_unpacks_to_too_much_is_rejected(signing: SigningCaller, side: int) -> None:
    bomb = io.BytesIO()
    Image.new("1", (side, side)).save(bomb, "PNG")
    body = {"graphicalSignature": base64.b64encode(bomb.getvalue()).decode()}
    error = await signing.reject_change(documents.make_plain_pages(), "sign", body)
    assert "graphicalSignature has more than 25 million pixels" in error


async def test_simultaneous_signatures_are_both_kept(signing: SigningCaller, tmp_path: Path) -> None:
    identifier = await signing.save(documents.make_plain_pages())
    names = ["S0", "S1"]
    await asyncio.gather(*(signing.call_ok("PATCH", f"/{identifier}/sign", json={"name": name}) for name in names))
    assert await signing.get_signature_states(identifier) == dict.fromkeys(await _names(signing, identifier), True)
    assert sorted(await _names(signing, identifier)) == names
    assert count_pdfsig_valid(await signing.get_doc(identifier), tmp_path) == 2


async def test_simultaneous_signing_and_deleting_is_consistent(signing: SigningCaller) -> None:
    identifier = await signing.save(documents.make_plain_pages())
    (signed, _), (deleted, _) = await asyncio.gather(
        signing.call("PATCH", f"/{identifier}/sign", json={}), signing.call("DELETE", f"/{identifier}")
    )
    assert deleted == 200
    assert len(await signing.list_effects("Sign")) == (1 if signed == 200 else 0)
    await signing.call_rejected("GET", f"/{identifier}")


@pytest.mark.parametrize("to", [datetime(1975, 1, 1, tzinfo=UTC), datetime(2190, 1, 1, tzinfo=UTC)])
async def test_signatures_are_valid_at_any_time(signing: SigningCaller, clock: Clock, to: datetime) -> None:
    clock.set(to)
    identifier = await signing.save(documents.make_plain_pages())
    await signing.call_ok("PATCH", f"/{identifier}/sign", json={"name": "A"})
    assert await signing.get_signature_states(identifier) == {"A": True}


async def test_a_changed_byte_makes_a_signature_invalid(signing: SigningCaller) -> None:
    signed: bytes = await signing.change(documents.make_plain_pages(), "sign/pull", {"name": "A", "reason": "agreed"})
    forged = signed.replace(b"(agreed)", b"(denied)")
    assert forged != signed
    assert await signing.get_signature_states(await signing.save(forged)) == {"A": False}


async def test_an_encrypted_document_is_signed_without_opening_it_to_all(signing: SigningCaller) -> None:
    identifier = await signing.save(documents.make_encrypted_form(""))
    signed = await signing.call_ok("PATCH", f"/{identifier}/sign/pull", json={"name": "PatientSig"})
    assert (await signing.get_signature_states(identifier))["PatientSig"] is True
    assert b"/Encrypt" in signed


async def test_a_document_whose_author_forbids_all_changes_is_not_signed(
    signing: SigningCaller, keys: FileKeyStore
) -> None:
    certified = await asyncio.to_thread(documents.certify, documents.make_consent_form(), keys.signer())
    refused = await signing.reject_change(certified, "sign", {"name": "PatientSig"})
    assert "Author signature forbids all changes" in refused


async def test_appearances_left_to_viewers_are_drawn_before_signing(signing: SigningCaller, tmp_path: Path) -> None:
    identifier = await signing.save(documents.make_unrendered_field("José"))
    signed = await signing.call_ok("PATCH", f"/{identifier}/sign/pull", json={})
    assert b"NeedAppearances" not in signed
    assert "José" in extract_poppler_text(signed, tmp_path)
    assert set((await signing.get_signature_states(identifier)).values()) == {True}


async def _names(signing: SigningCaller, identifier: str) -> list[Any]:
    return [entry["name"] for entry in (await signing.get_doc_info(identifier))["signatures"]]
