"""The problems of single documents.

The journal stores a problem's code, and people see its text. Any other reason for a failure is stored as a text.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

from directsuite.signing.models import DocumentSignature, Signature


class DocumentProblem(enum.Enum):
    """Why a document failed. Values are the codes in journals, and must not change."""

    SOURCE_CHANGED = "source-changed"
    NAME_CONFLICT = "name-conflict"
    INCOMPLETE = "incomplete"
    NOT_A_PDF = "not-a-pdf"
    FIELD_MISSING = "field-missing"
    FIELD_SIGNED = "field-signed"
    FIELD_PLACED = "field-placed"
    GAVE_UP = "gave-up"

    @property
    def predicate(self) -> str:
        """The text without its subject."""
        return _PREDICATES[self]

    @property
    def text(self) -> str:
        """The text that people see."""
        return f"it {self.predicate}"


_PREDICATES = {
    DocumentProblem.SOURCE_CHANGED: "has changed since it was first read",
    DocumentProblem.NAME_CONFLICT: (
        "has the name of a different file in the target, which is not replaced: move that file away, or sign into "
        "another target"
    ),
    DocumentProblem.INCOMPLETE: "has no end-of-file marker (%%EOF) and may be incomplete: get a complete copy",
    DocumentProblem.NOT_A_PDF: "is not a PDF (no %PDF- in its first KB)",
    DocumentProblem.FIELD_MISSING: "has no signature field with the signature's name, and would be signed invisibly",
    DocumentProblem.FIELD_SIGNED: "has a signature field with the signature's name, which is already signed",
    DocumentProblem.FIELD_PLACED: (
        "has a signature field with the signature's name, which has its own position: omit the widget"
    ),
    DocumentProblem.GAVE_UP: "has no signature after repeated signing requests",
}

_OLD_TEXTS = {
    "it is another document than when it was first read": DocumentProblem.SOURCE_CHANGED,
    "the target has another file of this name, which is not replaced: move it away, or sign into another target": (
        DocumentProblem.NAME_CONFLICT
    ),
    "it has no end of a PDF (%%EOF), and may be cut off: get a whole copy": DocumentProblem.INCOMPLETE,
    "this is not a PDF: no %PDF- in its first KB": DocumentProblem.NOT_A_PDF,
    "it has no signature field of the name to sign under, and would be signed invisibly": (
        DocumentProblem.FIELD_MISSING
    ),
    "it has a signature field of the name to sign under, and that is signed already": DocumentProblem.FIELD_SIGNED,
    "it has a signature field of the name to sign under, which has its own position: leave the widget out": (
        DocumentProblem.FIELD_PLACED
    ),
    "its signature was asked for again and again, and never seen": DocumentProblem.GAVE_UP,
}
"""What journals stored before there were codes."""

_BY_TEXT = _OLD_TEXTS | {each.value: each for each in DocumentProblem} | {each.text: each for each in DocumentProblem}

DOCUMENT_PROBLEMS = frozenset(DocumentProblem) - {DocumentProblem.GAVE_UP}
"""Problems that do not count as a sign of a general failure."""


def parse_reason(text: str | None) -> DocumentProblem | str | None:
    """Return the problem with this code or text. Return any other text, or None, unchanged."""
    return None if text is None else _BY_TEXT.get(text, text)


def encode_reason(reason: DocumentProblem | str | None) -> str | None:
    """Return what the journal stores for a reason."""
    return reason.value if isinstance(reason, DocumentProblem) else reason


def list_stored_forms(reason: DocumentProblem | str) -> Sequence[str]:
    """Return the texts that this and earlier releases store for a reason."""
    if isinstance(reason, str):
        return [reason]
    return [reason.value, *(text for text, problem in _OLD_TEXTS.items() if problem is reason)]


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
