"""Signing, fax and registration: every operation, uploads of three kinds, answers to memory and to files."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from datetime import date
from pathlib import Path

import directsuite as ds
from benchmarks.soak.action_context import DOMAIN, FAX_NUMBER, ActionContext, SoakAction

_PIECE_BYTES = 1000  # bytes of an upload in pieces
_PATIENT = ds.Signature(
    name="PatientSignature", reason="I agree", gs_name="Ada Example", timezone="America/New_York"
)  # a field of the demo's consent form
_WITNESS = ds.Signature(
    name="Witness", widget=ds.Widget(x=72, y=300, width=200, height=60, page=1), reason="Seen", gmt_offset=-5
)
_BOTH = (_PATIENT, _WITNESS)

Change = Callable[[ds.Signing, ds.StoredDocument, Path], Awaitable[object]]
"""One of the operations that change a document; those that pull may do so to a file."""

_CHANGES: tuple[Change, ...] = (
    lambda signing, document, _: signing.flatten(document),
    lambda signing, document, _: signing.flatten_and_pull(document),
    lambda signing, document, path: signing.flatten_and_pull(document, destination=path),
    lambda signing, document, _: signing.clear_unsigned_fields(document),
    lambda signing, document, _: signing.clear_unsigned_fields_and_pull(document),
    lambda signing, document, path: signing.clear_unsigned_fields_and_pull(document, destination=path),
    lambda signing, document, _: signing.sign(document, _PATIENT),
    lambda signing, document, _: signing.sign_and_pull(document, _PATIENT),
    lambda signing, document, path: signing.sign_and_pull(document, _PATIENT, destination=path),
    lambda signing, document, _: signing.multi_sign(document, _BOTH),
    lambda signing, document, _: signing.multi_sign_and_pull(document, _BOTH),
    lambda signing, document, path: signing.multi_sign_and_pull(document, _BOTH, destination=path),
)


async def documents(stage: ActionContext) -> None:
    """Save, look, download, delete."""
    signing = stage.suite.signing
    document = await _save_document(stage)
    assert (await signing.get_doc_info(document)).document_digest == document.document_digest
    assert await signing.get_doc(document) == stage.form
    path = stage.folder / stage.make_name()
    try:
        await signing.download(document, path)
        assert path.stat().st_size == len(stage.form)
    finally:
        path.unlink(missing_ok=True)
    await signing.delete(document)


async def changed_documents(stage: ActionContext) -> None:
    """Save, then one change."""
    path = stage.folder / stage.make_name()
    try:
        await stage.rng.choice(_CHANGES)(stage.suite.signing, await _save_document(stage), path)
    finally:
        path.unlink(missing_ok=True)


async def faxes(stage: ActionContext) -> None:
    """Pages and single faxes, or the iterator over all of them, now and then left early."""
    fax = stage.suite.fax
    if stage.rng.random() < 0.5:
        page = await fax.get_multiple_message_info(FAX_NUMBER)
        for message in page.message_detail[:2]:
            await fax.get_single_message_info(FAX_NUMBER, message.message_handle or "")
        return
    async with fax.iter_messages(FAX_NUMBER) as messages:
        async for _ in messages:
            if stage.rng.random() < 0.05:
                break


async def patients(stage: ActionContext) -> None:
    """A patient provisioned, found by person and by name, and given a password."""
    registration, username = stage.suite.registration, f"p{stage.make_name()}"
    wanted = ds.IDProofedIndividualRESTful(
        first_name="Ada",
        last_name="Example",
        ssn4="1234",
        dob=date(1980, 2, 29),
        direct_username=username,
        direct_password="first",
    )
    await registration.provision_id_proofed_patient(DOMAIN, wanted)
    found = await registration.get_patient_address_by_username(DOMAIN, username)
    assert [user.username for user in found] == [username]
    await registration.set_patients_passwords(DOMAIN, [ds.UserPassword(username, "second")])


async def people(stage: ActionContext) -> None:
    """Who is known already: mostly somebody, at the beginning of an epoch nobody."""
    individual = ds.IDProofedIndividual(first_name="Ada", last_name="Example", ssn4="1234", dob="1980-02-29")
    await stage.suite.registration.get_patient_address_by_meta(DOMAIN, individual)


async def log_in(stage: ActionContext) -> None:
    """A new session by hand: once in each visit, since a login waits for no connection and would be one more socket."""
    await stage.suite.registration.login()


ACTIONS: tuple[tuple[int, SoakAction], ...] = (
    (5, documents),
    (6, changed_documents),
    (8, faxes),
    (4, patients),
    (5, people),
)
"""How often, and what."""


async def _save_document(stage: ActionContext) -> ds.StoredDocument:
    sources = (lambda: stage.form, lambda: stage.form_file, lambda: _yield_pieces(stage.form))
    return await stage.suite.signing.save(stage.rng.choice(sources)())


async def _yield_pieces(content: bytes) -> AsyncGenerator[bytes]:
    for start in range(0, len(content), _PIECE_BYTES):
        yield content[start : start + _PIECE_BYTES]
