"""What each operation of the signing and fax services really does."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

import pytest

import directsuite as ds

from .documents import make_consent_form
from .scenario import FAX_NUMBER, NOON, Scenario

if TYPE_CHECKING:
    from pathlib import Path

PATIENT = ds.Signature(name="PatientSig", reason="I agree", gs_name="Ada Example", timezone="America/New_York")
WITNESS = ds.Signature(
    name="Extra", widget=ds.Widget(x=72, y=300, width=200, height=60, page=1), reason="Seen", gmt_offset=-5
)


async def save(world: Scenario) -> None:
    document = await world.save()
    assert (document.document_type, document.created_time) == ("PDF", NOON)
    assert document.document_digest == sha256(make_consent_form()).hexdigest()
    assert [effect["subject"] for effect in await world.list_effects("Save")] == [document.identifier]


async def get_doc(world: Scenario) -> None:
    document = await world.save()
    assert await world.suite.signing.get_doc(document) == make_consent_form()
    path = await world.suite.signing.download(document, world.folder / "consent.pdf")
    assert read_bytes(path) == make_consent_form()


async def get_doc_info(world: Scenario) -> None:
    document = await world.save()
    info = await world.suite.signing.get_doc_info(document)
    assert (info.identifier, info.document_digest) == (document.identifier, document.document_digest)
    assert [(page.index, page.width, page.height, page.rotate) for page in info.pages] == [(1, 612.0, 792.0, 0)]
    assert {field.name: field.value for field in info.form_fields}["patient"] == "Ada"
    assert [(signature.name, signature.is_signed) for signature in info.signatures] == [
        ("PatientSig", False),
        ("WitnessSig", False),
    ]
    assert info.meta_data["Title"] == "Consent"


async def delete(world: Scenario) -> None:
    document = await world.save()
    update = await world.suite.signing.delete(document)
    assert (update.identifier, update.document_digest) == (document.identifier, "")
    with pytest.raises(ds.BadRequestError):
        await world.suite.signing.get_doc(document)


async def flatten(world: Scenario) -> None:
    document = await world.save()
    update = await world.suite.signing.flatten(document)
    info = await world.suite.signing.get_doc_info(update)
    assert "patient" not in {field.name for field in info.form_fields}
    assert document.document_digest != update.document_digest == info.document_digest


async def flatten_and_pull(world: Scenario) -> None:
    document = await world.save()
    pulled = await world.suite.signing.flatten_and_pull(document)
    assert pulled != make_consent_form()
    assert pulled == await world.suite.signing.get_doc(document)


async def clear_unsigned_fields(world: Scenario) -> None:
    document = await world.save()
    update = await world.suite.signing.clear_unsigned_fields(document)
    info = await world.suite.signing.get_doc_info(document)
    assert info.signatures == []
    assert "patient" in {field.name for field in info.form_fields}
    assert document.document_digest != update.document_digest == info.document_digest


async def clear_unsigned_fields_and_pull(world: Scenario) -> None:
    document = await world.save()
    path = await world.suite.signing.clear_unsigned_fields_and_pull(document, destination=world.folder / "c.pdf")
    assert read_bytes(path) == await world.suite.signing.get_doc(document)
    assert (await world.suite.signing.get_doc_info(document)).signatures == []


async def sign(world: Scenario) -> None:
    document = await world.save()
    update = await world.suite.signing.sign(document, PATIENT)
    info = await world.suite.signing.get_doc_info(update)
    assert document.document_digest != update.document_digest == info.document_digest
    signed = list_made_signatures(info)
    assert [(signature.name, signature.is_valid, signature.reason) for signature in signed] == [
        ("PatientSig", True, "I agree")
    ]


async def sign_and_pull(world: Scenario) -> None:
    document = await world.save()
    pulled = await world.suite.signing.sign_and_pull(document, PATIENT)
    assert pulled.startswith(b"%PDF-")
    assert b"/ByteRange" in pulled
    assert pulled == await world.suite.signing.get_doc(document)


async def multi_sign(world: Scenario) -> None:
    document = await world.save()
    update = await world.suite.signing.multi_sign(document, [PATIENT, WITNESS])
    info = await world.suite.signing.get_doc_info(update)
    assert {signature.name: signature.is_valid for signature in list_made_signatures(info)} == {
        "PatientSig": True,
        "Extra": True,
    }


async def multi_sign_and_pull(world: Scenario) -> None:
    document = await world.save()
    path = await world.suite.signing.multi_sign_and_pull(document, [PATIENT, WITNESS], destination=world.folder / "m")
    assert read_bytes(path) == await world.suite.signing.get_doc(document)
    assert len(list_made_signatures(await world.suite.signing.get_doc_info(document))) == 2


async def get_single_message_info(world: Scenario) -> None:
    recipient = {"Address": FAX_NUMBER, "Name": "Clinic", "PageCount": 3, "description": "sent"}
    handle = await world.sandbox.add_fax(FAX_NUMBER, status="waiting", recipients=[recipient], description="queued")
    information = await world.suite.fax.get_single_message_info(FAX_NUMBER, handle)
    assert (information.username, information.message_handle) == ("demo", handle)
    assert information.message_detail == [
        ds.FaxMessage(
            message_handle=handle,
            fax_number=FAX_NUMBER,
            status=ds.FaxStatus.WAITING,
            updated_ts=NOON,
            recipients=[ds.FaxRecipient(address=FAX_NUMBER, name="Clinic", page_count=3, description="sent")],
            description="queued",
        )
    ]


async def get_multiple_message_info(world: Scenario) -> None:
    handles = [await world.sandbox.add_fax(FAX_NUMBER) for _ in range(12)]
    newest = await world.suite.fax.get_multiple_message_info(FAX_NUMBER)
    rest = await world.suite.fax.get_multiple_message_info(FAX_NUMBER, 10)
    listed = [fax.message_handle for fax in (*newest.message_detail, *rest.message_detail)]
    assert listed == handles[::-1]


def read_bytes(path: Path) -> bytes:
    """A file's bytes."""
    return path.read_bytes()


def list_made_signatures(info: ds.DocumentInfo) -> list[ds.DocumentSignature]:
    """The signatures that have been made."""
    return [signature for signature in info.signatures if signature.is_signed]


EXERCISES = {
    "Save": save,
    "GetDoc": get_doc,
    "GetDocInfo": get_doc_info,
    "Delete": delete,
    "Flatten": flatten,
    "FlattenAndPull": flatten_and_pull,
    "ClearUnsignedFields": clear_unsigned_fields,
    "ClearUnsignedFieldsAndPull": clear_unsigned_fields_and_pull,
    "Sign": sign,
    "SignAndPull": sign_and_pull,
    "MultiSign": multi_sign,
    "MultiSignAndPull": multi_sign_and_pull,
    "getSingleMessageInfo": get_single_message_info,
    "getMultipleMessageInfo": get_multiple_message_info,
}
