"""Opening a PDF with the two libraries, and what is asked of every document before it is changed.

pikepdf reads, repairs and rewrites; pyHanko appends, so that signatures already there stay valid.
"""

from __future__ import annotations

import io
import os
import re
import secrets
import threading
import uuid
import warnings
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pikepdf
from pyhanko.pdf_utils.incremental_writer import IncrementalPdfFileWriter
from pyhanko.pdf_utils.reader import PdfFileReader
from pyhanko.sign.fields import SigFieldSpec, append_signature_field

from directsuite.sandbox.refusals import InvalidParameterError
from directsuite.sandbox.signing.form import fields, page_numbers, signature_count

if TYPE_CHECKING:
    from collections.abc import Generator
    from contextlib import AbstractContextManager

_WARNINGS = threading.Lock()  # the filters of warnings belong to all threads
_OBJECT = re.compile(rb"(?<!\d)(\d{1,6} \d{1,5} obj\b)")
_HEADER_WITHIN = 1024  # bytes; readers accept this much rubbish before the header


def open_pdf(content: bytes) -> AbstractContextManager[pikepdf.Pdf]:
    """Open a document for reading and rewriting."""
    return pikepdf.open(io.BytesIO(content))


def rewritten(pdf: pikepdf.Pdf, encryption: pikepdf.Encryption | None = None) -> bytes:
    """Return the bytes of a changed document; what was encrypted stays encrypted, as before or as `encryption` says."""
    output = io.BytesIO()
    if "/Size" not in pdf.trailer:  # qpdf writes the right number, but only where there was one: not for a lost trailer
        pdf.trailer["/Size"] = 0
    for name in _misfits(pdf):
        del pdf.Root[name]
    permissions = pdf.Root.get("/Perms", pikepdf.Dictionary())
    for usage_rights in ("/UR", "/UR3"):  # a signature over the bytes as they were, which pyHanko cannot decrypt
        if usage_rights in permissions:
            del permissions[usage_rights]
    with _stray_widgets_allowed(pdf):
        pdf.save(output, encryption=encryption or pdf.is_encrypted or None)
    return output.getvalue()


def reader(content: bytes) -> Any:
    """Return pyHanko's reader: tolerant, and unlocked where the user password is empty."""
    opened: Any = PdfFileReader(io.BytesIO(content), strict=False)
    if opened.encrypted:
        opened.decrypt(b"")
    return opened


def incremental_writer(content: bytes) -> Any:
    """Return pyHanko's writer, which appends an update; unlocked where the user password is empty."""
    writer: Any = IncrementalPdfFileWriter(io.BytesIO(content), strict=False)
    if writer.prev.encrypted:
        writer.encrypt(user_pwd=b"")
    return writer


def accepted(content: bytes) -> tuple[bytes, bool]:
    """Return the bytes to store for an uploaded document, and whether it had to be rewritten to be signed later.

    Raises InvalidParameterError, which says why, for what is no PDF, has no pages, cannot be decrypted, or cannot be
    signed: what is stored, Sign takes. A document that carries signatures is never rewritten: that would break them.
    """
    if b"%PDF-" not in content[:_HEADER_WITHIN]:
        raise InvalidParameterError("the body is not a PDF document: it does not begin with %PDF-")
    try:
        with _recovered(content) as pdf:
            if not len(pdf.pages):
                raise InvalidParameterError("the PDF document has no pages")
            signed = signature_count(pdf) > 0
            page_numbers(pdf)  # reads every page, and so finds what is damaged
            sound = not _misfits(pdf) and (signed or not _untyped(pdf).get_warnings())
            if sound and _can_be_updated(content):
                return content, False
            if signed:
                raise InvalidParameterError(
                    "the PDF document is signed, and damaged or encrypted by an outdated method: it cannot be repaired"
                )
            return _repaired(pdf), True
    except pikepdf.PasswordError:
        raise InvalidParameterError("the PDF document needs a password: remove it before saving") from None
    except pikepdf.PdfError as error:
        if "encryption dictionary" in str(error):
            raise InvalidParameterError(
                "the PDF document is encrypted for the holders of certificates, or by an unknown method: remove the"
                " encryption before saving"
            ) from None
        raise InvalidParameterError("the PDF document is damaged beyond repair") from None


def _misfits(pdf: pikepdf.Pdf) -> list[str]:
    """Entries of the catalog that signing changes, and that are not the dictionaries which they have to be."""
    entries = ((name, pdf.Root.get(name)) for name in ("/Extensions", "/Perms"))
    return [name for name, entry in entries if entry is not None and not isinstance(entry, pikepdf.Dictionary)]


def _recovered(content: bytes) -> pikepdf.Pdf:
    """The document; where qpdf does not find its objects, it looks once more in a form that is easier to read.

    Without a cross-reference table qpdf finds an object only at the start of a line, and only under a number below a
    third of the file's size; and it believes what `startxref` points to. Other readers are not so strict.
    """
    try:
        return pikepdf.open(io.BytesIO(content))
    except pikepdf.PdfError:
        lines = _OBJECT.sub(rb"\n\1", content.replace(b"startxref", b""))
        highest = max((int(found[1].split()[0]) for found in _OBJECT.finditer(content)), default=0)
        return pikepdf.open(io.BytesIO(lines + b"\n" * (3 * highest)))


def _repaired(pdf: pikepdf.Pdf) -> bytes:
    """The document rewritten so that it can be signed. Raises InvalidParameterError if it still cannot be.

    Encryption that pyHanko does not know (revision 5, or no key length) gives way to that of PDF 2.0, with the same
    permissions, and with an owner password that nobody knows.
    """
    renewed = pikepdf.Encryption(owner=secrets.token_urlsafe(), user="", allow=pdf.allow)
    for encryption in (None, renewed) if pdf.is_encrypted else (None,):
        with suppress(pikepdf.PikepdfError, RuntimeError):  # pikepdf before 10.17 raises the latter for a key length
            content = rewritten(pdf, encryption)
            if _can_be_updated(content):
                return content
    raise InvalidParameterError("the PDF document is damaged beyond repair: it could not be signed")


def new_stream(pdf: pikepdf.Pdf, content: bytes, **entries: Any) -> pikepdf.Object:
    """Return a stream with this content and these dictionary entries, made in `pdf`."""
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


def _can_be_updated(content: bytes) -> bool:
    """Return True if pyHanko, which does not repair, can append a signature field to the document's first page."""
    try:
        writer = incremental_writer(content)
        append_field: Any = append_signature_field
        append_field(writer, SigFieldSpec(uuid.uuid4().hex, box=(0, 0, 1, 1)))
        writer.update_root()  # where signing tells the extension of PDF that it uses
        with Path(os.devnull).open("wb") as nowhere:
            writer.write(nowhere)
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001  whatever it is, signing would end in it too
        return False
    return True
