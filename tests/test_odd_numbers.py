"""Numbers that can't be right are refused when a worker, a job or a watch is made, not by what comes of them later."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import directsuite as ds
from directsuite.jobs.delivery import DeliveryJournal, DeliveryTracker
from directsuite.jobs.signing import Pdf, SigningFleet, SigningJob, SigningJournal, TargetFolder
from directsuite.sync import SqliteStore, Synchronizer
from tests.jobs.signing.job_factory import SIGNATURES, yield_pdfs

pytest.importorskip("psycopg", reason="psycopg isn't installed: the extra 'fleet' brings it")
from directsuite.sync.fleet import Fleet
from directsuite.sync.postgres import PostgresStore
from directsuite.sync.shared_limits import SharedLimits

CONNINFO = "host=127.0.0.1"
NO_NUMBERS: list[Any] = [math.nan, -math.inf, 10**400, "5", True]
FINITE = [0, math.inf, *NO_NUMBERS]
COUNTS, SECONDS = [-1, 1.5, *FINITE], [-1.0, 1e300, *FINITE]


@pytest.fixture(autouse=True)
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a target creates its folder


@pytest.fixture
def suite() -> ds.DirectSuite:
    url = "https://api.example.test"
    return ds.DirectSuite(ds.Settings(signing_url=url, fax_url=url, message_url=url), token="t")


async def password_of(name: str) -> str:
    return name


def signing_job(suite: ds.DirectSuite, **option: Any) -> object:
    return SigningJob(
        suite.signing, yield_pdfs(), TargetFolder("out"), SIGNATURES, journal=SigningJournal(":memory:"), **option
    )


def signing_fleet(suite: ds.DirectSuite, **option: Any) -> object:
    journal = SigningJournal(conninfo=CONNINFO, job="job")
    return SigningFleet(
        suite.signing, lambda name: Pdf(name, b""), TargetFolder("out"), SIGNATURES, journal=journal, **option
    )


def tracker(suite: ds.DirectSuite, **option: Any) -> object:
    return DeliveryTracker(suite.mailbox("a@b.test", "p"), journal=DeliveryJournal(":memory:"), **option)


def postgres_journal(_: ds.DirectSuite, **option: Any) -> object:
    return SigningJournal(conninfo=CONNINFO, job="job", **option)


def synchronizer(suite: ds.DirectSuite, **option: Any) -> object:
    return Synchronizer(suite, SqliteStore(":memory:"), [], password_of, **option)


def fleet(suite: ds.DirectSuite, **option: Any) -> object:
    return Fleet(suite, PostgresStore(CONNINFO), password_of, **option)


def postgres_store(_: ds.DirectSuite, **option: Any) -> object:
    return PostgresStore(CONNINFO, **option)


def shared_limits(_: ds.DirectSuite, *, processes: Any = 1, connections: Any = None) -> object:
    return SharedLimits(CONNINFO, processes=processes, connections=connections)


def fax_watch(suite: ds.DirectSuite, **option: Any) -> object:
    return suite.fax.watch("5551234", **option)


MAKES: dict[Callable[..., object], dict[str, list[Any]]] = {
    signing_job: {"concurrency": COUNTS, "max_outage": NO_NUMBERS},
    signing_fleet: {
        "concurrency": COUNTS,
        "max_outage": NO_NUMBERS,
        "worker_timeout": SECONDS,
        "tick": SECONDS,
        "grace": NO_NUMBERS,
    },
    tracker: {"give_up_after": FINITE},
    postgres_journal: {"chunk": COUNTS},
    synchronizer: {"concurrency": COUNTS, "interval": SECONDS, "requests_per_second": FINITE},
    fleet: {
        "concurrency": COUNTS,
        "interval": SECONDS,
        "requests_per_second": FINITE,
        "tick": SECONDS,
        "worker_timeout": SECONDS,
        "grace": NO_NUMBERS,
    },
    postgres_store: {"connections": COUNTS, "timeout": SECONDS},
    shared_limits: {"processes": COUNTS, "connections": COUNTS},
    fax_watch: {"interval": FINITE},
}


@pytest.mark.parametrize(
    ("make", "name", "values"), [(make, name, values) for make, odd in MAKES.items() for name, values in odd.items()]
)
async def test_invalid_number_is_rejected_by_parameter_name(
    suite: ds.DirectSuite, make: Callable[..., object], name: str, values: list[Any]
) -> None:
    for value in values:
        with pytest.raises((ds.ConfigurationError, ds.InvalidArgumentError), match=rf"\b{name}\b"):
            make(suite, **{name: value})
