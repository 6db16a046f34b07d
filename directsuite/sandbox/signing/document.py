"""Opening a PDF with the two libraries, and what is asked of every document before it is changed.

pikepdf reads, repairs and rewrites; pyHanko appends, so that signatures already there stay valid.
"""

from __future__ import annotations

import io
import threading
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pikepdf
from pyhanko.pdf_utils.incremental_writer import IncrementalPdfFileWriter
from pyhanko.pdf_utils.misc import PdfError
from pyhanko.pdf_utils.reader import PdfFileReader

from directsuite.sandbox.signing.form import fields, page_numbers, signature_count
from directsuite.sandbox.signing.refusals import InvalidActionError, InvalidParameterError

if TYPE_CHECKING:
    from collections.abc import Generator
    from contextlib import AbstractContextManager

_WARNINGS = threading.Lock()  # the filters of warnings belong to all threads
_HEADER_WITHIN = 1024  # bytes; readers accept this much rubbish before the header


def open_pdf(content: bytes) -> AbstractContextManager[pikepdf.Pdf]:
    """The document for reading and rewriting."""
    return pikepdf.open(io.BytesIO(content))


def rewritten(pdf: pikepdf.Pdf) -> bytes:
    """The bytes of a changed document; what was encrypted stays encrypted."""
    output = io.BytesIO()
    if "/Size" not in pdf.trailer:  # qpdf writes the right number, but only where there was one: not for a lost trailer
        pdf.trailer["/Size"] = 0
    with _stray_widgets_allowed(pdf):
        pdf.save(output, encryption=True if pdf.is_encrypted else None)
    return output.getvalue()


def reader(content: bytes) -> Any:
    """pyHanko's reader: tolerant, and unlocked where the user password is empty."""
    opened: Any = PdfFileReader(io.BytesIO(content), strict=False)
    if opened.encrypted:
        opened.decrypt(b"")
    return opened


def incremental_writer(content: bytes) -> Any:
    """pyHanko's writer, which appends an update; unlocked where the user password is empty."""
    writer: Any = IncrementalPdfFileWriter(io.BytesIO(content), strict=False)
    if writer.prev.encrypted:
        writer.encrypt(user_pwd=b"")
    return writer


def accepted(content: bytes) -> tuple[bytes, bool]:
    """The bytes to store for an uploaded document, and whether its structure had to be repaired.

    Raises InvalidParameterError for what is no PDF, has no pages, needs a password, or is damaged and signed
    (repairing it would break its signatures).
    """
    if b"%PDF-" not in content[:_HEADER_WITHIN]:
        raise InvalidParameterError("the body is not a PDF document: it does not begin with %PDF-")
    try:
        with open_pdf(content) as pdf:
            if not len(pdf.pages):
                raise InvalidParameterError("the PDF document has no pages")
            readable = _readable(content)
            if signature_count(pdf):
                if not readable:
                    raise InvalidParameterError("the PDF document is damaged, and signed: it cannot be repaired")
                return content, False
            if readable and not _untyped(pdf).get_warnings():
                return content, False
            return rewritten(pdf), True
    except pikepdf.PasswordError:
        raise InvalidParameterError("the PDF document needs a password: remove it before saving") from None
    except pikepdf.PdfError:
        raise InvalidParameterError("the PDF document is damaged beyond repair") from None


def certification(content: bytes) -> int | None:
    """What a certified document permits: 1 nothing, 2 filling in and signing, 3 annotating too; None if uncertified."""
    with open_pdf(content) as pdf:
        permissions = pdf.Root.get("/Perms")
        signature = permissions.get("/DocMDP") if permissions is not None else None
        if signature is None:
            return None
        for reference in list(signature.get("/Reference", pikepdf.Array([]))):
            if str(reference.get("/TransformMethod")) == "/DocMDP":
                parameters = reference.get("/TransformParams")
                return int(str(parameters.get("/P", 2))) if parameters is not None else 2
        return 2


def refuse_if_certified(content: bytes, what: str) -> None:
    """Raise InvalidActionError if the document is certified."""
    if certification(content) is not None:
        raise InvalidActionError(f"the document is certified, which does not allow {what}")


def field_kinds(content: bytes) -> dict[str, tuple[str, bool]]:
    """The document's form: each field's full name, with its kind and whether it is signed."""
    with open_pdf(content) as pdf:
        return {field.name: (field.kind, field.signed) for field in fields(pdf)}


def new_stream(pdf: pikepdf.Pdf, content: bytes, **entries: Any) -> pikepdf.Object:
    """A stream with this content and these dictionary entries, made in `pdf`."""
    stream: pikepdf.Object = _untyped(pdf).make_stream(content, **entries)
    return stream


@contextmanager
def _stray_widgets_allowed(pdf: pikepdf.Pdf) -> Generator[None]:
    """Keep pikepdf from warning of widgets that belong to no field: they came with the document."""
    if not page_numbers(pdf).keys() - {widget.objgen for field in fields(pdf) for widget in field.widgets}:
        yield
        return
    with _WARNINGS, warnings.catch_warnings():
        warnings.simplefilter("ignore", pikepdf.PageCopyWarning)
        yield


def _untyped(pdf: pikepdf.Pdf) -> Any:
    """The document for those of its methods that pikepdf types in part only."""
    return pdf


def _readable(content: bytes) -> bool:
    """Whether pyHanko, which does not repair, can read the document."""
    try:
        opened = reader(content)
        return int(opened.root["/Pages"]["/Count"]) > 0
    except (PdfError, ValueError, KeyError, TypeError, IndexError):
        return False
