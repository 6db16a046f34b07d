"""The log of a job: each document that failed, is tried again or ends otherwise, by its number."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import pytest

import directsuite as ds
from directsuite.jobs.signing import DocumentState, JobStoppedError, Pdf, StopReason, TargetFolder
from tests.jobs.signing.fragile_service import SIGNATURE_BYTES, Fault, FragileService
from tests.jobs.signing.job_factory import PDF_CONTENT, TOO_LARGE, JobFactory

NAME = "jane doe.pdf"


def read_log(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str, dict[str, object]]]:
    """Return the level, text and fields of each line above DEBUG about document 1."""
    assert "jane" not in caplog.text
    prefix, suffix = "signing: document 1 of the journal ", ", no calls)"
    lines = list[tuple[str, str, dict[str, object]]]()
    for record in caplog.records:
        text, fields = record.getMessage(), dict[str, object](vars(record)["directsuite"])
        assert text.startswith(prefix)
        assert fields.pop("document") == 1
        lines.append((record.levelname, text.removeprefix(prefix).removesuffix(suffix), fields))
    return lines


@pytest.fixture(autouse=True)
def log_level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "directsuite")


ENDED = {"event": "DocumentEnded", "state": "FAILED"}
RETRIED = {"event": "DocumentRetried", "error": "ConnectFailedError"}
RESTARTED = "starts again: its stored document is "
SIGNED = "is signed: an earlier request took effect (no calls)"


@pytest.mark.parametrize(
    ("faults", "expected"),
    [
        ([], []),
        (
            [Fault.NOT_SENT, None, Fault.NOT_SENT],
            [
                ("INFO", "is tried again (ConnectFailedError, in 1.0 s", RETRIED | {"wait": 1.0}),
                ("INFO", "is tried again (ConnectFailedError, in 2.0 s", RETRIED | {"wait": 2.0}),
            ],
        ),
        ([None, Fault.RESPONSE_LOST], [("INFO", SIGNED, {"event": "OutcomeFound", "happened": True})]),
        (
            [None, Fault.REQUEST_LOST],
            [("INFO", f"{RESTARTED}not signed (no calls)", {"event": "OutcomeFound", "happened": False})],
        ),
        (
            [None, Fault.REQUEST_LOST, Fault.EXPIRED],
            [
                (
                    "INFO",
                    f"{RESTARTED}no longer available, and the document may have been signed (no calls)",
                    {"event": "OutcomeFound"},
                )
            ],
        ),
        ([None, Fault.CRASH_AFTER], [("INFO", "is left to the next run (no calls)", {"event": "DocumentEnded"})]),
    ],
)
async def test_retries_and_unknown_outcomes_are_logged(
    faults: list[Fault | None],
    expected: list[tuple[str, str, dict[str, object]]],
    jobs: JobFactory,
    caplog: pytest.LogCaptureFixture,
) -> None:
    jobs.service.faults = faults
    with contextlib.suppress(BaseException):
        await jobs.run(NAME)
    assert read_log(caplog) == expected


async def test_outcome_of_an_earlier_run_is_logged(jobs: JobFactory, caplog: pytest.LogCaptureFixture) -> None:
    jobs.service.faults = [None, Fault.CRASH_AFTER]
    with contextlib.suppress(BaseException):
        await jobs.run(NAME)
    caplog.clear()
    assert (await jobs.run(NAME)).done == 1
    assert [text for _, text, _ in read_log(caplog)] == [SIGNED]


async def test_expired_document_starts_again(jobs: JobFactory, caplog: pytest.LogCaptureFixture) -> None:
    await jobs.record_stored(NAME, DocumentState.SAVED, "document-0")
    assert (await jobs.run(NAME)).done == 1
    text = "starts again: its stored document has expired or is not available (no calls)"
    assert read_log(caplog) == [("INFO", text, {"event": "DocumentRetried"})]


@pytest.mark.parametrize(
    ("name", "details", "fields"),
    [
        ("taken.pdf", "name-conflict", {"problem": "name-conflict"}),
        (NAME, "ServiceError, HTTP 413", {"error": "ServiceError", "status": 413}),
        (f"../{NAME}", "InvalidArgumentError", {"error": "InvalidArgumentError"}),
    ],
)
async def test_failure_is_a_warning_with_its_problem_or_class(
    name: str, details: str, fields: dict[str, object], jobs: JobFactory, caplog: pytest.LogCaptureFixture
) -> None:
    jobs.out.mkdir()
    (jobs.out / "taken.pdf").write_bytes(b"another file")
    jobs.service.errors = {"save": TOO_LARGE}
    assert (await jobs.run(name)).failed == 1
    assert read_log(caplog) == [("WARNING", f"is FAILED ({details}", ENDED | fields)]


class SpoilsFirst(FragileService):
    """Removes these bytes from the first signed PDFs that it returns, and from a stored document that is downloaded."""

    def __init__(self, *removed: bytes, faults: Sequence[Fault | None] = ()) -> None:
        super().__init__(faults=[*faults])
        self.removed = [*removed]

    def _sign(self, identifier: str, signatures: int) -> bytes:
        return self._spoil(super()._sign(identifier, signatures))

    async def download(self, identifier: str, destination: Path) -> Path:
        self.stored[identifier] = self._spoil(self.stored[identifier])
        return await super().download(identifier, destination)

    def _spoil(self, pdf: bytes) -> bytes:
        return pdf.replace(self.removed.pop(0), b"") if self.removed else pdf


UNSIGNED = ("DocumentRetried", "the response to its signing request is not signed")
INCOMPLETE = (
    "DocumentRetried",
    "the response to its signing request was not received completely, and the document may have been signed",
)
INCOMPLETE_DOWNLOAD = (
    "OutcomeFound",
    "its stored document was not received completely, and the document may have been signed",
)


@pytest.mark.parametrize(
    ("service", "expected"),
    [
        (SpoilsFirst(SIGNATURE_BYTES), [UNSIGNED]),
        (SpoilsFirst(b"%%EOF"), [INCOMPLETE]),
        (SpoilsFirst(b"%%EOF", faults=[None, Fault.RESPONSE_LOST]), [INCOMPLETE_DOWNLOAD]),
        (SpoilsFirst(b"%%EOF", SIGNATURE_BYTES, faults=[None, Fault.RESPONSE_LOST]), [INCOMPLETE_DOWNLOAD, UNSIGNED]),
    ],
    ids=["unsigned", "incomplete", "incomplete-download", "unsigned-after-download"],
)
async def test_outcome_is_found_only_after_an_unknown_one(
    service: FragileService, expected: list[tuple[str, str]], jobs: JobFactory, caplog: pytest.LogCaptureFixture
) -> None:
    assert (await jobs.run(NAME, service=service)).done == 1
    assert read_log(caplog) == [
        ("INFO", f"starts again: {text} (no calls)", {"event": event}) for event, text in expected
    ]


async def test_stop_of_the_job_is_a_warning_with_the_call_of_its_cause(
    jobs: JobFactory, caplog: pytest.LogCaptureFixture
) -> None:
    error = ds.AuthenticationError("jane", operation="Save", status=401, outcome=ds.Outcome.FAILED)
    jobs.service.errors = {"save": error.set_call(9, 7, 1, 0.5)}
    with pytest.raises(JobStoppedError) as stopped:
        await jobs.run(NAME)
    assert (stopped.value.call, stopped.value.group) == (9, 7)
    record = caplog.records[-1]
    assert stopped.value.reason is None
    advice = "pass a valid token to the suite, then run the job again"
    assert (record.levelname, record.getMessage()) == (
        "WARNING",
        f"signing: the job stopped (AuthenticationError, HTTP 401, call 9, group 7, what to do: {advice})",
    )
    cause = {"error": "AuthenticationError", "status": 401, "call": 9, "group": 7, "advice": advice}
    assert vars(record)["directsuite"] == {"event": "JobStopped"} | cause


RUN_AGAIN = "fix the cause, then run the job again"


@pytest.mark.parametrize(
    ("reason", "advice", "error"),
    [
        ("target not writable", RUN_AGAIN, OSError(errno.ENOSPC, "jane", NAME)),
        ("source not readable", RUN_AGAIN, PermissionError(errno.EACCES, "jane", NAME)),
        ("too many failures in a row", "fix the cause, then retry the failed documents with run_failed", None),
        ("task cancelled", RUN_AGAIN, asyncio.CancelledError()),
    ],
)
async def test_stop_without_a_cause_is_a_warning_with_its_reason(
    reason: StopReason, advice: str, error: BaseException | None, jobs: JobFactory, caplog: pytest.LogCaptureFixture
) -> None:
    class FailingTarget(TargetFolder):
        async def publish(self, name: str, file: Path) -> None:
            raise error or AssertionError

    async def read_source() -> AsyncGenerator[Pdf]:
        for number in range(20):
            yield Pdf(f"{number} {NAME}", Path(NAME) if error is None else PDF_CONTENT)
        if reason == "source not readable" and error is not None:
            raise error

    target = TargetFolder(jobs.out) if reason == "source not readable" else FailingTarget(jobs.out)
    with pytest.raises(JobStoppedError) as stopped:
        await jobs.make_job(read_source(), target=target).run()
    assert stopped.value.reason == reason
    assert stopped.value.advice.startswith(advice)
    text = f"signing: the job stopped ({reason}, what to do: {stopped.value.advice})"
    assert (caplog.records[-1].levelname, caplog.messages[-1]) == ("WARNING", text)
    assert vars(caplog.records[-1])["directsuite"] == {
        "event": "JobStopped",
        "reason": reason,
        "advice": stopped.value.advice,
    }
    assert "jane" not in caplog.text


async def test_file_in_the_place_of_the_target_is_the_reason_to_stop(jobs: JobFactory) -> None:
    target = TargetFolder(jobs.out)
    jobs.out.write_bytes(b"not a folder")
    with pytest.raises(JobStoppedError) as stopped:
        await jobs.run(NAME, target=target)
    assert stopped.value.reason == "target not writable"


class LosesDocument(FragileService):
    """Loses the response to the signing request of document-1, and cannot return that document later.

    Other documents are signed after the first failure to return it.
    """

    def __init__(self) -> None:
        super().__init__(before={"sign": self.wait_for_failure})
        self.has_failed = asyncio.Event()
        self.has_signed_others = asyncio.Event()

    async def wait_for_failure(self, identifier: str) -> None:
        if identifier != "document-1":
            await self.has_failed.wait()

    def _sign(self, identifier: str, signatures: int) -> bytes:
        signed = super()._sign(identifier, signatures)
        if identifier == "document-4":
            self.has_signed_others.set()
        if identifier == "document-1":
            raise ds.OutcomeUnknownError("lost", how_to_find_out="look", operation="SignAndPull")
        return signed

    async def download(self, identifier: str, destination: Path) -> Path:
        if self.has_failed.is_set():
            await self.has_signed_others.wait()
        self.has_failed.set()
        raise ds.ServerError("failed", operation="GetDoc", status=500, outcome=ds.Outcome.UNKNOWN)


async def test_failure_after_an_unknown_outcome_says_that_the_document_may_be_signed(
    jobs: JobFactory, caplog: pytest.LogCaptureFixture
) -> None:
    names = [NAME, *(f"{number}.pdf" for number in range(40))]
    progress = await jobs.run(*names, service=LosesDocument(), concurrency=2, max_outage=1.0)
    assert (progress.done, progress.failed) == (40, 1)
    [warning] = (record for record in caplog.records if record.levelname == "WARNING")
    assert warning.getMessage().endswith(" is FAILED, but may be signed (ServerError, HTTP 500, no calls)")
    fields = ENDED | {"may_be_signed": True, "error": "ServerError", "status": 500}
    assert vars(warning)["directsuite"].items() >= fields.items()


async def test_change_of_the_source_after_an_unknown_outcome_says_that_the_document_may_be_signed(
    jobs: JobFactory, caplog: pytest.LogCaptureFixture
) -> None:
    await jobs.record_stored(NAME, DocumentState.SIGNING, "document-0")
    assert (await jobs.run(NAME, content=PDF_CONTENT + b"%%EOF")).failed == 1
    fields = ENDED | {"problem": "source-changed", "may_be_signed": True}
    assert read_log(caplog) == [("WARNING", "is FAILED, but may be signed (source-changed", fields)]


async def test_failure_is_logged_with_a_numeric_code_of_the_service(
    jobs: JobFactory, caplog: pytest.LogCaptureFixture
) -> None:
    class Rejects(FragileService):
        async def save(self, pdf: bytes | Path) -> ds.StoredDocument:
            raise ds.ServiceError("jane", operation="Save", status=413, code=12, outcome=ds.Outcome.FAILED)

    assert (await jobs.run(NAME, service=Rejects())).failed == 1
    fields = ENDED | {"error": "ServiceError", "status": 413, "code": 12}
    assert read_log(caplog) == [("WARNING", "is FAILED (ServiceError, HTTP 413, code 12", fields)]
