"""Changes of documents with a lost response: the caller's result agrees with the ledger."""

from __future__ import annotations

import errno
import hashlib
import io
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

import directsuite as ds
from tests.core.scripted_suite import expect_error

from .verification_scenario import VerificationScenario, await_outcome, list_file_names

pytestmark = pytest.mark.wide

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


def _destination_option(destination: Path | None) -> dict[str, Any]:
    return {} if destination is None else {"destination": destination}


PULLS: dict[str, Pull] = {
    "SignAndPull": lambda signing, document, path: signing.sign_and_pull(
        document, PATIENT, **_destination_option(path)
    ),
    "MultiSignAndPull": lambda signing, document, path: signing.multi_sign_and_pull(
        document, [PATIENT], **_destination_option(path)
    ),
    "FlattenAndPull": lambda signing, document, path: signing.flatten_and_pull(document, **_destination_option(path)),
    "ClearUnsignedFieldsAndPull": lambda signing, document, path: signing.clear_unsigned_fields_and_pull(
        document, **_destination_option(path)
    ),
}


async def save_and_get_info(world: VerificationScenario) -> ds.StoredDocument:
    document = await world.save()
    assert (await world.signing.get_doc_info(document)).document_digest == document.document_digest
    return document


@pytest.mark.exhaustive(limit=5)
@pytest.mark.parametrize("to_file", [False, True], ids=["bytes", "file"])
@pytest.mark.parametrize("fault", ["reset_after", "reset_before"])
@pytest.mark.parametrize("operation", PULLS)
async def test_pull_gives_the_changed_pdf_or_nothing(
    scenario: VerificationScenario, tmp_path: Path, operation: str, fault: str, *, to_file: bool
) -> None:
    document = await save_and_get_info(scenario)
    destination = tmp_path / "pulled.pdf" if to_file else None
    scenario.sandbox.inject_fault(operation, fault)
    reported = await await_outcome(PULLS[operation](scenario.signing, document, destination))
    if isinstance(reported, ds.OutcomeUnknownError):
        assert await scenario.count_effects(operation) == 0
        assert str(reported).startswith(f"{operation}: it may or may not")
        assert list_file_names(tmp_path) == []
    else:
        assert await scenario.count_effects(operation) == 1
        assert (reported == destination) == to_file
        pdf = reported if destination is None else destination.read_bytes()
        assert pdf == await scenario.signing.get_doc(document)
        assert list_file_names(tmp_path) == (["pulled.pdf"] if to_file else [])


WITHOUT_PROOF: list[tuple[str, Callable[[ds.StoredDocument], Any]]] = [
    *((operation, lambda document: document.identifier) for operation in UPDATES),
    ("Sign", lambda document: attrs.evolve(document, document_digest=None)),
    ("Sign", lambda document: attrs.evolve(document, document_digest="")),
]


@pytest.mark.parametrize(("operation", "change"), WITHOUT_PROOF)
async def test_document_without_known_digest_is_not_verified(
    scenario: VerificationScenario, operation: str, change: Callable[[ds.StoredDocument], Any]
) -> None:
    document = await scenario.save()
    looks = scenario.count_requests("GetDocInfo")
    error = await scenario.lose(operation, "reset_after", UPDATES[operation](scenario.signing, change(document)))
    assert (scenario.get_applied_count(looks), scenario.clock.now, error.looked) == (0, 0.0, False)


async def test_nameless_signature_is_not_searched(scenario: VerificationScenario) -> None:
    document = await scenario.save()
    error = await scenario.lose("Sign", "reset_after", scenario.signing.sign(document, ds.Signature(reason="x")))
    assert (error.looked, scenario.clock.now) == (False, 0.0)


async def test_chain_of_updates_is_settled_at_every_link(scenario: VerificationScenario) -> None:
    update: ds.StoredDocument | ds.DocumentUpdate = await save_and_get_info(scenario)
    for operation in ("Flatten", "Sign", "ClearUnsignedFields"):
        scenario.sandbox.inject_fault(operation, "reset_after")
        update = await UPDATES[operation](scenario.signing, update)
    info = await scenario.signing.get_doc_info(update)
    assert info.document_digest == update.document_digest
    assert (info.form_fields, [(each.name, each.is_signed) for each in info.signatures]) == ([], [("PatientSig", True)])


@pytest.mark.parametrize(
    ("operation", "other"), [("Sign", "Flatten"), ("Flatten", "Sign"), ("ClearUnsignedFields", "Sign")]
)
async def test_change_by_another_program_is_not_taken_for_this_one(
    scenario: VerificationScenario, operation: str, other: str
) -> None:
    document = await scenario.save()
    async with ds.DirectSuite.from_env(scenario.sandbox.environment) as another:
        await UPDATES[other](another.signing, document)
    error = await scenario.lose(operation, "reset_before", UPDATES[operation](scenario.signing, document))
    assert (error.looked, await scenario.count_effects(operation)) == (True, 0)


async def test_name_that_was_signed_before_has_to_be_there_once_more(scenario: VerificationScenario) -> None:
    await scenario.signing.sign(document := await scenario.save(), PATIENT)
    info = await scenario.signing.get_doc_info(document)
    async with ds.DirectSuite.from_env(scenario.sandbox.environment) as other:
        await other.signing.clear_unsigned_fields(document)
    error = await scenario.lose("Sign", "reset_before", scenario.signing.sign(info, PATIENT))
    assert (error.looked, await scenario.count_effects("Sign")) == (True, 1)


async def test_after_pull_only_new_info_allows_verification(scenario: VerificationScenario) -> None:
    document = await scenario.save()
    await scenario.signing.flatten_and_pull(document)
    scenario.sandbox.inject_fault("ClearUnsignedFields", "status", status=403)
    await expect_error(ds.PermissionDeniedError, scenario.signing.clear_unsigned_fields(document))
    error = await scenario.lose("Flatten", "reset_before", scenario.signing.flatten(document))
    assert not error.looked


@pytest.mark.parametrize("to_file", [False, True], ids=["bytes", "file"])
async def test_proven_change_whose_pdf_can_not_be_had_does_not_seem_undone(
    scenario: VerificationScenario, tmp_path: Path, *, to_file: bool
) -> None:
    document = await scenario.save()
    destination = tmp_path / "pulled.pdf"
    destination.write_bytes(b"before")
    scenario.sandbox.inject_fault("SignAndPull", "truncate")
    scenario.sandbox.inject_fault("GetDoc", "malformed", times=None)
    with pytest.raises(ds.OutcomeUnknownError) as caught:
        await PULLS["SignAndPull"](scenario.signing, document, destination if to_file else None)
    error = caught.value
    text = f"SignAndPull: the operation succeeded, but the PDF could not be fetched (call {error.call}, 1 attempt, "
    assert str(error).startswith(text)
    assert "get_doc(identifier)" in error.how_to_find_out
    assert isinstance(error.__cause__, ds.ResponseDecodeError)
    assert list_file_names(tmp_path) == ["pulled.pdf"]
    assert destination.read_bytes() == b"before"


async def test_pdf_with_later_changes_is_not_returned(scenario: VerificationScenario, tmp_path: Path) -> None:
    document = await scenario.save()
    destination = tmp_path / "pulled.pdf"
    scenario.sandbox.inject_fault("SignAndPull", "reset_after")
    scenario.sandbox.inject_fault("GetDoc", "reset_before")
    async with ds.DirectSuite.from_env(scenario.sandbox.environment) as other:
        scenario.clock.actions_during_waits.append(
            lambda: other.signing.sign(document, WITNESS)
        )  # before GetDoc is tried again
        with pytest.raises(ds.OutcomeUnknownError, match="the operation succeeded, but the document was changed again"):
            await scenario.signing.sign_and_pull(document, PATIENT, destination=destination)
    assert await scenario.count_effects("Sign") == await scenario.count_effects("SignAndPull") == 1
    assert list_file_names(tmp_path) == []


async def test_unstorable_response_leaves_known_state_of_document(
    scenario: VerificationScenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = await scenario.save()
    events: list[ds.Event] = []
    scenario.suite.add_listener(events.append)
    for given in (document, document.identifier):
        with monkeypatch.context() as patched:
            patched.setattr(Path, "replace", _fill_disk(tmp_path))
            with pytest.raises(
                ds.OutcomeUnknownError,
                match=r"succeeded, but the PDF could not be written to its destination \(No space left on device\)",
            ) as caught:
                await PULLS["FlattenAndPull"](scenario.signing, given, tmp_path / "pulled.pdf")
        assert list(tmp_path.iterdir()) == []  # noqa: ASYNC240  a folder of the test's own
        assert caught.value.happened
        assert not caught.value.looked
        assert caught.value.how_to_find_out.startswith("free space on the disk of the destination, then call get_doc(")
        assert "start again" not in caught.value.how_to_find_out
        assert isinstance(caught.value.__cause__, OSError)
    reported = [(event.how_to_find_out, event.happened) for event in events if isinstance(event, ds.OutcomeLeftUnknown)]
    assert reported == [(caught.value.how_to_find_out, True)] * 2
    info = await scenario.signing.get_doc_info(document)
    scenario.sandbox.inject_fault("Sign", "reset_after")
    assert (await scenario.signing.sign(info, PATIENT)).document_digest != info.document_digest


def _full_disk() -> io.RawIOBase:
    class Full(io.RawIOBase):
        def writable(self) -> bool:
            return True

        def write(self, _: object) -> int:
            raise OSError(errno.ENOSPC, "no space left on device")

    return Full()


async def test_full_disk_after_a_lost_response_is_corrected_first(scenario: VerificationScenario) -> None:
    document = await scenario.save()
    scenario.sandbox.inject_fault("SignAndPull", "reset_after")
    with pytest.raises(
        ds.OutcomeUnknownError, match="the operation succeeded, but the PDF could not be written"
    ) as caught:
        await scenario.signing.sign_and_pull(document, PATIENT, destination=_full_disk())
    assert caught.value.how_to_find_out.startswith("free space on the disk of the destination, then call get_doc(")


@pytest.mark.parametrize("lost", [False, True])
async def test_error_of_the_progress_callback_is_not_one_of_the_destination(
    scenario: VerificationScenario, tmp_path: Path, *, lost: bool
) -> None:
    def report(done: int, _: int | None) -> None:
        if done:
            raise OSError(errno.ENOSPC, "the log is full")

    document = await scenario.save()
    if lost:
        scenario.sandbox.inject_fault("SignAndPull", "reset_after")
    with pytest.raises(
        ds.OutcomeUnknownError, match="the operation succeeded, but the progress callback raised OSError"
    ) as caught:
        await scenario.signing.sign_and_pull(document, PATIENT, destination=tmp_path / "a.pdf", progress=report)
    assert caught.value.how_to_find_out.startswith("call get_doc(")


def _fill_disk(folder: Path) -> Callable[[Path, Path], Path]:
    replace = Path.replace

    def replaced(file: Path, target: Path) -> Path:
        if file.is_relative_to(folder):
            raise OSError(28, "no space left on device")
        return replace(file, target)

    return replaced


def _looks_spell(monkeypatch: pytest.MonkeyPatch, spelling: Callable[[str], str]) -> None:
    call: Callable[..., Awaitable[Any]] = ds.Signing._call

    async def respelled(self: ds.Signing, *args: Any, **options: Any) -> Any:
        answer = await call(self, *args, **options)
        if isinstance(answer, ds.DocumentInfo):
            return attrs.evolve(answer, document_digest=spelling(answer.document_digest or ""))
        return answer

    monkeypatch.setattr(ds.Signing, "_call", respelled)


def _other_algorithm(digest: str) -> str:
    return hashlib.sha512(digest.encode()).hexdigest()


@pytest.mark.parametrize("spelling", [_other_algorithm, str.upper])
@pytest.mark.parametrize("operation", ["Flatten", "ClearUnsignedFields"])
async def test_change_is_disproved_if_info_spells_digest_differently(
    scenario: VerificationScenario, monkeypatch: pytest.MonkeyPatch, operation: str, spelling: Callable[[str], str]
) -> None:
    _looks_spell(monkeypatch, spelling)
    document = await scenario.save()
    await scenario.signing.get_doc_info(document)
    update = await UPDATES[operation](scenario.signing, document)
    error = await scenario.lose(operation, "reset_before", UPDATES[operation](scenario.signing, update))
    assert (error.looked, error.happened) == (True, False)


@pytest.mark.parametrize("operation", UPDATES)
async def test_digest_of_get_doc_info_verifies_in_any_spelling(
    scenario: VerificationScenario, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    _looks_spell(monkeypatch, _other_algorithm)
    info = await scenario.signing.get_doc_info(await scenario.save())
    scenario.sandbox.inject_fault(operation, "reset_after")
    update = await UPDATES[operation](scenario.signing, info)
    assert update.document_digest == (await scenario.signing.get_doc_info(update)).document_digest


@pytest.mark.parametrize("operation", UPDATES)
async def test_digest_of_save_verifies_without_an_earlier_get_doc_info(
    scenario: VerificationScenario, operation: str
) -> None:
    scenario.sandbox.inject_fault(operation, "reset_after")
    reported = await await_outcome(UPDATES[operation](scenario.signing, await scenario.save()))
    assert isinstance(reported, ds.DocumentUpdate)
    assert await scenario.count_effects(operation) == 1
