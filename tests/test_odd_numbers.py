"""Impossible numbers are rejected when a worker, a job or a watch is created, not by a later failure."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import directsuite as ds
from directsuite.jobs.delivery import DeliveryJournal, DeliveryTracker
from directsuite.jobs.signing import Pdf, SigningFleet, SigningJob, SigningJournal, TargetFolder
from directsuite.sync import SqliteStore, Synchronizer
from directsuite.sync.fleet import Fleet
from directsuite.sync.postgres import PostgresStore
from directsuite.sync.shared_limits import SharedLimits
from tests.jobs.signing.job_factory import SIGNATURES, yield_pdfs

CONNINFO = "host=127.0.0.1"
NO_NUMBERS: list[Any] = [math.nan, -math.inf, 10**400, "5", True]
FINITE = [0, math.inf, *NO_NUMBERS]
COUNTS, SECONDS = [-1, 1.5, *FINITE], [-1.0, 1e300, *FINITE]


async def find_password(name: str) -> str:
    return name


@pytest.fixture
def makers(tmp_path: Path) -> dict[str, Callable[..., object]]:
    """Return functions that create a worker, a job or a watch, by name."""
    url = "https://api.example.test"
    suite = ds.DirectSuite(ds.Settings(signing_url=url, fax_url=url, message_url=url), token="t")
    target, sqlite, postgres = TargetFolder(tmp_path / "out"), SqliteStore(":memory:"), PostgresStore(CONNINFO)
    journal, fleet_journal = SigningJournal(":memory:"), SigningJournal(conninfo=CONNINFO, job="job")
    pdfs, named = yield_pdfs(), partial(Pdf, content=b"")
    return {
        "signing job": partial(SigningJob, suite.signing, pdfs, target, SIGNATURES, journal=journal),
        "signing fleet": partial(SigningFleet, suite.signing, named, target, SIGNATURES, journal=fleet_journal),
        "tracker": partial(DeliveryTracker, suite.mailbox("a@b.test", "p"), journal=DeliveryJournal(":memory:")),
        "journal": partial(SigningJournal, conninfo=CONNINFO, job="job"),
        "synchronizer": partial(Synchronizer, suite, sqlite, [], find_password),
        "fleet": partial(Fleet, suite, postgres, find_password),
        "store": partial(PostgresStore, CONNINFO),
        "limits": partial(SharedLimits, CONNINFO, processes=1),
        "watch": partial(suite.fax.watch, "5551234"),
    }


OF_FLEETS = {"worker_timeout": SECONDS, "tick": SECONDS, "grace": NO_NUMBERS}
ODD_OPTIONS: dict[str, dict[str, list[Any]]] = {
    "signing job": {"concurrency": COUNTS, "max_outage": NO_NUMBERS},
    "signing fleet": {"concurrency": COUNTS, "max_outage": NO_NUMBERS, **OF_FLEETS},
    "tracker": {"give_up_after": FINITE},
    "journal": {"chunk": COUNTS},
    "synchronizer": {"concurrency": COUNTS, "interval": SECONDS, "requests_per_second": FINITE},
    "fleet": {"concurrency": COUNTS, "interval": SECONDS, "requests_per_second": FINITE, **OF_FLEETS},
    "store": {"connections": COUNTS, "timeout": SECONDS},
    "limits": {"processes": COUNTS, "connections": COUNTS},
    "watch": {"interval": FINITE},
}


@pytest.mark.parametrize(("made", "name"), [(made, name) for made, odd in ODD_OPTIONS.items() for name in odd])
async def test_invalid_number_is_rejected_by_parameter_name(
    makers: dict[str, Callable[..., object]], made: str, name: str
) -> None:
    for value in ODD_OPTIONS[made][name]:
        with pytest.raises((ds.ConfigurationError, ds.InvalidArgumentError), match=rf"\b{name}\b"):
            makers[made](**{name: value})
