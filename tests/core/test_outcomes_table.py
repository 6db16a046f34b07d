"""The table of core/outcome.py on real sockets: the error and the number of requests for each row."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

import directsuite as ds
import directsuite.types as ds_types
from directsuite.core import outcome

from . import api
from .outcome_cases import CONNECT_FAULTS, DEFAULT_CALLS, FAULT_CASES, FaultCase
from .scripted_server import ScriptedServer
from .scripted_suite import PATIENT, SECRETS, catch_error, open_suite

CASES = [
    # by default each case is tried with one of its calls, in turn
    pytest.param(scene, ask, marks=[pytest.mark.wide] * (ask is not scene.api_calls[number % len(scene.api_calls)]))
    for number, scene in enumerate(FAULT_CASES)
    for ask in scene.api_calls
]
OTHER_CASES = [
    pytest.param(scene, ask, marks=pytest.mark.slow)
    for scene in FAULT_CASES
    for ask in api.API_CALLS
    if scene.api_calls == DEFAULT_CALLS and ask not in DEFAULT_CALLS
    # without a connection the login would fail, and after 401 the session is renewed
    if ask.service != "registration" or not (scene in CONNECT_FAULTS or scene.row == "401")
    if ask is not api.PROVISION or scene.row != "answer-deadline"  # it leaves time for its verification
]


@attrs.frozen
class Row:
    """A row of the table in the docstring."""

    name: str
    seen: str
    outcome: str
    error: str
    again: str

    def attempts(self, ask: api.ApiCall) -> int:
        """Return the number of requests, if the policy permits two attempts and both fail."""
        if self.name in ("queue-deadline", "token"):
            return 0
        return 2 if self.again in ("always", "renewed") or (self.again == "repeatable" and ask.may_repeat) else 1

    def final(self) -> ds.Outcome:
        return ds.Outcome.FAILED if self.again == "renewed" else ds.Outcome[self.outcome]


def _rows() -> Iterator[Row]:
    text = (outcome.__doc__ or "").partition("─\n")[2].partition("\n\n")[0]
    for line in text.splitlines():
        yield Row(*re.split(r"\s{2,}", line.strip()))


TABLE = {row.name: row for row in _rows()}
REASONS: dict[str, set[ds_types.FailureReason]] = {
    "dns": {"host name not found", "no name server responded"},
    "unreachable": {"host not reachable"},
    "refused": {"connection refused"},
    "tls": {"certificate not accepted", "TLS handshake failed", "connection reset"},
    "proxy": {"proxy failed", "connection closed"},
    "lost-before": {"connection reset", "connection closed"},
    "connect-time": {"timed out while connecting"},
    "connect-deadline": {"timed out while connecting"},
    "lost-in-body": {"connection reset", "connection closed"},
    "lost": {"connection reset", "connection closed"},
    "answer-time": {"timed out after connecting"},
    "answer-deadline": {"timed out after connecting"},
}
"""The reasons in the errors of each row. The others have none."""


@pytest.mark.exhaustive
@pytest.mark.parametrize(("scene", "ask"), CASES + OTHER_CASES, ids=str)
async def test_failure_is_what_the_table_says(
    server: ScriptedServer, tmp_path: Path, scene: FaultCase, ask: api.ApiCall
) -> None:
    row = TABLE[scene.row]
    failed = list[ds.AttemptFailed]()
    async with (
        scene.network(server, tmp_path) as network,
        open_suite(server, **(network | dict(scene.settings))) as suite,
    ):
        suite.add_listener(lambda event: failed.append(event) if isinstance(event, ds.AttemptFailed) else None)
        error = await catch_error(ask(suite))
    assert (error.operation, error.service, error.outcome) == (ask.operation, ask.service, row.final())
    seen = error
    if row.outcome == "UNKNOWN" and not ask.may_repeat:
        assert type(error) is ds.OutcomeUnknownError
        assert error.how_to_find_out
        assert isinstance(error.__cause__, ds.DirectSuiteError)
        seen = error.__cause__
    assert type(seen) is (scene.error or getattr(ds, row.error))
    assert getattr(seen, "reason", None) in REASONS.get(row.name, {None})
    assert {event.reason for event in failed} <= REASONS.get(row.name, set()) | {None}
    assert getattr(seen, "reason", None) == getattr(error, "reason", None) == failed[-1].reason
    others = ("login", "GetPatientAddressByMeta/")  # the request of a session, and the verification of a provisioning
    arrived = [request for request in server.requests if not request.path.startswith(others)]
    assert error.attempts == row.attempts(ask)
    assert len(arrived) == (0 if row.outcome == "NOT_SENT" else error.attempts)
    if row.name.endswith("-time"):
        assert error.elapsed == pytest.approx(11)  # two attempts of 5 s, with a second in between
    if row.name.endswith("-deadline"):
        assert error.elapsed == pytest.approx(scene.settings.get("timeout", 60))
    for told in (str(error), repr(error), str(seen), repr(seen)):
        assert not any(secret in told for secret in (PATIENT, *SECRETS))


def test_every_row_is_seen_and_nothing_else() -> None:
    assert {scene.row for scene in FAULT_CASES} | {"cancelled"} == set(TABLE)


@pytest.mark.parametrize("row", TABLE.values(), ids=lambda row: row.name)
def test_row_is_one_that_the_code_can_follow(row: Row) -> None:
    assert row.outcome in {"—", *(known.name for known in ds.Outcome)}
    assert row.again in {
        "—": {"no"},
        "NOT_SENT": {"always", "no"},
        "REJECTED": {"always", "renewed"},
        "UNKNOWN": {"repeatable", "no"},
        "FAILED": {"no"},
    }.get(row.outcome, set())
