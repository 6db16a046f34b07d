"""The changes that a document's signatures forbid, from these entries of the PDF:

/DocMDP      in a signature, the permitted changes: 1 none, 2 filling in and signing, 3 also annotating
/FieldMDP    in a signature, the locked fields
/Lock        in a signature field, both of these for its future signature
/Perms       in the catalog, the signature of the author, which certifies the document
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pikepdf

from directsuite.sandbox.rejections import InvalidActionError
from directsuite.sandbox.signing.document import iter_fields, value_to_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from directsuite.sandbox.signing.document import PdfField

_DEFAULT_PERMISSION = 2  # ISO 32000-2, table 257
_MAX_NAMES = 10_000  # locked by one signature field; several fields may share one list
_MAX_CHARS = 2**19  # of these names


class SignatureLock(NamedTuple):
    """The later changes that a signature forbids. It may forbid none."""

    cause: str
    """Completes "the document is …" in messages."""
    permission: int | None
    """The permission of /DocMDP (1, 2 or 3), or None if there is none."""
    action: str
    """/All, /Include or /Exclude, or empty if no fields are locked."""
    names: frozenset[str]
    """The fields or groups of fields that the action includes or excludes."""

    def includes(self, name: str) -> bool:
        """Return True if the field with this full name is locked, by itself or with its group."""
        if self.action not in ("/Include", "/Exclude"):
            return self.action == "/All"
        parts = name.split(".")
        is_named = any(".".join(parts[:depth]) in self.names for depth in range(1, len(parts) + 1))
        return is_named is (self.action == "/Include")


def list_locks(pdf: pikepdf.Pdf) -> list[SignatureLock]:
    """Return the locks that forbid any changes, starting with the certification."""
    found = [read_lock(field) for field in iter_fields(pdf) if field.is_signed]
    permissions = pdf.Root.get("/Perms")
    certificate = permissions.get("/DocMDP") if isinstance(permissions, pikepdf.Dictionary) else None
    if isinstance(certificate, pikepdf.Dictionary):
        parameters = _find_transform_parameters(certificate, "/DocMDP")
        found.insert(
            0, SignatureLock("certified", _read_permission(parameters) or _DEFAULT_PERMISSION, "", frozenset())
        )
    return [lock for lock in found if lock.permission is not None or lock.action]


def read_lock(field: PdfField) -> SignatureLock:
    """Return the lock of the signature in a field, or of the future signature if the field is empty."""
    signature, own = field.get("/V"), field.dictionary.get("/Lock")
    document_parameters, field_parameters = None, own
    if isinstance(signature, pikepdf.Dictionary):
        document_parameters = _find_transform_parameters(signature, "/DocMDP")
        field_parameters = _find_transform_parameters(signature, "/FieldMDP") or own
    permission = _read_permission(document_parameters) or _read_permission(own)
    if document_parameters is not None and permission is None:
        permission = _DEFAULT_PERMISSION
    action, names = "", frozenset[str]()
    if isinstance(field_parameters, pikepdf.Dictionary):
        action = str(field_parameters.get("/Action", ""))
        listed = field_parameters.get("/Fields")
        if isinstance(listed, pikepdf.Array):
            names = frozenset(_iter_names(listed))
    return SignatureLock(f"locked by the signature {field.name!r}", permission, action, names)


def _iter_names(listed: pikepdf.Array) -> Iterator[str]:
    chars = 0
    for number, name in enumerate(listed):
        text = value_to_text(name) if isinstance(name, pikepdf.String) else ""
        chars += len(text)
        if number >= _MAX_NAMES or chars > _MAX_CHARS:
            raise InvalidActionError(
                "the document has a signature field that locks too many fields, or fields with too long names"
            )
        yield text


def _find_transform_parameters(signature: pikepdf.Object, method: str) -> pikepdf.Object | None:
    references = signature.get("/Reference")
    for reference in list(references) if isinstance(references, pikepdf.Array) else []:
        if isinstance(reference, pikepdf.Dictionary) and str(reference.get("/TransformMethod")) == method:
            parameters = reference.get("/TransformParams")
            return parameters if isinstance(parameters, pikepdf.Dictionary) else pikepdf.Dictionary()
    return None


def _read_permission(parameters: pikepdf.Object | None) -> int | None:
    written: Any = parameters.get("/P") if isinstance(parameters, pikepdf.Dictionary) else None  # an int, or an object
    return int(written) if written in (1, 2, 3) else None
