"""The log of a job: each document that failed, is tried again or ends otherwise, by its number."""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path

import pytest

import directsuite as ds
from directsuite.jobs.signing import DocumentState, JobStoppedError, TargetFolder
from tests.jobs.signing.fragile_service import SIGNATURE_BYTES, Fault, FragileService
from tests.jobs.signing.job_factory import JobFactory

NAME = "jane doe.pdf"


class RefusesAll(FragileService):
    async def save(self, pdf: bytes | Path) -> ds.StoredDocument:
        raise ds.ServiceError("too large", operation="Save", status=413, outcome=ds.Outcome.FAILED)


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
        (
            [None, Fault.RESPONSE_LOST],
            [
                (
                    "INFO",
                    "is signed: an earlier request took effect (no calls)",
                    {"event": "OutcomeFound", "happened": True},
                )
            ],
        ),
        (
            [None, Fault.REQUEST_LOST],
            [("INFO", f"{RESTARTED}not signed (no calls)", {"event": "OutcomeFound", "happened": False})],
        ),
        (
            [None, Fault.REQUEST_LOST, Fault.EXPIRED],
            [("INFO", f"{RESTARTED}no longer available (no calls)", {"event": "OutcomeFound"})],
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
    assert [text for _, text, _ in read_log(caplog)] == ["is signed: an earlier request took effect (no calls)"]


async def test_expired_document_starts_again(jobs: JobFactory, caplog: pytest.LogCaptureFixture) -> None:
    await jobs.record_stored(NAME, DocumentState.SAVED, "document-0")
    assert (await jobs.run(NAME)).done == 1
    text = "starts again: its stored document has expired or is not available (no calls)"
    assert read_log(caplog) == [("INFO", text, {"event": "DocumentRetried"})]


async def test_failure_is_a_warning_with_its_problem(jobs: JobFactory, caplog: pytest.LogCaptureFixture) -> None:
    jobs.out.mkdir()
    (jobs.out / NAME).write_bytes(b"another file")
    assert (await jobs.run(NAME)).failed == 1
    assert read_log(caplog) == [("WARNING", "is FAILED (name-conflict", ENDED | {"problem": "name-conflict"})]


@pytest.mark.parametrize(
    ("name", "service", "details", "fields"),
    [
        (NAME, RefusesAll(), "ServiceError, HTTP 413", {"error": "ServiceError", "status": 413}),
        (f"../{NAME}", FragileService(), "InvalidArgumentError", {"error": "InvalidArgumentError"}),
    ],
)
async def test_failure_by_an_error_is_a_warning_with_its_class(
    name: str,
    service: FragileService,
    details: str,
    fields: dict[str, object],
    jobs: JobFactory,
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert (await jobs.run(name, service=service)).failed == 1
    assert read_log(caplog) == [("WARNING", f"is FAILED ({details}", ENDED | fields)]


class SpoilsFirst(FragileService):
    """Changes the first signed PDF that it returns, but not the stored document."""

    def __init__(self, removed: bytes, *faults: Fault | None) -> None:
        super().__init__(faults=[*faults])
        self.removed = removed

    def _sign(self, identifier: str, signatures: int) -> bytes:
        return self._spoil(super()._sign(identifier, signatures))

    async def download(self, identifier: str, destination: Path) -> Path:
        self.stored[identifier] = self._spoil(self.stored[identifier])
        return await super().download(identifier, destination)

    def _spoil(self, pdf: bytes) -> bytes:
        removed, self.removed = self.removed, b""
        return pdf.replace(removed, b"") if removed else pdf


@pytest.mark.parametrize(
    ("service", "why", "fields"),
    [
        (SpoilsFirst(SIGNATURE_BYTES), "is not signed", {"event": "DocumentRetried"}),
        (SpoilsFirst(b"%%EOF"), "was not received completely", {"event": "DocumentRetried"}),
        (
            SpoilsFirst(b"%%EOF", None, Fault.RESPONSE_LOST),
            "was not received completely",
            {"event": "OutcomeFound"},  # it may be signed
        ),
    ],
    ids=["unsigned", "incomplete", "incomplete-download"],
)
async def test_outcome_is_found_only_after_an_unknown_one(
    service: FragileService, why: str, fields: dict[str, object], jobs: JobFactory, caplog: pytest.LogCaptureFixture
) -> None:
    assert (await jobs.run(NAME, service=service)).done == 1
    text = f"starts again: its stored document {why} (no calls)"
    assert read_log(caplog) == [("INFO", text, fields)]


async def test_stop_of_the_job_is_a_warning_with_the_call_of_its_cause(
    jobs: JobFactory, caplog: pytest.LogCaptureFixture
) -> None:
    class Forbids(FragileService):
        async def save(self, pdf: bytes | Path) -> ds.StoredDocument:
            error = ds.AuthenticationError("jane", operation="Save", status=401, outcome=ds.Outcome.FAILED)
            raise error.set_call(9, 7, 1, 0.5)

    with pytest.raises(JobStoppedError) as stopped:
        await jobs.run(NAME, service=Forbids())
    assert (stopped.value.call, stopped.value.group) == (9, 7)
    record = caplog.records[-1]
    assert (record.levelname, record.getMessage()) == (
        "WARNING",
        "signing: the job stopped (AuthenticationError, HTTP 401, call 9, group 7)",
    )
    cause = {"error": "AuthenticationError", "status": 401, "call": 9, "group": 7}
    assert vars(record)["directsuite"] == {"event": "JobStopped"} | cause


async def test_stop_without_a_call_is_a_warning(jobs: JobFactory, caplog: pytest.LogCaptureFixture) -> None:
    target = TargetFolder(jobs.out)
    jobs.out.write_bytes(b"not a folder")
    with pytest.raises(JobStoppedError):
        await jobs.run(NAME, target=target)
    assert caplog.messages[-1] == "signing: the job stopped"
    assert vars(caplog.records[-1])["directsuite"] == {"event": "JobStopped"}
