"""The log of a job: each document that failed, is tried again or ends otherwise, by its number."""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path

import pytest

import directsuite as ds
from directsuite.jobs.signing import DocumentState
from tests.jobs.signing.fragile_service import Fault, FragileService
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
