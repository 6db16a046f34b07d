"""Attribution of a digest to a call: never to a call without an effect, whatever other calls do."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, NoReturn

import attrs
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from directsuite.errors import ConnectionLostError, DirectSuiteError, Outcome, ServiceError
from directsuite.signing.changes import DigestHistory, DocumentChange
from tests.examples import scale_examples

NAME = "d"


def refused() -> NoReturn:
    raise ServiceError("no", status=400, outcome=Outcome.FAILED)


def lost() -> NoReturn:
    raise ConnectionLostError("lost", outcome=Outcome.UNKNOWN)


def cancelled() -> NoReturn:
    raise asyncio.CancelledError


ENDS: dict[str, Callable[[], NoReturn]] = {"refused": refused, "lost": lost, "cancelled": cancelled}


@attrs.define(eq=False)
class Request:
    """A change in the model. landed: the digest that it created on the server."""

    change: DocumentChange
    leaving: contextlib.ExitStack
    landed: str | None = None
    refused: bool = False
    left: bool = False


class OneProgramAndItsDocument(RuleBasedStateMachine):
    """A server with numbered versions, and a program whose requests arrive early, late or never."""

    def __init__(self) -> None:
        super().__init__()
        self.versions = DigestHistory()
        self.server = ["d0"]
        self.known: list[str | None] = [None, "d0"]
        self.requests: list[Request] = []

    def open(self) -> list[Request]:
        return [request for request in self.requests if not request.left]

    @rule(draw=st.data())
    def begin(self, draw: st.DataObject) -> None:
        leaving = contextlib.ExitStack()
        given = draw.draw(st.sampled_from(self.known))
        self.requests.append(Request(leaving.enter_context(self.versions.track_change(NAME, given)), leaving))

    @precondition(lambda self: any(not each.landed and not each.refused for each in self.requests))
    @rule(draw=st.data())
    def land(self, draw: st.DataObject) -> None:
        waiting = [each for each in self.requests if not each.landed and not each.refused]
        request = draw.draw(st.sampled_from(waiting))
        self.server.append(f"d{len(self.server)}")
        request.landed = self.server[-1]

    @precondition(lambda self: self.open())
    @rule(draw=st.data(), kind=st.sampled_from(["answered", "pulled", "refused", "lost", "cancelled"]))
    def end(self, draw: st.DataObject, kind: str) -> None:
        request = draw.draw(st.sampled_from(self.open()))
        if kind in ("answered", "pulled") and not request.landed:
            return
        if kind == "refused" and request.landed:
            return
        request.left = True
        request.refused = kind == "refused"
        if kind == "answered":
            request.change.record_success(request.landed)
            self.known.append(request.landed)
        elif kind == "pulled":
            request.change.record_success(None)
        else:
            with contextlib.suppress(DirectSuiteError, asyncio.CancelledError), request.leaving:
                ENDS[kind]()
            return
        request.leaving.close()

    @rule(late=st.booleans(), draw=st.data())
    def read(self, draw: st.DataObject, *, late: bool) -> None:
        with self.versions.track_info_request(NAME) as reported:
            digest = self.server[-1]
            if late:
                self.begin(draw)
                self.land(draw)
            reported.append(digest)
        self.known.append(digest)

    @invariant()
    def no_digest_is_put_down_to_a_request_that_did_not_make_it_there(self) -> None:
        assert not any(request.change.is_proven_by(self.server[-1]) for request in self.open() if not request.landed)

    def teardown(self) -> None:
        for request in self.open():
            request.leaving.close()


OneProgramAndItsDocument.TestCase.settings = settings(max_examples=scale_examples(60), stateful_step_count=25)
test_no_change_takes_another_for_its_own = OneProgramAndItsDocument.TestCase


@pytest.mark.slow
def test_no_change_takes_another_for_its_own_at_length() -> None:
    case: Any = OneProgramAndItsDocument.TestCase()
    case.settings = settings(max_examples=1000, stateful_step_count=40, deadline=None)
    case.runTest()


def test_rejected_change_leaves_the_document_traceable() -> None:
    versions = DigestHistory()
    with contextlib.suppress(ServiceError), versions.track_change(NAME, "d0"):
        refused()
    with versions.track_change(NAME, "d0") as change:
        assert change.is_traceable


def _others(versions: DigestHistory) -> None:
    for number in range(5000):
        with versions.track_change(str(number), "d0"):
            pass


def test_number_of_remembered_documents_is_limited() -> None:
    versions = DigestHistory()
    _others(versions)
    for number in range(5000):
        versions.record_saved(f"saved {number}", "d0")
    assert 2048 <= len(versions._idle) <= 4096


def test_unresolved_change_is_remembered_longer_than_other_documents() -> None:
    versions = DigestHistory()
    with contextlib.suppress(ConnectionLostError), versions.track_change(NAME, "d0"):
        lost()
    _others(versions)
    with versions.track_change(NAME, "d0") as change:
        assert not change.is_traceable


def test_document_in_progress_is_not_forgotten() -> None:
    versions = DigestHistory()
    with versions.track_change(NAME, "d0") as first:
        _others(versions)
        with versions.track_change(NAME, "d0") as second:
            assert not first.is_proven_by("d1")
            assert not second.is_proven_by("d1")


def test_letter_case_makes_no_other_digest() -> None:
    versions = DigestHistory()
    with versions.track_change(NAME, "D0a") as change:
        assert not change.is_proven_by("d0A")
        change.record_success("D1")
    with versions.track_change(NAME, "d1") as change:
        assert change.is_traceable
        assert not change.is_proven_by("D1")


Before = Callable[[DigestHistory], None]


def _updated(digest: str | None, *, from_info: bool = False) -> Before:
    def before(versions: DigestHistory) -> None:
        with versions.track_change("another", "e0") as change:
            assert change.is_proven_by(digest) if from_info else change.is_traceable
            change.record_success(digest, from_info=from_info)

    return before


SPELLINGS: dict[str, tuple[Before, bool]] = {
    "nothing told": (lambda _: None, True),
    "told after an update alike": (_updated("e1"), True),
    "told after another update": (_updated("e2"), False),
    "told after Save alike": (lambda versions: versions.record_saved("another", "E1"), True),
    "told after a pull": (_updated(None), True),
    "told by the look that settled it": (_updated("e1", from_info=True), True),
}


@pytest.mark.parametrize(("before", "alike"), SPELLINGS.values(), ids=SPELLINGS)
def test_digest_of_another_response_is_comparable_until_disproved(before: Before, *, alike: bool) -> None:
    versions = DigestHistory()
    before(versions)
    with versions.track_info_request("another") as reported:
        reported.append("e1")
    with versions.track_change(NAME, "d0") as change:
        assert change.has_comparable_digest == alike


def test_get_doc_info_with_same_digest_makes_digests_comparable() -> None:
    versions = DigestHistory()
    for name, reported, alike in (("first", "another", False), ("second", "d0", True)):
        versions.record_saved(name, "d0")
        with versions.track_info_request(name) as looks:
            looks.append(reported)
        with versions.track_change(NAME, "d0") as change:
            assert change.has_comparable_digest == alike
            change.record_success(None)


@pytest.mark.parametrize("overtaken", ["by a change under way", "by a change that ended", "by none"])
def test_reading_counts_where_no_change_overtook_it(overtaken: str) -> None:
    versions = DigestHistory()
    with versions.track_change(NAME, None) as first:
        first.record_success(None)
    changing = versions.track_change(NAME, None)
    with versions.track_info_request(NAME) as reported:
        reported.append("d0")
        if overtaken != "by none":
            changing.__enter__().record_success(None)
        if overtaken == "by a change that ended":
            changing.__exit__(None, None, None)
    if overtaken == "by a change under way":
        changing.__exit__(None, None, None)
    with versions.track_change(NAME, "d0") as later:
        assert later.is_traceable == (overtaken == "by none")


def test_reading_does_not_spoil_the_proof_of_a_change_in_progress() -> None:
    versions = DigestHistory()
    with versions.track_change(NAME, "d0") as change:
        with versions.track_info_request(NAME) as reported:
            reported.append("d1")
        assert change.is_proven_by("d1")


def test_documents_in_progress_do_not_displace_others() -> None:
    versions = DigestHistory()
    with contextlib.ExitStack() as in_progress:
        for number in range(5000):
            in_progress.enter_context(versions.track_change(str(number), "d0"))
        with contextlib.suppress(ConnectionLostError), versions.track_change(NAME, "d0"):
            lost()
        with versions.track_change(NAME, "d0") as change:
            assert not change.is_traceable


def test_documents_changed_last_are_remembered() -> None:
    versions = DigestHistory()
    with versions.track_change(NAME, "d0") as change:
        change.record_success("d1")
    for number in range(4095):
        versions.record_saved(str(number), "d0")
    with versions.track_change(NAME, "d1") as change:
        change.record_success("d2")
    versions.record_saved("one more", "d0")
    with versions.track_change(NAME, "d1") as change:
        assert not change.is_traceable
