"""Changes of documents whose answer got lost: what the caller is told is what the ledger says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

import directsuite as ds

from .settling_scene import Scene, let_pass, names_in, outcome_of, scene

PATIENT = ds.Signature(name="PatientSig", reason="I agree")
WITNESS = ds.Signature(name="WitnessSig", reason="Seen")

Update = Callable[[ds.Signing, Any], Awaitable[ds.DocumentUpdate]]
Pull = Callable[[Any, Any, Path | None], Awaitable[Any]]  # the overloads don't fit arguments made on the fly

UPDATES: dict[str, Update] = {
    "Sign": lambda signing, document: signing.sign(document, PATIENT),
    "MultiSign": lambda signing, document: signing.multi_sign(document, [PATIENT, WITNESS]),
    "Flatten": lambda signing, document: signing.flatten(document),
    "ClearUnsignedFields": lambda signing, document: signing.clear_unsigned_fields(document),
}


def _to(destination: Path | None) -> dict[str, Any]:
    return {} if destination is None else {"destination": destination}


PULLS: dict[str, Pull] = {
    "SignAndPull": lambda signing, document, path: signing.sign_and_pull(document, PATIENT, **_to(path)),
    "MultiSignAndPull": lambda signing, document, path: signing.multi_sign_and_pull(document, [PATIENT], **_to(path)),
    "FlattenAndPull": lambda signing, document, path: signing.flatten_and_pull(document, **_to(path)),
    "ClearUnsignedFieldsAndPull": lambda signing, document, path: signing.clear_unsigned_fields_and_pull(
        document, **_to(path)
    ),
}

FAULTS: dict[str, dict[str, Any]] = {
    "reset_after": {"kind": "reset_after"},
    "truncate": {"kind": "truncate"},
    "malformed": {"kind": "malformed"},
    "502 after it": {"kind": "status", "status": 502, "processed": True},
    "signing's own 500 after it": {"kind": "status", "status": 500, "processed": True, "body": {"error": "x"}},
    "reset_before": {"kind": "reset_before"},
    "500 instead": {"kind": "status", "status": 500},
}
_FEW = ("reset_after", "reset_before")


def _cases(operations: dict[str, Any]) -> list[Any]:
    return [
        pytest.param(
            operation, fault, marks=[] if fault in _FEW or operation.startswith("Sign") else [pytest.mark.slow]
        )
        for operation in operations
        for fault in FAULTS
    ]


@pytest.fixture
async def world() -> AsyncIterator[Scene]:
    async with scene() as running:
        yield running


async def looked_at(world: Scene) -> ds.StoredDocument:
    """A stored document whose digest GetDocInfo has told as Save did."""
    document = await world.save()
    assert (await world.signing.get_doc_info(document)).document_digest == document.document_digest
    return document


@pytest.mark.parametrize(("operation", "fault"), _cases(UPDATES))
async def test_an_update_is_told_as_the_ledger_has_it(world: Scene, operation: str, fault: str) -> None:
    document = await looked_at(world)
    world.sandbox.inject_fault(operation, **FAULTS[fault])
    told = await outcome_of(UPDATES[operation](world.signing, document))
    happened = [(effect["subject"], effect["detail"]["digest"]) for effect in await world.sandbox.ledger(operation)]
    if isinstance(told, ds.OutcomeUnknownError):
        assert happened == []
        assert (told.looked, told.attempts) == (True, 1)
        assert "get_doc_info" in told.how_to_find_out
    else:
        assert happened == [(told.identifier, told.document_digest)]
        assert told.document_digest != document.document_digest


@pytest.mark.by_default(5)
@pytest.mark.parametrize("to_file", [False, True], ids=["bytes", "file"])
@pytest.mark.parametrize(("operation", "fault"), _cases(PULLS))
async def test_a_pull_gives_the_changed_pdf_or_nothing(
    world: Scene, tmp_path: Path, operation: str, fault: str, *, to_file: bool
) -> None:
    document = await looked_at(world)
    destination = tmp_path / "pulled.pdf" if to_file else None
    world.sandbox.inject_fault(operation, **FAULTS[fault])
    told = await outcome_of(PULLS[operation](world.signing, document, destination))
    if isinstance(told, ds.OutcomeUnknownError):
        assert await world.effects(operation) == 0
        assert str(told).startswith(f"{operation}: it may or may not")
        assert names_in(tmp_path) == []
    else:
        assert await world.effects(operation) == 1
        assert (told == destination) == to_file
        pdf = told if destination is None else destination.read_bytes()
        assert pdf == await world.signing.get_doc(document)
        assert names_in(tmp_path) == (["pulled.pdf"] if to_file else [])


@pytest.mark.parametrize("operation", UPDATES)
async def test_with_the_bare_identifier_nothing_is_looked_for(world: Scene, operation: str) -> None:
    document = await world.save()
    looks = world.count("GetDocInfo")
    world.sandbox.inject_fault(operation, "reset_after")
    with pytest.raises(ds.OutcomeUnknownError) as caught:
        await UPDATES[operation](world.signing, document.identifier)
    assert (world.applied(looks), world.clock.time, caught.value.looked) == (0, 0.0, False)


@pytest.mark.parametrize("digest", [None, ""])
async def test_without_a_known_digest_nothing_is_looked_for(world: Scene, digest: str | None) -> None:
    document = attrs.evolve(await world.save(), document_digest=digest)
    world.sandbox.inject_fault("Sign", "reset_after")
    with pytest.raises(ds.OutcomeUnknownError):
        await world.signing.sign(document, PATIENT)


async def test_a_chain_of_updates_is_settled_at_every_link(world: Scene) -> None:
    update: ds.StoredDocument | ds.DocumentUpdate = await looked_at(world)
    for operation in ("Flatten", "Sign", "ClearUnsignedFields"):
        world.sandbox.inject_fault(operation, "reset_after")
        update = await UPDATES[operation](world.signing, update)
    info = await world.signing.get_doc_info(update)
    assert info.document_digest == update.document_digest
    assert (info.form_fields, [(each.name, each.is_signed) for each in info.signatures]) == ([], [("PatientSig", True)])


async def test_a_name_that_is_there_unsigned_proves_no_signature(world: Scene) -> None:
    document = await world.save()
    async with ds.DirectSuite.from_env(world.sandbox.environment) as other:
        await other.signing.flatten(document)  # another program changes the digest
    world.sandbox.inject_fault("Sign", "reset_before")
    with pytest.raises(ds.OutcomeUnknownError) as caught:
        await world.signing.sign(document, PATIENT)
    assert (caught.value.looked, await world.effects("Sign")) == (True, 0)


async def test_a_name_that_was_signed_before_has_to_be_there_once_more(world: Scene) -> None:
    await world.signing.sign(document := await world.save(), PATIENT)
    info = await world.signing.get_doc_info(document)
    async with ds.DirectSuite.from_env(world.sandbox.environment) as other:
        await other.signing.clear_unsigned_fields(document)
    world.sandbox.inject_fault("Sign", "reset_before")
    with pytest.raises(ds.OutcomeUnknownError) as caught:
        await world.signing.sign(info, PATIENT)
    assert (caught.value.looked, await world.effects("Sign")) == (True, 1)


@pytest.mark.parametrize("operation", ["Flatten", "ClearUnsignedFields"])
async def test_a_change_of_another_kind_is_not_taken_for_this_one(world: Scene, operation: str) -> None:
    document = await world.save()
    async with ds.DirectSuite.from_env(world.sandbox.environment) as other:
        await other.signing.sign(document, PATIENT)
    world.sandbox.inject_fault(operation, "reset_before")
    with pytest.raises(ds.OutcomeUnknownError) as caught:
        await UPDATES[operation](world.signing, document)
    assert (caught.value.looked, await world.effects(operation)) == (True, 0)


async def test_an_old_answer_is_no_base_for_proof(world: Scene) -> None:
    document = await world.save()
    await world.signing.sign(document, PATIENT)
    world.sandbox.inject_fault("Sign", "reset_before")
    with pytest.raises(ds.OutcomeUnknownError):
        await world.signing.sign(document, PATIENT)
    assert await world.effects("Sign") == 1


async def test_after_a_pull_only_a_new_look_at_the_document_is_a_base(world: Scene) -> None:
    document = await world.save()
    await world.signing.flatten_and_pull(document)
    world.sandbox.inject_fault("ClearUnsignedFields", "status", status=403)
    with pytest.raises(ds.PermissionDeniedError):
        await world.signing.clear_unsigned_fields(document)
    world.sandbox.inject_fault("Flatten", "reset_before")
    with pytest.raises(ds.OutcomeUnknownError) as caught:
        await world.signing.flatten(document)
    assert not caught.value.looked


async def test_a_look_at_the_document_makes_the_next_change_traceable(world: Scene) -> None:
    document = await world.save()
    await world.signing.flatten_and_pull(document)
    info = await world.signing.get_doc_info(document)
    world.sandbox.inject_fault("Sign", "reset_after")
    assert (await world.signing.sign(info, PATIENT)).document_digest != info.document_digest


async def test_a_change_left_unknown_makes_later_ones_untraceable(world: Scene) -> None:
    document = await world.save()
    world.sandbox.inject_fault("Flatten", "reset_after")
    with pytest.raises(ds.OutcomeUnknownError):
        await world.signing.flatten(document.identifier or "")
    world.sandbox.inject_fault("ClearUnsignedFields", "reset_before")
    with pytest.raises(ds.OutcomeUnknownError):
        await world.signing.clear_unsigned_fields(document)
    assert await world.effects("ClearUnsignedFields") == 0


async def test_of_two_changes_at_once_none_takes_the_other_for_its_own(world: Scene) -> None:
    document = await world.save()
    world.sandbox.inject_fault("ClearUnsignedFields", "reset_before")
    results = await asyncio.gather(
        world.signing.clear_unsigned_fields(document),
        world.signing.with_options(timeout=50).sign(document, PATIENT),
        return_exceptions=True,
    )
    assert isinstance(results[0], ds.OutcomeUnknownError)
    assert isinstance(results[1], ds.DocumentUpdate)


async def test_a_nameless_signature_is_not_looked_for(world: Scene) -> None:
    document = await world.save()
    world.sandbox.inject_fault("Sign", "reset_after")
    with pytest.raises(ds.OutcomeUnknownError) as caught:
        await world.signing.sign(document, ds.Signature(reason="x"))
    assert (caught.value.looked, world.clock.time) == (False, 0.0)


async def test_a_hanging_signature_leaves_time_to_settle_it(world: Scene) -> None:
    document = await world.save()
    world.sandbox.inject_fault("Sign", "hang", processed=True)
    signing = asyncio.create_task(world.signing.sign(document, PATIENT))
    while not await world.effects("Sign"):
        assert not signing.done()
    let_pass(31)
    update = await signing
    assert update.document_digest == (await world.signing.get_doc_info(document)).document_digest


@pytest.mark.parametrize("to_file", [False, True], ids=["bytes", "file"])
async def test_a_proven_change_whose_pdf_can_not_be_had_does_not_seem_undone(
    world: Scene, tmp_path: Path, *, to_file: bool
) -> None:
    document = await world.save()
    destination = tmp_path / "pulled.pdf"
    destination.write_bytes(b"before")
    world.sandbox.inject_fault("SignAndPull", "truncate")
    world.sandbox.inject_fault("GetDoc", "malformed", times=None)
    with pytest.raises(ds.OutcomeUnknownError) as caught:
        await PULLS["SignAndPull"](world.signing, document, destination if to_file else None)
    error = caught.value
    assert str(error).startswith("SignAndPull: it happened, but the PDF could not be fetched (1 attempt, ")
    assert "get_doc(identifier)" in error.how_to_find_out
    assert isinstance(error.__cause__, ds.ResponseDecodeError)
    assert names_in(tmp_path) == ["pulled.pdf"]
    assert destination.read_bytes() == b"before"


async def test_a_file_that_can_not_take_the_pdf_ends_the_looking(
    world: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = await world.save()
    destination = tmp_path / "pulled.pdf"
    monkeypatch.setattr(Path, "replace", _full(tmp_path))
    world.sandbox.inject_fault("SignAndPull", "reset_after")
    with pytest.raises(ds.OutcomeUnknownError, match="it happened, but its answer could not be kept") as caught:
        await world.signing.sign_and_pull(document, PATIENT, destination=destination)
    assert isinstance(caught.value.__cause__, OSError)
    assert world.clock.time == 0.0
    assert names_in(tmp_path) == []


async def test_a_pdf_that_has_moved_on_is_not_given_as_this_changes(world: Scene, tmp_path: Path) -> None:
    document = await world.save()
    destination = tmp_path / "pulled.pdf"
    world.sandbox.inject_fault("SignAndPull", "reset_after")
    world.sandbox.inject_fault("GetDoc", "reset_before")
    async with ds.DirectSuite.from_env(world.sandbox.environment) as other:
        world.clock.meanwhile.append(lambda: other.signing.sign(document, WITNESS))  # before GetDoc is tried again
        with pytest.raises(ds.OutcomeUnknownError, match="it happened, but the document was changed again"):
            await world.signing.sign_and_pull(document, PATIENT, destination=destination)
    assert await world.effects("Sign") == await world.effects("SignAndPull") == 1
    assert names_in(tmp_path) == []


async def test_an_answer_that_can_not_be_kept_leaves_the_document_as_it_is_known_to_be(
    world: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = await world.save()
    events: list[ds.Event] = []
    world.suite.add_listener(events.append)
    for given in (document, document.identifier):
        with monkeypatch.context() as patched:
            patched.setattr(Path, "replace", _full(tmp_path))
            with pytest.raises(ds.OutcomeUnknownError, match="it happened, but its answer could not be kept") as caught:
                await PULLS["FlattenAndPull"](world.signing, given, tmp_path / "pulled.pdf")
        assert caught.value.happened
        assert not caught.value.looked
        assert "get_doc(identifier)" in caught.value.how_to_find_out
        assert "start again" not in caught.value.how_to_find_out
        assert isinstance(caught.value.__cause__, OSError)
    told = [(event.how_to_find_out, event.happened) for event in events if isinstance(event, ds.OutcomeLeftUnknown)]
    assert told == [(caught.value.how_to_find_out, True)] * 2
    info = await world.signing.get_doc_info(document)
    world.sandbox.inject_fault("Sign", "reset_after")
    assert (await world.signing.sign(info, PATIENT)).document_digest != info.document_digest


def _full(folder: Path) -> Callable[[Path, Path], Path]:
    """A disk that has no room for the files of this folder; the sandbox has others."""
    replace = Path.replace

    def replaced(file: Path, target: Path) -> Path:
        if file.is_relative_to(folder):
            raise OSError(28, "no space left on device")
        return replace(file, target)

    return replaced
