"""Check, repair and rewrite PDFs with pikepdf, and read their form fields and page geometry.

pyHanko appends updates, so that existing signatures stay valid.

A form is a tree. The full name of a field joins the names on its path with dots; type, flags and value may be
inherited. A terminal field has one or more widgets (its appearances on pages), often merged into the field itself.

The service measures in points from the top-left corner of the crop box, before the page is rotated by /Rotate:

    service   left →, top ↓    from the top-left of the crop box
    PDF       x →, y ↑         from an origin anywhere, often not a corner of the crop box
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
from dataclasses import dataclass
from enum import IntFlag
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import pikepdf
from pikepdf import Rectangle
from pyhanko.pdf_utils.incremental_writer import IncrementalPdfFileWriter
from pyhanko.pdf_utils.reader import HistoricalResolver, PdfFileReader
from pyhanko.sign.fields import SigFieldSpec, append_signature_field

from directsuite.sandbox.rejections import InvalidParameterError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from contextlib import AbstractContextManager

    from pyhanko.pdf_utils.generic import Reference

_WARNINGS_LOCK = threading.Lock()  # the warning filters are shared by all threads
_OBJECT = re.compile(rb"(?<!\d)(\d{1,6} \d{1,5} obj\b)")
_MAX_HEADER_OFFSET = 1024  # bytes; other readers also accept content before the header
_FIELD_KINDS = {"/Tx": "text", "/Ch": "choice", "/Sig": "signature"}
_ACCESS_MODE = pikepdf.AccessMode.stream  # a memory map would count as used memory
_MAX_RECOVERED_BYTES = 64 * 2**20  # recovery holds several copies in memory
_MAX_LOOKUPS = 20_000  # for all signatures of a document; takes about two seconds
_LETTER_BOX = Rectangle(0, 0, 612, 792)  # the default of viewers


def open_pdf(file: Path) -> AbstractContextManager[pikepdf.Pdf]:
    """Open a document for reading and rewriting."""
    return pikepdf.open(file, access_mode=_ACCESS_MODE)


def rewrite(pdf: pikepdf.Pdf, target: Path, encryption: pikepdf.Encryption | None = None) -> None:
    """Write the changed document to `target`, without malformed catalog entries and usage rights.

    encryption: None to keep the current encryption, if any.
    """
    if "/Size" not in pdf.trailer:  # qpdf corrects it only if it exists; a reconstructed trailer has none
        pdf.trailer["/Size"] = 0
    for name in _find_invalid_entries(pdf):
        del pdf.Root[name]
    permissions = pdf.Root.get("/Perms", pikepdf.Dictionary())
    for usage_rights in ("/UR", "/UR3"):  # invalid after rewriting, and pyHanko cannot decrypt them
        if usage_rights in permissions:
            del permissions[usage_rights]
    with _allow_stray_widgets(pdf):
        pdf.save(target, encryption=encryption or pdf.is_encrypted or None)


class TooManyLookupsError(Exception):
    """The changes of a document need more than _MAX_LOOKUPS lookups of objects."""


class _CountingResolver(HistoricalResolver):
    def get_object(self, ref: Reference, as_metadata_stream: bool = False) -> Any:
        limited: Any = self.reader
        limited.lookups_left -= 1
        if limited.lookups_left < 0:
            raise TooManyLookupsError
        original: Any = super()  # pyHanko's methods have no types
        return original.get_object(ref, as_metadata_stream)


class _LimitedReader(PdfFileReader):
    """A reader that limits the lookups of objects in earlier revisions.

    To judge the changes after a signature, pyHanko follows every path to a changed object. For a document of many pages
    that share a font, this could take longer than a client waits.
    """

    lookups_left = _MAX_LOOKUPS

    def get_historical_resolver(self, revision: int) -> HistoricalResolver:
        if self.lookups_left < 0:  # an earlier signature has used them up
            raise TooManyLookupsError
        make_resolver: Any = _CountingResolver
        resolvers: dict[int, HistoricalResolver] = self._historical_resolver_cache
        return resolvers.setdefault(revision, make_resolver(self, revision))


def open_reader(document: BinaryIO) -> Any:
    """Return a tolerant reader for validation. An encrypted document is opened with an empty password.

    Judging the changes after its signatures may raise TooManyLookupsError.
    """
    opened: Any = _LimitedReader(document, strict=False)
    if opened.encrypted:
        opened.decrypt(b"")
    return opened


def open_incremental_writer(document: BinaryIO) -> Any:
    """Return a pyHanko writer that appends an update. An encrypted document is opened with an empty password."""
    writer: Any = IncrementalPdfFileWriter(document, strict=False)
    if writer.prev.encrypted:
        writer.encrypt(user_pwd=b"")
    return writer


def repair(uploaded: Path, target: Path) -> bool:
    """Check an uploaded document. Return True if it could not be signed and a repaired copy was written to `target`."""
    with uploaded.open("rb") as document:
        beginning = document.read(_MAX_HEADER_OFFSET)
    if b"%PDF-" not in beginning:
        raise InvalidParameterError("the body is not a PDF document: it does not begin with %PDF-")
    try:
        with _open_recovered(uploaded) as pdf:
            if not len(pdf.pages):
                raise InvalidParameterError("the PDF document has no pages")
            signed = count_signatures(pdf) > 0
            map_widget_places(pdf)  # reads every page, which detects damage
            untyped: Any = pdf
            sound = not _find_invalid_entries(pdf) and (signed or not untyped.get_warnings())
            if sound and _can_be_updated(uploaded):
                return False
            if signed:
                raise InvalidParameterError(
                    "the PDF document is signed, and is damaged or uses an outdated encryption: it cannot be repaired"
                    " without invalidating its signatures"
                )
            _write_repaired(pdf, target)
            return True
    except pikepdf.PasswordError:
        raise InvalidParameterError(
            "the PDF document needs a password: remove the password, then save the document again"
        ) from None
    except pikepdf.PdfError as error:
        if "encryption dictionary" in str(error):
            raise InvalidParameterError(
                "the PDF document is encrypted for the holders of certificates, or by an unknown method: remove the"
                " encryption, then save the document again"
            ) from None
        raise InvalidParameterError("the PDF document is damaged beyond repair") from None


def _find_invalid_entries(pdf: pikepdf.Pdf) -> list[str]:
    entries = ((name, pdf.Root.get(name)) for name in ("/Extensions", "/Perms", "/AcroForm"))
    return [name for name, entry in entries if entry is not None and not isinstance(entry, pikepdf.Dictionary)]


def _open_recovered(file: Path) -> pikepdf.Pdf:
    """Open a document. If qpdf does not find its objects, retry a small one with a copy that is easier to parse.

    Without a cross-reference table, qpdf only finds objects at the start of a line, with numbers below a third of the
    file's size. It also trusts `startxref`.
    """
    try:
        return pikepdf.open(file, access_mode=_ACCESS_MODE)
    except pikepdf.PdfError:
        if file.stat().st_size > _MAX_RECOVERED_BYTES:
            raise
        content = file.read_bytes()
        lines = _OBJECT.sub(rb"\n\1", content.replace(b"startxref", b""))
        highest = max((int(found[1].split()[0]) for found in _OBJECT.finditer(content)), default=0)
        return pikepdf.open(io.BytesIO(lines + b"\n" * (3 * highest)))


def _write_repaired(pdf: pikepdf.Pdf, target: Path) -> None:
    """Write a copy that can be signed. Raises InvalidParameterError if that fails.

    Encryption that pyHanko does not support (revision 5, or no key length) is replaced by that of PDF 2.0, with the
    same permissions and a random owner password.
    """
    form = find_acro_form(pdf)
    if form is not None:
        _mend_fields(pdf, form, "/Fields", set())
    renewed = pikepdf.Encryption(owner=secrets.token_urlsafe(), user="", allow=pdf.allow)
    for encryption in (None, renewed) if pdf.is_encrypted else (None,):
        with suppress(pikepdf.PikepdfError, RuntimeError):  # pikepdf before 10.17: RuntimeError for a key length
            rewrite(pdf, target, encryption)
            if _can_be_updated(target):
                return
    raise InvalidParameterError("the PDF document is damaged beyond repair: it could not be signed")


def _mend_fields(pdf: pikepdf.Pdf, parent: pikepdf.Object, key: str, seen: set[tuple[int, int]]) -> None:
    """Reduce this part of the form to what pyHanko accepts: unique, indirect fields with strings as names."""
    mended: list[pikepdf.Object] = []
    for field in _iter_dictionaries(parent.get(key)):
        if is_seen(field, seen):
            continue
        if "/T" in field and not isinstance(field["/T"], pikepdf.String):
            del field["/T"]
        if "/Kids" in field:
            _mend_fields(pdf, field, "/Kids", seen)
        mended.append(field if field.is_indirect else pdf.make_indirect(field))
    parent[key] = pikepdf.Array(mended)


@contextmanager
def _allow_stray_widgets(pdf: pikepdf.Pdf) -> Generator[None]:
    """Suppress pikepdf's warning about widgets without a field while the block saves the document."""
    if not map_widget_places(pdf).keys() - {widget.objgen for field in iter_fields(pdf) for widget in field.widgets}:
        yield
        return
    with _WARNINGS_LOCK, warnings.catch_warnings():
        warnings.simplefilter("ignore", pikepdf.PageCopyWarning)
        yield


def _can_be_updated(file: Path) -> bool:
    """Return True if pyHanko, which repairs nothing, can append a signature field. The file is not changed."""
    try:
        with file.open("rb") as document, Path(os.devnull).open("wb") as nowhere:
            writer = open_incremental_writer(document)
            append_field: Any = append_signature_field
            append_field(writer, SigFieldSpec(uuid.uuid4().hex, box=(0, 0, 1, 1)))
            writer.update_root()  # as signing does
            writer.write(nowhere)
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001  signing would fail with the same error, whatever its class
        return False
    return True


class FieldFlag(IntFlag):
    """The field flags (/Ff) that affect a field's appearance or kind (ISO 32000-1, 12.7.4)."""

    MULTILINE = 1 << 12
    PASSWORD = 1 << 13
    RADIO = 1 << 15
    PUSH_BUTTON = 1 << 16
    COMBO = 1 << 17
    COMB = 1 << 24


@dataclass(frozen=True, slots=True)
class PdfField:
    """A terminal form field. Its pikepdf objects are valid while their document is open."""

    name: str
    dictionary: pikepdf.Object
    widgets: list[pikepdf.Object]

    def get(self, key: str) -> pikepdf.Object | None:
        """Return the value of `key`, which may be inherited, or None."""
        return _find_inherited(self.dictionary, key)

    @property
    def flags(self) -> FieldFlag:
        """The field flags."""
        return FieldFlag(to_integer(self.get("/Ff")) & 0x7FFFFFFF)

    @property
    def kind(self) -> str:
        """The kind: text, choice, signature, checkbox, radio, pushbutton, or unknown for a missing or other type."""
        field_type = str(self.get("/FT"))
        if field_type == "/Btn":
            if FieldFlag.PUSH_BUTTON in self.flags:
                return "pushbutton"
            return "radio" if FieldFlag.RADIO in self.flags else "checkbox"
        return _FIELD_KINDS.get(field_type, "unknown")

    @property
    def value(self) -> str:
        """The value as text, with commas between selected items. Empty if there is none."""
        value = self.get("/V")
        return ",".join(map(value_to_text, value)) if isinstance(value, pikepdf.Array) else value_to_text(value)

    @property
    def is_signed(self) -> bool:
        """True for a signature field with a signature."""
        return self.kind == "signature" and isinstance(self.get("/V"), pikepdf.Dictionary)


def find_acro_form(pdf: pikepdf.Pdf) -> pikepdf.Dictionary | None:
    """Return the form dictionary, or None if the document has no form."""
    form = pdf.Root.get("/AcroForm")
    return form if isinstance(form, pikepdf.Dictionary) else None


def iter_fields(pdf: pikepdf.Pdf) -> Iterator[PdfField]:
    """Yield the terminal fields in the order of the form."""
    form = find_acro_form(pdf)
    seen = set[tuple[int, int]]()
    for root in _iter_dictionaries(form.get("/Fields") if form is not None else None):
        yield from _iter_terminal_fields(root, "", seen)


def count_signatures(pdf: pikepdf.Pdf) -> int:
    """Return the number of signed fields."""
    return sum(field.is_signed for field in iter_fields(pdf))


def list_subfields(node: pikepdf.Object) -> list[pikepdf.Object]:
    """Return the child fields of `node`: its kids that have a name."""
    return [kid for kid in _iter_dictionaries(node.get("/Kids")) if kid.get("/T") is not None]


def map_widget_places(pdf: pikepdf.Pdf) -> dict[tuple[int, int], tuple[int, int]]:
    """Map the object number of each widget to its page number and its position among the page's widgets, both from 1.

    Widgets on no page are missing. /P of a widget is not used, because it is optional and often wrong.
    """
    places: dict[tuple[int, int], tuple[int, int]] = {}
    for page_number, page in enumerate(pdf.pages, 1):
        notes = _iter_dictionaries(page.obj.get("/Annots"))
        widgets = [note for note in notes if str(note.get("/Subtype")) == "/Widget"]
        for tab, widget in enumerate(widgets, 1):
            places.setdefault(widget.objgen, (page_number, tab))
    return places


def value_to_text(value: pikepdf.Object | None) -> str:
    """Return a PDF value as text. Names lose their slash; streams are read as UTF-8, and damaged ones as ""."""
    if value is None:
        return ""
    if isinstance(value, pikepdf.Name):
        return str(value)[1:]
    if isinstance(value, pikepdf.Stream):
        with suppress(pikepdf.PdfError):
            return value.read_bytes().decode("utf-8", "replace")
        return ""
    return str(value)


def to_integer(value: pikepdf.Object | None) -> int:
    """Return a PDF number without its fraction, or 0 if it is missing or malformed."""
    try:
        return int(float(str(value))) if value is not None else 0
    except (ValueError, OverflowError):
        return 0


def _iter_terminal_fields(node: pikepdf.Object, prefix: str, seen: set[tuple[int, int]]) -> Iterator[PdfField]:
    if is_seen(node, seen):
        return
    own = node.get("/T")
    name = ".".join(part for part in (prefix, str(own) if isinstance(own, pikepdf.String) else "") if part)
    below = list_subfields(node)
    if below:
        for kid in below:
            yield from _iter_terminal_fields(kid, name, seen)
        return
    kids = list(_iter_dictionaries(node.get("/Kids")))
    yield PdfField(name, node, kids or [node])


def is_seen(node: pikepdf.Object, seen: set[tuple[int, int]]) -> bool:
    """Return True if `seen` contains an indirect node, for example because a form contains itself. Add it to `seen`."""
    if not node.is_indirect or node.objgen not in seen:
        seen.add(node.objgen)
        return False
    return True


def _iter_dictionaries(array: pikepdf.Object | None) -> Iterator[pikepdf.Object]:
    if isinstance(array, pikepdf.Array):
        yield from (item for item in array if isinstance(item, pikepdf.Dictionary))


def find_crop_box(page: pikepdf.Page) -> Rectangle:
    """Return the visible part of a page, before rotation. An invalid /MediaBox counts as US Letter."""
    media = _find_inherited_box(page, "/MediaBox") or _LETTER_BOX
    crop = _find_inherited_box(page, "/CropBox")
    return media if crop is None or not overlap(crop, media) else crop & media


def find_rotation(page: pikepdf.Page) -> int:
    """Return the clockwise rotation of the page: 0 (also if missing or malformed), 90, 180 or 270 degrees."""
    return to_integer(_find_inherited(page.obj, "/Rotate")) // 90 * 90 % 360


def _find_inherited(node: pikepdf.Object, key: str) -> pikepdf.Object | None:
    for _ in range(64):  # a damaged file may make a field its own ancestor
        value = node.get(key)
        if value is not None:
            return value
        parent = node.get("/Parent")
        if not isinstance(parent, pikepdf.Dictionary):
            return None
        node = parent
    return None


def parse_rectangle(corners: pikepdf.Object | None) -> Rectangle | None:
    """Return a PDF array as a rectangle in points, or None if it is missing or malformed."""
    if not isinstance(corners, pikepdf.Array):
        return None
    try:
        return Rectangle(corners)
    except TypeError:
        return None


def overlap(one: Rectangle, other: Rectangle) -> bool:
    """Return True if the intersection is not empty."""
    common = one & other
    return common.width > 0 and common.height > 0


def _find_inherited_box(page: pikepdf.Page, key: str) -> Rectangle | None:
    box = parse_rectangle(_find_inherited(page.obj, key))
    return box if box is not None and box.width > 0 and box.height > 0 else None
