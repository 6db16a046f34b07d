"""The workflow of one document as decisions: what is known of it gives the next step, which `steps` takes.

NEW ──► SAVED ──► SIGNING ──► SIGNED ──► DONE
 ▲        │          │                    FAILED: it is listed, and tried again when the caller asks for that
 └────────┴──────────┘ the stored document is abandoned: it expires, or shows no signature that is ours

state            what this run knows               next step
FAILED                                             RENEW          begin anew
SIGNING          that an earlier run had a PDF     VERIFY_OUTPUT  ask the target whether it has that
NEW to SIGNING   nothing of the source             FETCH          read it
NEW to SIGNING   another source than at first      REFUSE         it fails
NEW                                                SAVE           unless it is cut off, or the target has its name
SAVED            it was stored a short time ago    SIGN           write SIGNING, ask for signatures and PDF, once ever
SAVED            it was stored long ago            EXPIRE         it may be gone at any moment, and is saved anew
SIGNING          nothing of the PDF                DOWNLOAD       count the signatures of what is stored
SIGNING          a complete PDF that has ours      STORE          write its digest, and have the target keep it
SIGNING          another PDF                       ABANDON        it is saved anew, under another identifier
SIGNED                                             DELETE         what is stored
DONE                                               END

Each step is in the journal before the next begins; but SIGNING is written in place of SAVED where nothing comes between
the two. After an unknown outcome nothing is signed again, for the first request may still be on its way: what is stored
is adopted if it has at least as many more signatures than the source as were requested.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from http import HTTPStatus

import attrs

from directsuite.core.clock import Clock
from directsuite.core.failures import ErrorScope, find_error_scope
from directsuite.core.privacy import scrub_class
from directsuite.core.retry import Backoff
from directsuite.errors import (
    BadRequestError,
    CircuitOpenError,
    DirectSuiteError,
    InvalidArgumentError,
    NotFoundError,
    Outcome,
    OutcomeUnknownError,
    PermissionDeniedError,
    RateLimitedError,
    ServiceError,
)
from directsuite.jobs.signing.documents import CUT_OFF_PROBLEM, PdfInfo, SourceError
from directsuite.signing.models import DocumentSignature, Signature
from directsuite.signing.streams import NOT_A_PDF

SOURCE_CHANGED = "it is another document than when it was first read"
NAME_CONFLICT = (
    "the target has another file of this name, which is not replaced: move it away, or sign into another target"
)
INCOMPLETE = f"it {CUT_OFF_PROBLEM}"
GAVE_UP = "its signature was asked for again and again, and never seen"


class FieldProblem(enum.Enum):
    """Why a signature would not stand where its name says."""

    MISSING = "has no signature field of the name to sign under, and would be signed invisibly"
    SIGNED = "has a signature field of the name to sign under, and that is signed already"
    PLACED = "has a signature field of the name to sign under, which has its own position: leave the widget out"

    @property
    def journal_text(self) -> str:
        """What a journal keeps of it."""
        return f"it {self.value}"


def find_field_problem(signature: Signature, fields: Sequence[DocumentSignature]) -> FieldProblem | None:
    """Return why a signature with a name would not stand where that says, in a document with these fields."""
    if signature.name is None:
        return None
    field = next((each for each in fields if each.name == signature.name), None)
    if field is None:
        return FieldProblem.MISSING if signature.widget is None else None
    if field.is_signed:
        return FieldProblem.SIGNED
    return None if signature.widget is None else FieldProblem.PLACED


DOCUMENT_PROBLEMS = frozenset(
    {SOURCE_CHANGED, NAME_CONFLICT, INCOMPLETE, NOT_A_PDF, *(each.journal_text for each in FieldProblem)}
)
"""Problems that say nothing of the service, however many documents have them."""

UNKNOWN_IDENTIFIER_ERRORS = (NotFoundError, BadRequestError)
"""What the service may say of an identifier that it doesn't know: the specification leaves open which."""

_MAX_STORED_SECONDS = 3.5 * 3600
"""Seconds for which a stored document is sure to be there: the service keeps it for 4 hours without activity."""
_MAX_MESSAGE_CHARS = 1000  # characters of what the service wrote
_MAX_TRIES = 5
"""Stored documents that may be abandoned for a document before it counts as failed."""

_BACKOFF = Backoff(1.0, 60.0)
_MAX_OWN_FAILURES = 8  # failures of the service with one document, while others come through
_MAX_DENIALS = 4  # times that one may not be signed, though others were
_MAX_READ_FAILURES = 4  # times that one can't be read, while others can


class DocumentState(enum.IntEnum):
    """How far a document is. The numbers stand in journals."""

    NEW = 1
    """Nothing is stored for it."""
    SAVED = 2
    """The service has it, and was not asked to sign it."""
    SIGNING = 3
    """The service may have been asked to sign it, and may have done so."""
    SIGNED = 4
    """The target has it."""
    DONE = 5
    """And the service has it no more."""
    FAILED = 6
    """The service, or the target, refuses it."""

    @property
    def is_signed(self) -> bool:
        """Whether the target has it."""
        return self in (DocumentState.SIGNED, DocumentState.DONE)

    @property
    def is_final(self) -> bool:
        """Whether nothing more is to be done by itself."""
        return self in (DocumentState.DONE, DocumentState.FAILED)


@scrub_class
@attrs.frozen(kw_only=True, repr=False)
class SigningEntry:
    """What the journal knows of one document."""

    number: int
    name: str
    """Unique in the job."""
    state: DocumentState = DocumentState.NEW
    identifier: str | None = None
    """Of the stored document."""
    saved_at: float | None = None
    """When that was stored, in Unix time."""
    source_sha: str | None = None
    """SHA-256 of what was read, in hex."""
    source_stamp: str | None = None
    """Size and time of the file that was read; None where it was no file."""
    output_sha: str | None = None
    """SHA-256 of what the target has, or was about to get."""
    tries: int = 0
    """Stored documents that were abandoned for it."""
    problem: str | None = None
    """Why it failed, until it is done."""
    service_message: str | None = None
    """What the service wrote about that, where it refused the document. It may name patients: do not log it unread."""

    @property
    def has_failed(self) -> bool:
        """Whether it failed, and has not been signed since; another try may have begun."""
        return self.state is DocumentState.FAILED or (self.problem is not None and not self.state.is_signed)

    def reset(self) -> SigningEntry:
        """As it was before it failed: whatever is in its place then is signed."""
        return SigningEntry(
            number=self.number, name=self.name, problem=self.problem, service_message=self.service_message
        )

    def __repr__(self) -> str:
        return f"Entry(number={self.number}, state={self.state.name})"


def make_abandoned_entry(
    entry: SigningEntry,
    then: DocumentState,
    problem: str | None,
    service_message: str | None = None,
    *,
    is_try: bool = True,
) -> SigningEntry:
    """An entry whose stored document is abandoned. is_try: whether that counts, where it begins anew."""
    return attrs.evolve(
        entry,
        state=then,
        identifier=None,
        saved_at=None,
        tries=entry.tries + (then is DocumentState.NEW and is_try),
        problem=entry.problem if then is DocumentState.NEW else problem,
        service_message=entry.service_message if then is DocumentState.NEW else service_message,
        output_sha=entry.output_sha if then is DocumentState.DONE else None,
    )


def storable_service_message(error: DirectSuiteError) -> str | None:
    """What the service wrote with a refusal, as far as any database keeps it; None where it wrote nothing."""
    if not isinstance(error, ServiceError) or not error.message:
        return None
    return error.message[:_MAX_MESSAGE_CHARS].replace("\0", "").encode("utf-8", "replace").decode()


def is_last_try(entry: SigningEntry) -> bool:
    """Return True if a document fails when what is stored for it is abandoned once more."""
    return entry.tries + 1 >= _MAX_TRIES


class SigningStep(enum.Enum):
    """What is done with a document next; the table above says when."""

    RESET = enum.auto()
    VERIFY_OUTPUT = enum.auto()
    FETCH = enum.auto()
    FAIL_CHANGED = enum.auto()
    SAVE = enum.auto()
    SIGN = enum.auto()
    EXPIRE = enum.auto()
    DOWNLOAD = enum.auto()
    STORE = enum.auto()
    ABANDON = enum.auto()
    DELETE = enum.auto()
    END = enum.auto()


@attrs.define(kw_only=True)
class RunContext:
    """What this run knows of a document beside its entry. Its steps fill it in."""

    signature_count: int
    """How many it is to get."""
    source: PdfInfo | None = None
    """Its PDF, as it is now; None where it has to be read, or read again because it is saved anew."""
    output: PdfInfo | None = None
    """The PDF that came from the service."""
    is_output_verified: bool = False
    """Whether the target was asked for the output of an earlier run."""


def next_step(entry: SigningEntry, facts: RunContext, now: float) -> SigningStep:
    """What is done with a document next. now: Unix time."""
    if entry.state in _STEP_BY_STATE:
        return _STEP_BY_STATE[entry.state]
    if entry.state is DocumentState.SIGNING and entry.output_sha is not None and not facts.is_output_verified:
        return SigningStep.VERIFY_OUTPUT
    if facts.source is None:
        return SigningStep.FETCH
    if entry.source_sha not in (None, facts.source.sha256):
        return SigningStep.FAIL_CHANGED
    if entry.state is DocumentState.NEW:
        return SigningStep.SAVE
    if entry.state is DocumentState.SAVED:
        # A time in the future was written while the clock was ahead, and does not say how old the document is.
        is_stored = (
            entry.identifier is not None
            and entry.saved_at is not None
            and 0 <= now - entry.saved_at <= _MAX_STORED_SECONDS
        )
        return SigningStep.SIGN if is_stored else SigningStep.EXPIRE
    if facts.output is None:
        return SigningStep.DOWNLOAD if entry.identifier is not None else SigningStep.ABANDON
    # Some services add more than was requested, for example a document time stamp.
    has_ours = facts.output.signature_count >= facts.source.signature_count + facts.signature_count
    return SigningStep.STORE if has_ours and not facts.output.is_cut_off else SigningStep.ABANDON


_STEP_BY_STATE = {
    DocumentState.FAILED: SigningStep.RESET,
    DocumentState.SIGNED: SigningStep.DELETE,
    DocumentState.DONE: SigningStep.END,
}


class ErrorReaction(enum.Enum):
    """What an error of a step means for its document."""

    RAISE = enum.auto()
    """It is no fault of the document, which stays as the journal has it."""
    UNDO = enum.auto()
    """As RAISE, but the request was refused before anything was signed: the document is as it was before the step."""
    FIND_OUT = enum.auto()
    """Nobody knows whether it was signed: what is stored will show it."""
    ASK = enum.auto()
    """It depends on whether the service still has what is stored."""
    ABANDON = enum.auto()
    """What is stored is of no use to this run."""
    FAIL = enum.auto()
    """It would meet the document again."""
    STOP = enum.auto()
    """As UNDO, and for every document: no file can be made in the staging folder."""


def classify_error(
    step: SigningStep, error: DirectSuiteError | SourceError, *, is_ours: bool, is_there: bool | None = None
) -> ErrorReaction:
    """What an error of a step means for its document.

    is_ours: whether this run has stored it; what an earlier run stored, perhaps by another account, may be denied to
    this one, while who may not have what this run has stored may have nothing. is_there: whether the service has what
    is stored; None where it wasn't asked.
    """
    if isinstance(error, SourceError):
        return ErrorReaction.FAIL if error.is_document_specific else ErrorReaction.RAISE
    if isinstance(error, InvalidArgumentError):
        is_of_the_output = step in (SigningStep.SIGN, SigningStep.DOWNLOAD) and error.parameter == "destination"
        return ErrorReaction.STOP if is_of_the_output else ErrorReaction.FAIL
    scope = find_error_scope(error)
    if step is SigningStep.SIGN:
        if isinstance(error, OutcomeUnknownError):
            return ErrorReaction.FIND_OUT
        if may_belong_to_another_account(error, is_ours=is_ours) or is_there is False:
            return ErrorReaction.ABANDON
        if isinstance(error, UNKNOWN_IDENTIFIER_ERRORS) and is_there is None:
            return ErrorReaction.ASK
        if error.outcome in (Outcome.NOT_SENT, Outcome.REJECTED) or scope in (ErrorScope.ACCOUNT, ErrorScope.ENDPOINT):
            return ErrorReaction.UNDO
        return ErrorReaction.FAIL if scope is ErrorScope.ITEM else ErrorReaction.RAISE
    if step is SigningStep.DOWNLOAD and (
        scope is ErrorScope.ITEM or may_belong_to_another_account(error, is_ours=is_ours)
    ):
        return ErrorReaction.ABANDON
    if step is SigningStep.SAVE and scope is ErrorScope.ITEM and not _has_no_such_url(error):
        return ErrorReaction.FAIL
    return ErrorReaction.RAISE


def may_belong_to_another_account(error: DirectSuiteError, *, is_ours: bool) -> bool:
    """Return True if an error may say that what is stored is another account's."""
    return isinstance(error, PermissionDeniedError | NotFoundError) and not is_ours


def _has_no_such_url(error: DirectSuiteError) -> bool:
    return isinstance(error, NotFoundError) or (isinstance(error, ServiceError) and error.status == HTTPStatus.GONE)


def _is_permanent(error: DirectSuiteError) -> bool:
    """Return True if what a step raised would meet every other document as well, and doesn't pass by waiting."""
    return find_error_scope(error) in (ErrorScope.ACCOUNT, ErrorScope.CALLER, ErrorScope.ENDPOINT) or _has_no_such_url(
        error
    )


class RetryVerdict(enum.Enum):
    """What becomes of a document that could not be brought to its end."""

    WAIT = enum.auto()
    """It is tried again."""
    FAIL = enum.auto()
    """It is its own failure."""
    STOP = enum.auto()
    """It would meet all others, too."""


@attrs.define(kw_only=True)
class OutageTracker:
    """What the documents of a run find of the service: whether it answers others, and since when it does not."""

    clock: Clock
    max_outage: float
    """Seconds for which an outage may last."""
    signed_count: int = 0
    """How often the service has signed."""
    read_count: int = 0
    """How many documents could be read."""
    kind: str | None = None
    """The type of the error with which the outage began, while there is one."""
    _since: float = attrs.field(default=0.0, init=False)

    def start_or_measure_outage(self, error: Exception) -> float:
        """Seconds of patience that are left, where an outage may have begun with this."""
        now = self.clock.monotonic()
        if self.kind is None:
            self.kind, self._since = type(error).__name__, now
        return self.max_outage - (now - self._since)

    def end(self) -> None:
        """Note that the service signed a document."""
        self.kind = None


@attrs.define
class RetryState:
    """One document's tries, each of which may fail."""

    _outage: OutageTracker
    _pauses: int = attrs.field(default=0, init=False)
    _failures: int = attrs.field(default=0, init=False)  # that may be of this document alone
    _signed_at_first_failure: int | None = attrs.field(
        default=None, init=False
    )  # how often the service had signed at the first failure
    _signed_at_last_failure: int | None = attrs.field(default=None, init=False)  # and at the last one that counts
    _is_alone: bool = attrs.field(default=False, init=False)
    _denials: list[int] = attrs.field(factory=list[int], init=False)  # how often it had signed at each of them
    _read_counts: list[int] = attrs.field(factory=list[int], init=False)  # how many others had been read at each time

    def begin(self) -> None:
        """Another try.

        Only what the service has signed since the last failure that counts tells of it as it is: an outage adds one
        failure at most, whatever was before it.
        """
        self._is_alone = (
            self._signed_at_last_failure is None or self._outage.signed_count > self._signed_at_last_failure
        )

    def judge(self, error: DirectSuiteError | SourceError, *, has_others_in_progress: bool) -> RetryVerdict:
        """What becomes of the document after this. others: whether others are under way, which may tell."""
        if isinstance(error, SourceError):
            return RetryVerdict.FAIL if self._is_unreadable(error) else RetryVerdict.WAIT
        signed = self._outage.signed_count
        if isinstance(error, PermissionDeniedError) and signed:
            self._denials.append(signed)
            if len(self._denials) < _MAX_DENIALS:
                return RetryVerdict.WAIT
            return RetryVerdict.STOP if has_others_in_progress and signed == self._denials[-2] else RetryVerdict.FAIL
        if _is_permanent(error):
            return RetryVerdict.STOP
        if self.record_failure(error):
            return RetryVerdict.FAIL
        return RetryVerdict.WAIT if self.reason_to_stop_waiting(error) is None else RetryVerdict.STOP

    def record_failure(self, error: DirectSuiteError) -> bool:
        """Count a failure. Return True once the service keeps failing with this document, and not with others."""
        signed = self._outage.signed_count
        if self._signed_at_first_failure is None:
            self._signed_at_first_failure = signed
        if isinstance(error, RateLimitedError):
            return False
        if self._is_alone:
            self._signed_at_last_failure = signed
            self._failures += 1
        if self._failures >= _MAX_OWN_FAILURES:
            return True
        # At the end of a source no others are left to tell: those that came through since its first failure have.
        return self._outage.start_or_measure_outage(error) < 0 and signed > self._signed_at_first_failure

    def _is_unreadable(self, error: Exception) -> bool:
        """Return True if a document is given up because others can be read, or because patience is over."""
        read = self._outage.read_count
        self._read_counts.append(read)
        return self._outage.start_or_measure_outage(error) < 0 or (
            len(self._read_counts) >= _MAX_READ_FAILURES and read > self._read_counts[0]
        )

    def explain_stop(self, error: DirectSuiteError | SourceError) -> str:
        """Why the job can't go on, in words."""
        if isinstance(error, SourceError):
            return str(error)
        over = None if _is_permanent(error) else self.reason_to_stop_waiting(error)
        return over or error.explanation.rstrip(".")

    def reason_to_stop_waiting(self, error: DirectSuiteError) -> str | None:
        """Why there is no more waiting for the service, in words; None where there is."""
        left = self._outage.start_or_measure_outage(error)
        if isinstance(error, CircuitOpenError) and (error.retry_after or 0) > left:
            return error.explanation
        if left < 0:
            return f"the service is in trouble, and has been for too long: {error.explanation.rstrip('.')}"
        if error.retry_after is not None and error.retry_after > left:
            return f"the service wants to be left alone for {error.retry_after:.0f} s, longer than it is waited for"
        return None

    def compute_pause(self, error: DirectSuiteError | SourceError) -> float:
        """Seconds until the next try: longer and longer, and as long as the service wants at least."""
        self._pauses += 1
        return _BACKOFF.compute_wait(self._pauses, None if isinstance(error, SourceError) else error.retry_after)

    def end(self, *, is_done: bool) -> None:
        """The document has come to its end, after which the service is well, if it was asked."""
        if is_done or self._signed_at_first_failure is not None:
            self._outage.end()
