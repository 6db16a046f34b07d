"""The decisions of a document's workflow: which step comes next, and what an error means."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

import directsuite as ds
from directsuite.jobs.signing.documents import Examined, SourceError
from directsuite.jobs.signing.workflow import Entry, Facts, Reaction, State, Step, classify_error, next_step

HOUR = 3600.0
SOURCE = Examined(sha256="ab", signatures=1)
OUTPUT = Examined(sha256="cd", signatures=3)

states = st.sampled_from(State)
optional_text = st.none() | st.sampled_from(["ab", "cd"])
examined = st.none() | st.builds(
    Examined, sha256=st.sampled_from(["ab", "cd"]), signatures=st.integers(0, 4), is_cut_off=st.booleans()
)
entries = st.builds(
    Entry,
    number=st.just(1),
    name=st.just("a.pdf"),
    state=states,
    identifier=optional_text,
    saved_at=st.none() | st.floats(0, 10 * HOUR),
    source_sha=optional_text,
    output_sha=optional_text,
)
facts = st.builds(
    Facts, signatures=st.integers(1, 3), source=examined, output=examined, is_output_verified=st.booleans()
)


def entry(state: State, **members: Any) -> Entry:
    """A document in this state, stored at 0 with the source that this run has."""
    made = Entry(number=1, name="a.pdf", state=state, identifier="x", saved_at=0.0, source_sha="ab")
    return attrs.evolve(made, **members)


READ = Facts(signatures=2, source=SOURCE)
RECEIVED = attrs.evolve(READ, output=OUTPUT)


@pytest.mark.parametrize(
    ("known", "facts", "step"),
    [
        (entry(State.FAILED), READ, Step.RENEW),
        (entry(State.SIGNING, output_sha="cd"), Facts(signatures=2), Step.VERIFY_OUTPUT),
        (entry(State.SIGNING, output_sha="cd"), Facts(signatures=2, is_output_verified=True), Step.FETCH),
        (entry(State.SAVED), Facts(signatures=2), Step.FETCH),
        (entry(State.SIGNING, source_sha="other"), RECEIVED, Step.REFUSE),
        (entry(State.NEW, source_sha=None), READ, Step.SAVE),
        (entry(State.SAVED), READ, Step.SIGN),
        (entry(State.SAVED, saved_at=-3 * HOUR), READ, Step.EXPIRE),
        (entry(State.SIGNING), READ, Step.DOWNLOAD),
        (entry(State.SIGNING, identifier=None), READ, Step.ABANDON),
        (entry(State.SIGNING), RECEIVED, Step.STORE),
        (entry(State.SIGNING), attrs.evolve(RECEIVED, signatures=1), Step.STORE),
        (entry(State.SIGNING), attrs.evolve(RECEIVED, signatures=3), Step.ABANDON),
        (entry(State.SIGNING), attrs.evolve(RECEIVED, output=attrs.evolve(OUTPUT, is_cut_off=True)), Step.ABANDON),
        (entry(State.SIGNED), Facts(signatures=2), Step.DELETE),
        (entry(State.DONE), READ, Step.END),
    ],
)
def test_what_is_known_gives_the_next_step(known: Entry, facts: Facts, step: Step) -> None:
    assert next_step(known, facts, now=HOUR) is step


@given(known=entries, facts=facts, now=st.floats(0, 10 * HOUR))
def test_a_signature_is_asked_for_only_where_none_was_before_and_the_source_is_the_one_that_was_stored(
    known: Entry, facts: Facts, now: float
) -> None:
    if next_step(known, facts, now) is Step.SIGN:
        assert known.state is State.SAVED
        assert facts.source is not None
        assert known.source_sha in (None, facts.source.sha256)
        assert known.saved_at is not None
        assert now - known.saved_at < 4 * HOUR


@given(known=entries, facts=facts, now=st.floats(0, 10 * HOUR))
def test_the_target_gets_only_complete_pdfs_with_all_new_signatures(known: Entry, facts: Facts, now: float) -> None:
    if next_step(known, facts, now) is Step.STORE:
        assert facts.source is not None
        assert facts.output is not None
        assert facts.output.signatures - facts.source.signatures >= facts.signatures
        assert not facts.output.is_cut_off


UNKNOWN = ds.OutcomeUnknownError("no answer", how_to_find_out="look", operation="Any")
NOT_SENT = ds.ConnectFailedError("nothing was sent", operation="Any", outcome=ds.Outcome.NOT_SENT)
BUSY = ds.RateLimitedError("later", operation="Any", status=429, outcome=ds.Outcome.REJECTED)
BROKEN = ds.ServerError("it failed", operation="Any", status=500, outcome=ds.Outcome.FAILED)
DENIED = ds.PermissionDeniedError("no", operation="Any", status=403, outcome=ds.Outcome.FAILED)
MISSING = ds.NotFoundError("what?", operation="Any", status=404, outcome=ds.Outcome.FAILED)
REFUSED = ds.BadRequestError("no", operation="Any", status=400, outcome=ds.Outcome.FAILED)
TOO_LARGE = ds.ServiceError("too large", operation="Any", status=413, outcome=ds.Outcome.FAILED)
ASTRAY = ds.ServiceError("moved", operation="Any", status=302, outcome=ds.Outcome.FAILED)
NO_NAME = ds.InvalidArgumentError("no file can have this name", parameter="name")
NO_FILE = ds.InvalidArgumentError("no such folder", parameter="destination")


@pytest.mark.parametrize(
    ("step", "error", "is_ours", "reaction"),
    [
        (Step.FETCH, SourceError("gone", is_its_own=True), False, Reaction.FAIL),
        (Step.FETCH, SourceError("a disk"), False, Reaction.RAISE),
        (Step.FETCH, NO_NAME, False, Reaction.FAIL),
        (Step.SAVE, TOO_LARGE, False, Reaction.FAIL),
        (Step.SAVE, REFUSED, False, Reaction.FAIL),
        (Step.SAVE, MISSING, False, Reaction.RAISE),  # nothing but the URL can be wrong then
        (Step.SAVE, BROKEN, False, Reaction.RAISE),
        (Step.SAVE, ASTRAY, False, Reaction.RAISE),
        (Step.SIGN, UNKNOWN, True, Reaction.FIND_OUT),
        (Step.SIGN, NOT_SENT, True, Reaction.UNDO),
        (Step.SIGN, BUSY, True, Reaction.UNDO),
        (Step.SIGN, DENIED, True, Reaction.UNDO),
        (Step.SIGN, ASTRAY, True, Reaction.UNDO),
        (Step.SIGN, DENIED, False, Reaction.ABANDON),
        (Step.SIGN, MISSING, False, Reaction.ABANDON),
        (Step.SIGN, REFUSED, True, Reaction.ASK),
        (Step.SIGN, MISSING, True, Reaction.ASK),
        (Step.SIGN, TOO_LARGE, True, Reaction.FAIL),
        (Step.SIGN, BROKEN, True, Reaction.RAISE),  # it may have signed
        (Step.DOWNLOAD, MISSING, True, Reaction.ABANDON),
        (Step.DOWNLOAD, DENIED, True, Reaction.RAISE),
        (Step.DOWNLOAD, DENIED, False, Reaction.ABANDON),
        (Step.DOWNLOAD, BROKEN, True, Reaction.RAISE),
        (Step.STORE, NO_NAME, True, Reaction.FAIL),
        (Step.SIGN, NO_FILE, True, Reaction.STOP),
        (Step.DOWNLOAD, NO_FILE, False, Reaction.STOP),
        (Step.FETCH, NO_FILE, False, Reaction.FAIL),  # of a function of the caller's
    ],
)
def test_an_error_is_the_documents_the_services_or_anothers(
    step: Step, error: ds.DirectSuiteError | SourceError, is_ours: bool, reaction: Reaction
) -> None:
    assert classify_error(step, error, is_ours=is_ours) is reaction


@pytest.mark.parametrize(("is_there", "reaction"), [(True, Reaction.FAIL), (False, Reaction.ABANDON)])
def test_who_may_sign_and_is_refused_has_a_document_that_is_refused_or_one_that_is_gone(
    is_there: bool, reaction: Reaction
) -> None:
    assert classify_error(Step.SIGN, REFUSED, is_ours=True, is_there=is_there) is reaction
