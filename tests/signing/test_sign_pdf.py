"""A PDF signed with one call, and a document that exists only inside a block."""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import re
from collections.abc import AsyncGenerator, Callable, Coroutine
from pathlib import Path
from typing import Any

import attrs
import pybase64
import pytest

import directsuite as ds
from directsuite.core.events import CallFinished, Event, OutcomeLeftUnknown
from tests.core import responses
from tests.core.scripted_server import Responder, ScriptedServer
from tests.core.scripted_suite import assert_no_leaks, catch_error, open_suite
from tests.core.virtual_time import measure_elapsed, yield_until

PDF = b"%PDF-1.7 unsigned"
SIGNED_PDF = b"%PDF-1.7 signed"
SIGNATURE = ds.Signature(name="PatientSig")
SECOND = ds.Signature(name="WitnessSig")

SAVED = responses.respond({"identifier": "doc", "documentDigest": "old"})
PULLED = responses.respond(pybase64.b64encode(SIGNED_PDF))
DELETED = responses.respond({"documentDigest": ""})
REJECTED = responses.respond({"error": "invalid_action", "description": "it is signed already"}, 400)
FORBIDDEN = responses.respond({"error": "forbidden"}, 403)

SIGN = ["POST pdf", "PATCH pdf/doc/sign/pull", "DELETE pdf/doc"]
MULTI_SIGN = ["POST pdf", "PATCH pdf/doc/multiSign/pull", "DELETE pdf/doc"]
NOT_DELETED = "a document of sign_pdf or stored could not be deleted from the service"
NOT_DELETED_AFTER = f"{NOT_DELETED} ({{}}, call 7, group 5). It expires 4 hours after its last use"


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the warnings about documents that were not deleted."""
    found = [
        re.sub(r"group \d+", "group 5", re.sub(r"call \d+", "call 7", each.message))
        for each in caplog.records
        if each.levelno == logging.WARNING and "4 hours" in each.message
    ]
    assert "doc/" not in str(found)
    return found


async def start(server: ScriptedServer, work: Coroutine[Any, Any, Any], *, requests: int) -> asyncio.Task[Any]:
    """Start a task, and wait until the server has received this number of requests."""
    task = asyncio.create_task(work)
    await yield_until(lambda: len(server.requests) == requests)
    return task


def requests_of(server: ScriptedServer) -> list[str]:
    return [f"{each.method} {each.path}" for each in server.requests]


@pytest.mark.parametrize(
    ("signatures", "requests", "names"),
    [
        (SIGNATURE, SIGN, "PatientSig"),
        ([SIGNATURE, SECOND], MULTI_SIGN, ["PatientSig", "WitnessSig"]),
        ((each for each in (SECOND,)), MULTI_SIGN, ["WitnessSig"]),
    ],
    ids=["one", "list", "generator"],
)
async def test_pdf_is_stored_signed_received_and_deleted(
    server: ScriptedServer, signatures: Any, requests: list[str], names: str | list[str]
) -> None:
    server.enqueue(SAVED, PULLED, DELETED)
    async with open_suite(server) as suite:
        assert await suite.signing.sign_pdf(PDF, signatures) == SIGNED_PDF
    assert requests_of(server) == requests
    assert pybase64.b64decode(server.requests[0].body) == PDF
    sent = server.requests[1].document
    assert names == ([each["name"] for each in sent["Signatures"]] if "Signatures" in sent else sent["name"])


@pytest.mark.parametrize("in_block", [False, True])
async def test_calls_for_one_document_are_a_group(
    server: ScriptedServer, caplog: pytest.LogCaptureFixture, *, in_block: bool
) -> None:
    caplog.set_level(logging.INFO, "directsuite.calls")
    server.enqueue(SAVED, PULLED, DELETED)
    finished = list[CallFinished]()
    async with open_suite(server) as suite:
        suite.add_listener(lambda event: finished.append(event) if isinstance(event, CallFinished) else None)
        if in_block:
            async with suite.signing.stored(PDF) as document:
                await asyncio.create_task(suite.signing.sign_and_pull(document, SIGNATURE))
        else:
            await suite.signing.sign_pdf(PDF, SIGNATURE)
        server.enqueue(DELETED)
        await suite.signing.delete("other")
    save, pull, delete, later = finished
    assert {save.group, pull.group, delete.group} == {save.call}
    assert later.group == later.call
    lines = [each.message for each in caplog.records if each.name == "directsuite.calls"]
    for line, event in ((lines[0], save), (lines[2], delete)):
        assert line.startswith(f"{event.operation}: succeeded (call {event.call}, group {save.call}, HTTP 200")
    assert lines[3].startswith(f"Delete: succeeded (call {later.call}, HTTP 200")


async def test_blocks_that_end_in_the_order_of_their_beginning_leave_no_group(server: ScriptedServer) -> None:
    server.enqueue(SAVED, SAVED, DELETED, DELETED, DELETED)
    finished = list[CallFinished]()
    async with open_suite(server) as suite:
        suite.add_listener(lambda event: finished.append(event) if isinstance(event, CallFinished) else None)
        first, second = suite.signing.stored(PDF), suite.signing.stored(PDF)
        for block in (first, second):
            await block.__aenter__()
        for block in (first, second):
            await block.__aexit__(None, None, None)
        await suite.signing.delete("other")
    *grouped, later = finished
    assert {event.group for event in grouped} == {grouped[0].call}
    assert later.group == later.call


async def test_signed_pdf_is_written_to_any_destination(server: ScriptedServer, tmp_path: Path) -> None:
    file, passed = io.BytesIO(), bytearray()

    async def write(piece: bytes) -> None:
        passed.extend(piece)

    async with open_suite(server) as suite:
        for destination, result in ((tmp_path / "a.pdf", tmp_path / "a.pdf"), (file, file), (write, len(SIGNED_PDF))):
            server.enqueue(SAVED, PULLED, DELETED)
            assert await suite.signing.sign_pdf(PDF, SIGNATURE, destination) == result
    assert (tmp_path / "a.pdf").read_bytes() == file.getvalue() == bytes(passed) == SIGNED_PDF
    assert requests_of(server) == SIGN * 3


INVALID_ARGUMENTS: list[tuple[tuple[Any, ...], str | None]] = [
    ((PDF, []), "signatures"),
    ((PDF, "PatientSig"), "signatures"),
    ((PDF, None), "signatures"),
    ((PDF, [SIGNATURE, attrs.evolve(SECOND, graphical_signature=b"")]), "graphical_signature"),
    ((PDF, ds.Signature(name="\ud800")), None),
    ((b"not a PDF", SIGNATURE), "pdf"),
    ((PDF, SIGNATURE, "."), "destination"),
    ((PDF, SIGNATURE, "missing/folder/signed.pdf"), "destination"),
    ((PDF, SIGNATURE, 5), "destination"),
]


async def test_wrong_argument_is_rejected_before_anything_is_sent(
    server: ScriptedServer, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    for arguments, parameter in INVALID_ARGUMENTS:
        async with open_suite(server) as suite:
            with pytest.raises(ds.InvalidArgumentError) as caught:
                await suite.signing.sign_pdf(*arguments)
        assert parameter in (None, caught.value.parameter), (arguments, parameter)
        assert server.requests == [], (arguments, parameter)


@pytest.mark.parametrize("deletion", [DELETED, REJECTED, responses.reset], ids=["deleted", "rejected", "reset"])
async def test_document_is_deleted_after_a_failure_whose_error_is_raised(
    server: ScriptedServer, deletion: Responder
) -> None:
    server.enqueue(SAVED, REJECTED)
    server.default_responder = deletion
    async with open_suite(server) as suite:
        error = await catch_error(suite.signing.sign_pdf(PDF, SIGNATURE))
    assert type(error) is ds.BadRequestError
    assert (error.operation, error.message) == ("SignAndPull", "invalid_action: it is signed already")
    assert error.__context__ is None
    assert requests_of(server)[:3] == SIGN


@pytest.mark.parametrize(
    ("deletion", "warnings"), [(REJECTED, 0), (FORBIDDEN, 1), (responses.reset, 1), (responses.never_respond, 1)]
)
async def test_failed_deletion_is_only_logged(
    server: ScriptedServer, deletion: Responder, warnings: int, caplog: pytest.LogCaptureFixture
) -> None:
    server.enqueue(SAVED, PULLED)
    server.default_responder = deletion
    events: list[Event] = []
    async with open_suite(server, listeners=[events.append]) as suite:

        async def sign() -> None:
            assert await suite.signing.sign_pdf(PDF, SIGNATURE) == SIGNED_PDF

        assert await measure_elapsed(sign()) <= 10.1
    (finished,) = (each for each in events if isinstance(each, CallFinished) and each.operation == "Delete")
    assert finished.error is not None
    assert len(warnings_of(caplog)) == warnings
    fields: dict[str, object] = {"event": "DocumentNotDeleted", "operation": "Delete", "service": "signing"}
    fields |= {"call": finished.call, "group": finished.group, "error": finished.error}
    records = [each.__dict__["directsuite"] for each in caplog.records if NOT_DELETED in each.message]
    assert records == [fields] * warnings


BUSY = responses.respond({"error": "busy"}, 429, Retry_After="60")


@pytest.mark.parametrize("script", [[PULLED, BUSY], [BUSY], [PULLED, BUSY, BUSY]], ids=["at", "before", "twice"])
async def test_document_is_deleted_after_a_pause_that_the_service_asked_for(
    server: ScriptedServer, script: list[Responder], caplog: pytest.LogCaptureFixture
) -> None:
    server.enqueue(SAVED, *script, DELETED)
    async with open_suite(server) as suite:

        async def sign() -> None:
            with contextlib.suppress(ds.RateLimitedError):
                await suite.signing.sign_pdf(PDF, SIGNATURE)

        assert await measure_elapsed(sign()) < 1
        sent = len(server.requests)
        await asyncio.sleep(59)
        assert len(server.requests) == sent
        await asyncio.sleep(62)
    assert requests_of(server)[-1] == "DELETE pdf/doc"
    assert len(server.requests) == len(script) + 2
    assert warnings_of(caplog) == []


async def test_closing_during_the_pause_logs_that_the_document_was_not_deleted(
    server: ScriptedServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.enqueue(SAVED, PULLED, BUSY)
    async with open_suite(server) as suite:
        await suite.signing.sign_pdf(PDF, SIGNATURE)
        assert warnings_of(caplog) == []
        assert await measure_elapsed(suite.aclose()) < 1
        await asyncio.sleep(61)
    assert requests_of(server) == SIGN
    assert warnings_of(caplog) == [NOT_DELETED_AFTER.format("DeadlineExceededError")]


async def test_failed_save_has_nothing_to_delete(server: ScriptedServer) -> None:
    server.default_responder = REJECTED
    async with open_suite(server) as suite:
        error = await catch_error(suite.signing.sign_pdf(PDF, SIGNATURE))
    assert (type(error), error.operation) == (ds.BadRequestError, "Save")
    assert requests_of(server) == ["POST pdf"]


async def fail_to_write(_: bytes) -> None:
    raise OSError("disk full")


@pytest.mark.parametrize(
    ("script", "destination"),
    [([responses.reset], None), ([responses.respond(b"", 500)], None), ([PULLED], fail_to_write)],
    ids=["lost", "500", "destination"],
)
async def test_unknown_outcome_advises_to_call_again(
    server: ScriptedServer, script: list[Responder], destination: Any
) -> None:
    server.enqueue(SAVED, *script)
    server.default_responder = SAVED
    events: list[Event] = []
    async with open_suite(server, listeners=[events.append]) as suite:
        signing: Any = suite.signing
        error = await catch_error(signing.sign_pdf(PDF, SIGNATURE, destination))
    assert isinstance(error, ds.OutcomeUnknownError)
    assert "call sign_pdf again." in error.how_to_find_out
    assert not error.happened
    assert "get_doc" not in str(error)
    assert "is deleted, or expires after 4 hours." in str(error)
    (event,) = (each for each in events if isinstance(each, OutcomeLeftUnknown))
    assert event.how_to_find_out == error.how_to_find_out
    assert requests_of(server)[-1] == "DELETE pdf/doc"


async def test_proven_signature_is_returned_although_the_response_was_lost(
    server: ScriptedServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "directsuite.calls")
    info = {"identifier": "doc", "documentDigest": "new", "signatures": [{"name": "PatientSig", "isSigned": True}]}
    server.enqueue(SAVED, responses.reset, responses.respond(info), PULLED, responses.respond(info), DELETED)
    async with open_suite(server) as suite:
        assert await suite.signing.sign_pdf(PDF, SIGNATURE) == SIGNED_PDF
    assert requests_of(server)[-1] == "DELETE pdf/doc"
    [record] = [each for each in caplog.records if each.message.startswith("SignAndPull: succeeded")]
    assert record.message.startswith("SignAndPull: succeeded, verified after a lost response (call ")
    assert record.__dict__["directsuite"]["verified"] is True


async def sign(signing: ds.Signing) -> None:
    await signing.sign_pdf(PDF, SIGNATURE)


async def sign_in_a_block(signing: ds.Signing) -> None:
    async with signing.stored(PDF) as document:
        await signing.sign_and_pull(document, SIGNATURE)


@pytest.mark.parametrize("work", [sign, sign_in_a_block])
async def test_cancelled_program_deletes_its_document(
    server: ScriptedServer, work: Callable[[ds.Signing], Coroutine[Any, Any, None]]
) -> None:
    server.enqueue(SAVED, responses.never_respond, DELETED)
    events: list[Event] = []
    async with open_suite(server, listeners=[events.append]) as suite:
        task = await start(server, work(suite.signing), requests=2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert_no_leaks(suite)
    assert requests_of(server) == SIGN
    (event,) = (each for each in events if isinstance(each, OutcomeLeftUnknown))
    assert ("sign_pdf again" in event.how_to_find_out) == (work is sign)


async def test_second_cancellation_ends_the_wait_but_not_the_deletion(server: ScriptedServer) -> None:
    server.enqueue(SAVED, responses.never_respond, responses.delay(5, DELETED))
    events: list[Event] = []
    async with open_suite(server, listeners=[events.append]) as suite:
        task = await start(server, suite.signing.sign_pdf(PDF, SIGNATURE), requests=2)
        task.cancel()
        await yield_until(lambda: len(server.requests) == 3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await suite.aclose()
    finished = events[-1]
    assert isinstance(finished, CallFinished)
    assert (finished.operation, finished.error) == ("Delete", None)


async def test_closing_suite_waits_for_all_steps(server: ScriptedServer) -> None:
    server.enqueue(SAVED, responses.delay(1, PULLED), DELETED)
    async with open_suite(server) as suite:
        task = await start(server, suite.signing.sign_pdf(PDF, SIGNATURE), requests=2)
        await suite.aclose()
        assert await task == SIGNED_PDF
        error = await catch_error(suite.signing.sign_pdf(PDF, SIGNATURE))
    assert isinstance(error, ds.ClosedError)
    assert requests_of(server) == SIGN


async def test_closing_suite_deletes_the_document_of_an_idle_block(server: ScriptedServer) -> None:
    server.enqueue(SAVED, DELETED)
    async with open_suite(server) as suite, suite.signing.stored(PDF):
        await suite.aclose()
        assert requests_of(server) == ["POST pdf", "DELETE pdf/doc"]
    assert len(server.requests) == 2


@pytest.mark.parametrize("work", [sign, sign_in_a_block])
async def test_suite_left_by_an_exception_deletes_documents_in_progress(
    server: ScriptedServer, work: Callable[[ds.Signing], Coroutine[Any, Any, None]]
) -> None:
    server.enqueue(SAVED, responses.never_respond)
    server.default_responder = DELETED
    tasks: list[asyncio.Task[ds.DirectSuiteError]] = []
    with contextlib.suppress(LookupError):
        async with open_suite(server, leaky=True) as suite:
            tasks.append(asyncio.create_task(catch_error(work(suite.signing))))
            await yield_until(lambda: len(server.requests) == 2)
            raise LookupError
    assert isinstance(await tasks[0], ds.OutcomeUnknownError)
    assert requests_of(server).count("DELETE pdf/doc") == 1


async def test_block_that_ends_while_the_suite_is_being_closed_deletes_its_document(server: ScriptedServer) -> None:
    server.enqueue(SAVED, responses.delay(1, PULLED), DELETED)
    async with open_suite(server) as suite:
        task = await start(server, sign_in_a_block(suite.signing), requests=2)
        await suite.aclose()
        await task
    assert requests_of(server) == SIGN


async def test_cancelled_task_deletes_its_document_although_the_suite_is_closed_without_grace(
    server: ScriptedServer,
) -> None:
    server.enqueue(SAVED, responses.never_respond)
    server.default_responder = DELETED
    async with open_suite(server) as suite:
        task = await start(server, sign(suite.signing), requests=2)
        task.cancel()
        await suite.aclose(grace=0.0)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert requests_of(server).count("DELETE pdf/doc") == 1


async def test_closing_ends_the_requests_of_other_tasks_before_it_deletes(
    server: ScriptedServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.enqueue(SAVED)
    async with open_suite(server, leaky=True) as suite, suite.signing.stored(PDF):
        server.enqueue(*[responses.never_respond] * 10)  # on all connections
        server.default_responder = DELETED
        others = [asyncio.create_task(catch_error(suite.signing.get_doc("other"))) for _ in range(10)]
        await yield_until(lambda: len(server.requests) == 11)
        assert await measure_elapsed(suite.aclose()) == pytest.approx(5, abs=0.1)  # the grace for calls in progress
    await asyncio.gather(*others)
    assert requests_of(server)[11:] == ["DELETE pdf/doc"]
    assert warnings_of(caplog) == []


async def test_no_step_or_verification_follows_while_closing_waits_for_a_deletion(server: ScriptedServer) -> None:
    server.enqueue(SAVED, responses.never_respond, SAVED, responses.never_respond)
    async with open_suite(server, leaky=True) as suite:
        first = await start(server, catch_error(sign(suite.signing)), requests=2)
        second = await start(server, catch_error(sign_in_a_block(suite.signing)), requests=4)
        server.default_responder = responses.delay(3, DELETED)
        saving = await start(server, catch_error(sign(suite.signing)), requests=5)
        assert await measure_elapsed(suite.aclose(grace=0.0)) == pytest.approx(3, abs=0.1)
    for task in (first, second):
        assert isinstance(await task, ds.OutcomeUnknownError)
    assert isinstance(await saving, ds.DirectSuiteError)
    assert requests_of(server)[5:] == ["DELETE pdf/doc"] * 2


async def test_closing_waits_5_seconds_for_a_deletion_and_logs_that_it_failed(
    server: ScriptedServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.enqueue(SAVED)
    server.default_responder = responses.never_respond
    async with open_suite(server) as suite, suite.signing.stored(PDF):
        assert await measure_elapsed(suite.aclose()) == pytest.approx(5, abs=0.1)
    assert warnings_of(caplog) == [NOT_DELETED_AFTER.format("ClosedError")]


async def test_document_that_the_block_itself_deletes_is_no_reason_for_a_warning(
    server: ScriptedServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.enqueue(SAVED, DELETED, REJECTED)
    async with open_suite(server) as suite, suite.signing.stored(PDF) as document:
        await suite.signing.delete(document)
    assert warnings_of(caplog) == []


@pytest.mark.parametrize("is_option", [True, False], ids=["with_options", "argument"])
async def test_timeout_is_that_of_all_steps_together(server: ScriptedServer, is_option: bool) -> None:
    server.enqueue(responses.delay(4, SAVED), responses.never_respond, DELETED)
    server.default_responder = responses.respond({"identifier": "doc", "documentDigest": "old"})
    in_options: dict[str, Any] = {"timeout": 10} if is_option else {}
    in_arguments: dict[str, Any] = {} if is_option else {"timeout": 10}
    async with open_suite(server, attempt_timeout=100) as suite:
        signing: Any = suite.signing.with_options(retry=ds.RetryPolicy.none(), **in_options)
        seconds = await measure_elapsed(catch_error(signing.sign_pdf(PDF, SIGNATURE, **in_arguments)))
    assert seconds == pytest.approx(10, abs=0.1)


@pytest.mark.parametrize("work", ["sign_pdf", "stored"])
async def test_stream_of_known_size_is_sent_with_its_length(server: ScriptedServer, work: str) -> None:
    async def stream() -> AsyncGenerator[bytes]:
        yield PDF

    server.enqueue(SAVED, *([PULLED] if work == "sign_pdf" else []), DELETED)
    async with open_suite(server) as suite:
        if work == "sign_pdf":
            await suite.signing.sign_pdf(stream(), SIGNATURE, size=len(PDF))
        else:
            async with suite.signing.stored(stream(), size=len(PDF)):
                pass
        with pytest.raises(ds.InvalidArgumentError, match="size"):
            await suite.signing.sign_pdf(PDF, SIGNATURE, size=1)
    assert server.requests[0].headers["content-length"] == str(len(pybase64.b64encode(PDF)))


async def test_raw_response_is_that_of_the_signed_pdf(server: ScriptedServer) -> None:
    pulled = responses.respond(pybase64.b64encode(SIGNED_PDF), X_Trace="t1")
    server.enqueue(SAVED, pulled, DELETED)
    async with open_suite(server) as suite:
        raw = await suite.signing.with_raw_response.sign_pdf(PDF, SIGNATURE)
    assert (raw.value, raw.headers["X-Trace"]) == (SIGNED_PDF, "t1")


async def test_stored_document_exists_until_the_end_of_the_block(server: ScriptedServer) -> None:
    server.enqueue(SAVED, responses.respond({"documentDigest": "flat"}), PULLED, DELETED)
    async with open_suite(server) as suite, suite.signing.stored(PDF) as document:
        assert document == ds.StoredDocument(identifier="doc", document_digest="old")
        update = await suite.signing.flatten(document)
        assert await suite.signing.sign_and_pull(update, SIGNATURE) == SIGNED_PDF
        assert requests_of(server)[-1] == "PATCH pdf/doc/sign/pull"
    assert requests_of(server) == ["POST pdf", "PATCH pdf/doc/flatten", "PATCH pdf/doc/sign/pull", "DELETE pdf/doc"]


@pytest.mark.parametrize("deletion", [DELETED, REJECTED])
async def test_error_in_the_block_is_raised_after_the_deletion(server: ScriptedServer, deletion: Responder) -> None:
    server.enqueue(SAVED, deletion)
    own = LookupError("own")
    async with open_suite(server) as suite:
        with pytest.raises(LookupError) as caught:
            async with suite.signing.stored(PDF):
                raise own
    assert caught.value is own
    assert requests_of(server) == ["POST pdf", "DELETE pdf/doc"]
