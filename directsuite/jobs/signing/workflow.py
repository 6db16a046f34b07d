"""The workflow of one document: decides the next step. The module `steps` executes it.

NEW ──► SAVED ──► SIGNING ──► SIGNED ──► DONE
 ▲        │          │                    FAILED: retried only on request
 └────────┴──────────┘ the stored document is abandoned: it expires, or has no signature of ours

A *stored document* is the service's copy of a PDF. The *source* is the PDF before signing, the *output* after it.

state            known in this run                 next step
FAILED                                             RESET          start again
SIGNING          an earlier run had an output      VERIFY_OUTPUT  check whether the target has it
NEW to SIGNING   source not read                   FETCH          read it
NEW to SIGNING   source has changed                FAIL_CHANGED   the document fails
NEW                                                SAVE           unless it is cut off, changes, or its name is in use
SAVED            stored recently                   SIGN           write SIGNING, then request signatures, only once
SAVED            stored long ago                   EXPIRE         it may be gone at any moment: save it again
SIGNING          no output                         DOWNLOAD       count the signatures of the stored document
SIGNING          complete output with ours         STORE          write its digest, then publish it at the target
SIGNING          other output                      ABANDON        save it again, with a new identifier
SIGNED                                             DELETE         the stored document
DONE                                               END

Each step is recorded before the next begins, except SAVED if SIGNING follows immediately. After an unknown outcome,
signing is not repeated for the same stored document, because the first request may still be in progress. The stored
document is used if it has at least as many more signatures than the source as were requested.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from http import HTTPStatus
from typing import Self

import attrs

from directsuite.core.clock import Clock
from directsuite.core.outcome import ErrorScope, find_error_scope
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
from directsuite.jobs.signing.documents import PdfInfo, SourceError
from directsuite.signing.models import DocumentSignature, Signature

UNKNOWN_IDENTIFIER_ERRORS = (NotFoundError, BadRequestError)
"""The specification does not say which one means an unknown identifier."""

_MAX_AGE_TO_SIGN_SECONDS = 3.5 * 3600
"""An older stored document is saved again before it is signed, because the service deletes it after 4 hours."""

_BACKOFF = Backoff(1.0, 60.0)
_MAX_OWN_FAILURES = 8  # of one document while others are signed
_MAX_DENIALS = 4  # PermissionDeniedErrors of one document after others were signed
_MAX_READ_FAILURES = 4  # of one document while others are read
_PERMANENT_SCOPES = (ErrorScope.ACCOUNT, ErrorScope.CALLER, ErrorScope.ENDPOINT)


class DocumentProblem(enum.Enum):
    """Why a document failed. Values are the codes in journals, and must not change.

    Any other reason for a failure is stored as a text.
    """

    predicate: str
    """The text without its subject."""

    SOURCE_CHANGED = "source-changed", "has changed since it was first read"
    NAME_CONFLICT = (
        "name-conflict",
        "has the name of a different file in the target, which is not replaced: move that file away, or sign into "
        "another target",
    )
    INCOMPLETE = "incomplete", "has no end-of-file marker (%%EOF) and may be incomplete: get a complete copy"
    NOT_A_PDF = "not-a-pdf", "is not a PDF (no %PDF- in its first KB)"
    FIELD_MISSING = (
        "field-missing",
        "has no signature field with the signature's name, and would be signed invisibly",
    )
    FIELD_SIGNED = "field-signed", "has a signature field with the signature's name, which is already signed"
    FIELD_PLACED = (
        "field-placed",
        "has a signature field with the signature's name, which has its own position: omit the widget",
    )
    GAVE_UP = "gave-up", "has no signature after repeated signing requests"

    def __new__(cls, code: str, predicate: str) -> Self:
        """Make the code the value of the member."""
        member = object.__new__(cls)
        member._value_, member.predicate = code, predicate
        return member

    @property
    def text(self) -> str:
        """The text that people see."""
        return f"it {self.predicate}"


_BY_TEXT = {each.value: each for each in DocumentProblem} | {each.text: each for each in DocumentProblem}

DOCUMENT_PROBLEMS = frozenset(DocumentProblem) - {DocumentProblem.GAVE_UP}
"""Problems that do not count as a sign of a general failure."""


def parse_reason(text: str | None) -> DocumentProblem | str | None:
    """Return the problem with this code or text. Return any other text, or None, unchanged."""
    return None if text is None else _BY_TEXT.get(text, text)


def encode_reason(reason: DocumentProblem | str | None) -> str | None:
    """Return what the journal stores for a reason."""
    return reason.value if isinstance(reason, DocumentProblem) else reason


def find_field_problem(signature: Signature, fields: Sequence[DocumentSignature]) -> DocumentProblem | None:
    """Return why a signature cannot be placed in a document with these fields, or None if it can or has no name."""
    if signature.name is None:
        return None
    field = next((each for each in fields if each.name == signature.name), None)
    if field is None:
        return DocumentProblem.FIELD_MISSING if signature.widget is None else None
    if field.is_signed:
        return DocumentProblem.FIELD_SIGNED
    return None if signature.widget is None else DocumentProblem.FIELD_PLACED


class DocumentState(enum.IntEnum):
    """The state of a document. Journals store the numbers."""

    NEW = 1
    """The service has no stored document."""
    SAVED = 2
    """The service has a stored document, unsigned."""
    SIGNING = 3
    """Signing may have been requested, successfully or not."""
    SIGNED = 4
    """The target has the signed PDF."""
    DONE = 5
    """As SIGNED, and the stored document is deleted, or will be."""
    FAILED = 6
    """The document failed. `SigningEntry.problem` says why."""

    @property
    def is_signed(self) -> bool:
        """True if the target has the signed PDF."""
        return self in (DocumentState.SIGNED, DocumentState.DONE)

    @property
    def is_final(self) -> bool:
        """True if no step is left: DONE, or FAILED unless a retry is requested."""
        return self in (DocumentState.DONE, DocumentState.FAILED)


@scrub_class
@attrs.frozen(repr=False)
class SigningEntry:
    """A document in the journal."""

    number: int
    """The number in the journal, also in log lines and in SigningResult. The group of its calls is only in those,
    because groups are numbered in each process.
    """
    name: str
    """The name, unique in the job."""
    state: DocumentState = DocumentState.NEW
    identifier: str | None = None
    saved_at: float | None = None
    """The Unix time of Save."""
    source_sha: str | None = None
    """The SHA-256 of the source, in hex."""
    source_stamp: str | None = None
    """The size and modification time of the source. None: not a file."""
    output_sha: str | None = None
    """SHA-256 of the output that was published, or is about to be."""
    tries: int = 0
    """The number of stored documents abandoned after a signing request."""
    reason: DocumentProblem | str | None = None
    """Why the document failed: a problem, or another text. Cleared when it is done."""
    service_message: str | None = None
    """The service's reason to reject the document. It may name patients: do not log it unread."""

    @property
    def problem(self) -> str | None:
        """The text of `reason`; None if there is none."""
        return self.reason.text if isinstance(self.reason, DocumentProblem) else self.reason

    @property
    def has_failed(self) -> bool:
        """True if the document failed and has not been signed since, even while it is retried."""
        return self.state is DocumentState.FAILED or (self.reason is not None and not self.state.is_signed)

    def reset(self) -> SigningEntry:
        """Return a new entry for a retry, which signs the current source."""
        return SigningEntry(
            number=self.number, name=self.name, reason=self.reason, service_message=self.service_message
        )

    def __repr__(self) -> str:
        return f"SigningEntry(number={self.number}, state={self.state.name})"


class SigningStep(enum.Enum):
    """The next step of a document."""

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
    """The facts about a document that are known only during a run."""

    signature_count: int
    source: PdfInfo | None = None
    """The source, or None if it must be read, possibly again."""
    output: PdfInfo | None = None
    is_output_verified: bool = False


def next_step(entry: SigningEntry, facts: RunContext, now: float) -> SigningStep:
    """Return the next step of a document. now: Unix time."""
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
        # The age is unknown if the clock was ahead when the time was written.
        is_stored = (
            entry.identifier is not None
            and entry.saved_at is not None
            and 0 <= now - entry.saved_at <= _MAX_AGE_TO_SIGN_SECONDS
        )
        return SigningStep.SIGN if is_stored else SigningStep.EXPIRE
    if facts.output is None:
        return SigningStep.DOWNLOAD if entry.identifier is not None else SigningStep.ABANDON
    # Some services add more, for example a document time stamp.
    has_ours = facts.output.signature_count >= facts.source.signature_count + facts.signature_count
    return SigningStep.STORE if has_ours and not facts.output.is_cut_off else SigningStep.ABANDON


_STEP_BY_STATE = {
    DocumentState.FAILED: SigningStep.RESET,
    DocumentState.SIGNED: SigningStep.DELETE,
    DocumentState.DONE: SigningStep.END,
}


class ErrorReaction(enum.Enum):
    """How to react to an error of a step."""

    RAISE = enum.auto()
    """Raise it and leave the entry unchanged: the document is not the cause."""
    UNDO = enum.auto()
    """Raise it and restore the entry: nothing was signed."""
    FIND_OUT = enum.auto()
    """Download the stored document, and look for the signature."""
    ASK = enum.auto()
    """Check whether the service has the stored document, then classify again."""
    ABANDON = enum.auto()
    FAIL = enum.auto()
    """Fail the document: a retry would fail again."""
    STOP = enum.auto()
    """As UNDO, and stop the job: the staging folder is not writable."""


def classify_error(
    step: SigningStep, error: DirectSuiteError | SourceError, *, is_ours: bool, is_there: bool | None = None
) -> ErrorReaction:
    """Return how to react to an error of a step.

    is_ours: True if this run stored the document. If not, it may be denied because another account stored it.
    is_there: True if the service has the stored document. None: not known.
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
    """Return True if another account may have stored the document. is_ours: this run stored it."""
    return isinstance(error, PermissionDeniedError | NotFoundError) and not is_ours


def _has_no_such_url(error: DirectSuiteError) -> bool:
    return isinstance(error, NotFoundError) or (isinstance(error, ServiceError) and error.status == HTTPStatus.GONE)


class RetryVerdict(enum.Enum):
    """The ways to continue with a document after an error."""

    WAIT = enum.auto()
    FAIL = enum.auto()


@attrs.define(kw_only=True)
class OutageTracker:
    """The number of documents signed and read in a run, and the current outage."""

    clock: Clock
    max_outage: float
    """Seconds."""
    signed_count: int = 0
    read_count: int = 0
    kind: str | None = None
    """The type of the outage's last error. None: no outage."""
    _since: float = attrs.field(default=0.0, init=False)

    def start_or_measure_outage(self, error: Exception) -> float:
        """Return the seconds until the outage lasts `max_outage`, 0 or less afterwards. Start one if there is none."""
        now = self.clock.monotonic()
        if self.kind is None:
            self._since = now
        self.kind = type(error).__name__
        return self.max_outage - (now - self._since)


@attrs.define
class RetryState:
    """The attempts of one document."""

    _outage: OutageTracker
    _pauses: int = attrs.field(default=0, init=False)
    _is_alone: bool = attrs.field(default=False, init=False)
    # Values of the tracker's signed_count and read_count at the time of failures:
    _signed_at_first_failure: int | None = attrs.field(default=None, init=False)
    _failures: list[int] = attrs.field(factory=list[int], init=False)  # possibly caused by this document
    _denials: list[int] = attrs.field(factory=list[int], init=False)
    _read_counts: list[int] = attrs.field(factory=list[int], init=False)

    def begin(self) -> None:
        """Start an attempt.

        Its failure counts against the document if it is the first, or if the service has signed others since the last
        one that counted. An outage counts once at most.
        """
        self._is_alone = not self._failures or self._outage.signed_count > self._failures[-1]

    def judge(self, error: DirectSuiteError | SourceError, *, has_others_in_progress: bool) -> RetryVerdict | str:
        """Record an error of an attempt. Return what to do, or why the job must stop: others would have the same error.

        has_others_in_progress: True if the results of other documents may soon show whether the service works.
        """
        if isinstance(error, SourceError):
            return RetryVerdict.FAIL if self._is_unreadable(error) else RetryVerdict.WAIT
        signed, why = self._outage.signed_count, error.explanation.rstrip(".")
        if isinstance(error, PermissionDeniedError) and signed:
            self._denials.append(signed)
            if len(self._denials) < _MAX_DENIALS:
                return RetryVerdict.WAIT
            return why if has_others_in_progress and signed == self._denials[-2] else RetryVerdict.FAIL
        if find_error_scope(error) in _PERMANENT_SCOPES or _has_no_such_url(error):
            return why
        if self.record_failure(error):
            return RetryVerdict.FAIL
        return self.reason_to_stop_waiting(error) or RetryVerdict.WAIT

    def record_failure(self, error: DirectSuiteError) -> bool:
        """Count a failure, unless it is a RateLimitedError. Return True if the document must fail.

        That is after `_MAX_OWN_FAILURES` that count against the document, or if the outage is too long and others were
        signed since its first failure.
        """
        signed = self._outage.signed_count
        if self._signed_at_first_failure is None:
            self._signed_at_first_failure = signed
        if isinstance(error, RateLimitedError):
            return False
        if self._is_alone:
            self._failures.append(signed)
        if len(self._failures) >= _MAX_OWN_FAILURES:
            return True
        # Near the end of a source no others are in progress: use those signed since the first failure.
        return self._outage.start_or_measure_outage(error) <= 0 and signed > self._signed_at_first_failure

    def _is_unreadable(self, error: Exception) -> bool:
        """Count a failed read. Return True if reads fail only for this document, or have failed for too long."""
        read = self._outage.read_count
        self._read_counts.append(read)
        return self._outage.start_or_measure_outage(error) <= 0 or (
            len(self._read_counts) >= _MAX_READ_FAILURES and read > self._read_counts[0]
        )

    def reason_to_stop_waiting(self, error: DirectSuiteError) -> str | None:
        """Return why the job stops waiting for the service, or None if it waits. Start the outage if there is none."""
        left, why = self._outage.start_or_measure_outage(error), error.explanation.rstrip(".")
        if isinstance(error, CircuitOpenError) and (error.retry_after or 0) > left:
            return why
        if left <= 0:
            return f"the service has failed for too long: {why}"
        if error.retry_after is not None and error.retry_after > left:
            return f"max_outage does not allow the wait of {error.retry_after:.0f} s before the next attempt: {why}"
        return None

    def compute_pause(self, error: DirectSuiteError | SourceError) -> float:
        """Count a pause, and return its length in seconds, at least the service's Retry-After."""
        self._pauses += 1
        return _BACKOFF.compute_wait(self._pauses, None if isinstance(error, SourceError) else error.retry_after)

    def end(self, *, is_done: bool) -> None:
        """Record the document's end.

        Ends the outage if the document is signed, or if it may have caused the service's failures.
        """
        if is_done or self._signed_at_first_failure is not None:
            self._outage.kind = None
