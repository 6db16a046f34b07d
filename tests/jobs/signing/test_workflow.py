"""The decisions of a document's workflow: the next step, and the reaction to an error."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

import directsuite as ds
from directsuite.jobs.signing.documents import PdfInfo, SourceError
from directsuite.jobs.signing.workflow import (
    DocumentState,
    ErrorReaction,
    RunContext,
    SigningEntry,
    SigningStep,
    classify_error,
    next_step,
)

HOUR = 3600.0
SOURCE = PdfInfo(sha256="ab", signature_count=1)
OUTPUT = PdfInfo(sha256="cd", signature_count=3)

states = st.sampled_from(DocumentState)
optional_text = st.none() | st.sampled_from(["ab", "cd"])
examined = st.none() | st.builds(
    PdfInfo, sha256=st.sampled_from(["ab", "cd"]), signature_count=st.integers(0, 4), is_cut_off=st.booleans()
)
entries = st.builds(
    SigningEntry,
    number=st.just(1),
    name=st.just("a.pdf"),
    state=states,
    identifier=optional_text,
    saved_at=st.none() | st.floats(0, 10 * HOUR),
    source_sha=optional_text,
    output_sha=optional_text,
)
facts = st.builds(
    RunContext, signature_count=st.integers(1, 3), source=examined, output=examined, is_output_verified=st.booleans()
)


def entry(state: DocumentState, **members: Any) -> SigningEntry:
    """Return an entry in this state, stored at time 0 from the source of this run."""
    made = SigningEntry(number=1, name="a.pdf", state=state, identifier="x", saved_at=0.0, source_sha="ab")
    return attrs.evolve(made, **members)


READ = RunContext(signature_count=2, source=SOURCE)
RECEIVED = attrs.evolve(READ, output=OUTPUT)


@pytest.mark.parametrize(
    ("known", "facts", "step"),
    [
        (entry(DocumentState.FAILED), READ, SigningStep.RESET),
        (entry(DocumentState.SIGNING, output_sha="cd"), RunContext(signature_count=2), SigningStep.VERIFY_OUTPUT),
        (
            entry(DocumentState.SIGNING, output_sha="cd"),
            RunContext(signature_count=2, is_output_verified=True),
            SigningStep.FETCH,
        ),
        (entry(DocumentState.SAVED), RunContext(signature_count=2), SigningStep.FETCH),
        (entry(DocumentState.SIGNING, source_sha="other"), RECEIVED, SigningStep.FAIL_CHANGED),
        (entry(DocumentState.NEW, source_sha=None), READ, SigningStep.SAVE),
        (entry(DocumentState.SAVED), READ, SigningStep.SIGN),
        (entry(DocumentState.SAVED, saved_at=-3 * HOUR), READ, SigningStep.EXPIRE),
        (entry(DocumentState.SIGNING), READ, SigningStep.DOWNLOAD),
        (entry(DocumentState.SIGNING, identifier=None), READ, SigningStep.ABANDON),
        (entry(DocumentState.SIGNING), RECEIVED, SigningStep.STORE),
        (entry(DocumentState.SIGNING), attrs.evolve(RECEIVED, signature_count=1), SigningStep.STORE),
        (entry(DocumentState.SIGNING), attrs.evolve(RECEIVED, signature_count=3), SigningStep.ABANDON),
        (
            entry(DocumentState.SIGNING),
            attrs.evolve(RECEIVED, output=attrs.evolve(OUTPUT, is_cut_off=True)),
            SigningStep.ABANDON,
        ),
        (entry(DocumentState.SIGNED), RunContext(signature_count=2), SigningStep.DELETE),
        (entry(DocumentState.DONE), READ, SigningStep.END),
    ],
)
def test_known_facts_determine_next_step(known: SigningEntry, facts: RunContext, step: SigningStep) -> None:
    assert next_step(known, facts, now=HOUR) is step


@given(known=entries, facts=facts, now=st.floats(0, 10 * HOUR))
def test_sign_is_requested_only_once_and_for_the_stored_source(
    known: SigningEntry, facts: RunContext, now: float
) -> None:
    if next_step(known, facts, now) is SigningStep.SIGN:
        assert known.state is DocumentState.SAVED
        assert facts.source is not None
        assert known.source_sha in (None, facts.source.sha256)
        assert known.saved_at is not None
        assert now - known.saved_at < 4 * HOUR


@given(known=entries, facts=facts, now=st.floats(0, 10 * HOUR))
def test_target_gets_only_complete_pdfs_with_all_new_signatures(
    known: SigningEntry, facts: RunContext, now: float
) -> None:
    if next_step(known, facts, now) is SigningStep.STORE:
        assert facts.source is not None
        assert facts.output is not None
        assert facts.output.signature_count - facts.source.signature_count >= facts.signature_count
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
        (SigningStep.FETCH, SourceError("gone", is_document_specific=True), False, ErrorReaction.FAIL),
        (SigningStep.FETCH, SourceError("a disk"), False, ErrorReaction.RAISE),
        (SigningStep.FETCH, NO_NAME, False, ErrorReaction.FAIL),
        (SigningStep.SAVE, TOO_LARGE, False, ErrorReaction.FAIL),
        (SigningStep.SAVE, REFUSED, False, ErrorReaction.FAIL),
        (SigningStep.SAVE, MISSING, False, ErrorReaction.RAISE),  # only the URL can be wrong
        (SigningStep.SAVE, BROKEN, False, ErrorReaction.RAISE),
        (SigningStep.SAVE, ASTRAY, False, ErrorReaction.RAISE),
        (SigningStep.SIGN, UNKNOWN, True, ErrorReaction.FIND_OUT),
        (SigningStep.SIGN, NOT_SENT, True, ErrorReaction.UNDO),
        (SigningStep.SIGN, BUSY, True, ErrorReaction.UNDO),
        (SigningStep.SIGN, DENIED, True, ErrorReaction.UNDO),
        (SigningStep.SIGN, ASTRAY, True, ErrorReaction.UNDO),
        (SigningStep.SIGN, DENIED, False, ErrorReaction.ABANDON),
        (SigningStep.SIGN, MISSING, False, ErrorReaction.ABANDON),
        (SigningStep.SIGN, REFUSED, True, ErrorReaction.ASK),
        (SigningStep.SIGN, MISSING, True, ErrorReaction.ASK),
        (SigningStep.SIGN, TOO_LARGE, True, ErrorReaction.FAIL),
        (SigningStep.SIGN, BROKEN, True, ErrorReaction.RAISE),  # it may have been signed
        (SigningStep.DOWNLOAD, MISSING, True, ErrorReaction.ABANDON),
        (SigningStep.DOWNLOAD, DENIED, True, ErrorReaction.RAISE),
        (SigningStep.DOWNLOAD, DENIED, False, ErrorReaction.ABANDON),
        (SigningStep.DOWNLOAD, BROKEN, True, ErrorReaction.RAISE),
        (SigningStep.STORE, NO_NAME, True, ErrorReaction.FAIL),
        (SigningStep.SIGN, NO_FILE, True, ErrorReaction.STOP),
        (SigningStep.DOWNLOAD, NO_FILE, False, ErrorReaction.STOP),
        (SigningStep.FETCH, NO_FILE, False, ErrorReaction.FAIL),  # from a function of the caller
    ],
)
def test_error_is_classified_by_step(
    step: SigningStep, error: ds.DirectSuiteError | SourceError, is_ours: bool, reaction: ErrorReaction
) -> None:
    assert classify_error(step, error, is_ours=is_ours) is reaction


@pytest.mark.parametrize(("is_there", "reaction"), [(True, ErrorReaction.FAIL), (False, ErrorReaction.ABANDON)])
def test_rejected_sign_means_rejected_or_missing_document(is_there: bool, reaction: ErrorReaction) -> None:
    assert classify_error(SigningStep.SIGN, REFUSED, is_ours=True, is_there=is_there) is reaction
