"""Consent forms as PDFs, made with pikepdf: text, a text field, and an empty signature field on the first page.

Everything is drawn for the page as it is seen. A page that viewers turn (/Rotate 90) is written turned the other way:

    seen (x, y)  ──►  in the file (height - y, x)        height: of the page as seen
"""

from __future__ import annotations

import io
import math
import textwrap
from functools import cache
from typing import Any

import attrs
import pikepdf
from pikepdf import Array, Dictionary, Name, String

PATIENT_FIELD = "PatientSignature"

_MARGIN = 54.0
_GAP = 18.0
_SIGNATURE_HEIGHT = 64.0
_SIZES = ((612.0, 792.0), (595.0, 842.0), (612.0, 1008.0), (420.0, 595.0))  # points: Letter, A4, Legal, A5
_TURNED_EVERY = 5
_TEXT_SIZE, _LINE = 10.5, 15.0
_MEAN_WIDTH = 0.5  # of a character of Helvetica, as a part of the text size; a little more than it is

_PARAGRAPHS = (
    "I have been told about the planned treatment, its purpose, its risks, and what else could be done in its place. "
    "I had time to ask questions, and they were answered.",
    "I know that I may withdraw this consent at any time, without giving a reason and without disadvantage, by telling "
    "the clinic or by a Direct message to its address.",
    "The clinic keeps this form with my record. A copy of it, signed, is sent to my own Direct address at no "
    "charge (clinic rules, § 7).",
)


@attrs.frozen(kw_only=True)
class Form:
    """One consent form. width, height: of its pages as they are seen, in points."""

    number: int
    width: float
    height: float
    pages: int
    turned: bool
    countersigned: bool

    @classmethod
    def numbered(cls, number: int) -> Form:
        """The form of this number, from 1: sizes, turned pages and numbers of pages take turns."""
        width, height = _SIZES[number % len(_SIZES)]
        return cls(
            number=number,
            width=width,
            height=height,
            pages=1 + number % 3,
            turned=number % _TURNED_EVERY == 2,
            countersigned=number % 2 == 0,
        )

    @property
    def signature_width(self) -> float:
        """The width of each of two signatures side by side."""
        return (self.width - 2 * _MARGIN - _GAP) / 2

    @property
    def clinic_place(self) -> tuple[float, float, float, float]:
        """Where the clinic signs: left, top, width and height from the top left corner of the unturned page."""
        seen_left = _MARGIN + self.signature_width + _GAP
        left, bottom, right, top = self.in_file(
            (seen_left, _MARGIN, seen_left + self.signature_width, _MARGIN + _SIGNATURE_HEIGHT)
        )
        page_height = self.width if self.turned else self.height
        return left, page_height - top, right - left, top - bottom

    def in_file(self, seen: tuple[float, float, float, float]) -> tuple[float, float, float, float]:
        """A rectangle of the page as it is seen (left, bottom, right, top), as it stands in the file."""
        left, bottom, right, top = seen
        return (self.height - top, left, self.height - bottom, right) if self.turned else seen


def consent_form(form: Form) -> bytes:
    """The form as a PDF: the same bytes every time."""
    with pikepdf.new() as opened:
        document: Any = opened  # for those of its methods that pikepdf types in part only
        font = document.make_indirect(
            Dictionary(Type=Name.Font, Subtype=Name.Type1, BaseFont=Name.Helvetica, Encoding=Name.WinAnsiEncoding)
        )
        for page in range(1, form.pages + 1):
            size = (form.height, form.width) if form.turned else (form.width, form.height)
            added = document.add_blank_page(page_size=size)
            added.obj.Resources = Dictionary(Font=Dictionary(F1=font))
            added.obj.Contents = document.make_stream(_page_content(form, page))
            if form.turned:
                added.obj.Rotate = 90
        _add_fields(document, form, font)
        document.docinfo["/Title"] = String(f"Consent form {form.number}")
        document.docinfo["/Producer"] = String("directsuite demo")
        output = io.BytesIO()
        document.save(output, deterministic_id=True)
        return output.getvalue()


@cache
def handwriting() -> bytes:
    """A graphical signature: a line as a pen would draw it, black on nothing, as PNG."""
    from PIL import Image, ImageDraw

    width, height, steps = 480, 160, 400
    picture = Image.new("RGBA", (width, height), (0, 0, 0, 0))
    points = [
        (
            20 + 440 * step / steps + 26 * math.sin(step / 11),
            80 - 52 * math.cos(step / 17) * math.exp(-step / 260) + 8 * math.sin(step / 5),
        )
        for step in range(steps)
    ]
    ImageDraw.Draw(picture).line(points, fill=(20, 30, 110, 255), width=5, joint="curve")
    output = io.BytesIO()
    picture.save(output, "PNG")
    return output.getvalue()


def _page_content(form: Form, page: int) -> bytes:
    """The drawing of one page; turned where the page is."""
    pieces = [b"q"]
    if form.turned:
        pieces.append(b"0 1 -1 0 %g 0 cm" % form.height)
    y = form.height - _MARGIN - 18
    pieces.append(_text(_MARGIN, y, 18, f"Consent form {form.number}"))
    y -= 20
    pieces.append(_text(_MARGIN, y, 9, f"Page {page} of {form.pages}"))
    if page == 1:
        y = _name_field(form)[1]
        pieces.append(_text(_MARGIN, y + 6, _TEXT_SIZE, "Name"))
        pieces.append(_text(_MARGIN, _MARGIN + _SIGNATURE_HEIGHT + 6, 9, "Patient"))
        if form.countersigned:
            pieces.append(_text(_MARGIN + form.signature_width + _GAP, _MARGIN + _SIGNATURE_HEIGHT + 6, 9, "Clinic"))
    y -= 30
    columns = int((form.width - 2 * _MARGIN) / (_TEXT_SIZE * _MEAN_WIDTH))
    for paragraph in _PARAGRAPHS:
        for line in textwrap.wrap(paragraph, columns):
            pieces.append(_text(_MARGIN, y, _TEXT_SIZE, line))
            y -= _LINE
        y -= _LINE / 2
    return b"\n".join([*pieces, b"Q"])


def _text(x: float, y: float, size: float, text: str) -> bytes:
    escaped = text.encode("cp1252").replace(b"\\", rb"\\").replace(b"(", rb"\(").replace(b")", rb"\)")
    return b"BT /F1 %g Tf %g %g Td (%s) Tj ET" % (size, x, y, escaped)


def _name_field(form: Form) -> tuple[float, float, float, float]:
    top = form.height - _MARGIN - 60
    return _MARGIN + 48, top - 20, form.width - _MARGIN, top


def _add_fields(document: Any, form: Form, font: Any) -> None:
    """The text field, filled in, and the patient's signature field, both on the first page."""
    page = document.pages[0].obj
    seen = _name_field(form)
    across, up = seen[2] - seen[0], seen[3] - seen[1]
    look = document.make_stream(
        b"/Tx BMC q 0.6 w 0.5 G 0.3 0.3 %g %g re S\n%s\nQ EMC"
        % (across - 0.6, up - 0.6, _text(4, 6, _TEXT_SIZE, "Ada Example")),
        Type=Name.XObject,
        Subtype=Name.Form,
        BBox=Array([0, 0, across, up]),
        Matrix=Array([0, 1, -1, 0, up, 0] if form.turned else [1, 0, 0, 1, 0, 0]),
        Resources=Dictionary(Font=Dictionary(F1=font)),
    )
    name = _widget(document, form, page, seen, FT=Name.Tx, T=String("patient_name"), V=String("Ada Example"))
    name.DA = String(f"/F1 {_TEXT_SIZE:g} Tf 0 g")
    name.MK = Dictionary(R=90 if form.turned else 0)
    name.AP = Dictionary(N=look)
    place = (_MARGIN, _MARGIN, _MARGIN + form.signature_width, _MARGIN + _SIGNATURE_HEIGHT)
    signature = _widget(document, form, page, place, FT=Name.Sig, T=String(PATIENT_FIELD))
    page.Annots = Array([name, signature])
    document.Root.AcroForm = Dictionary(
        Fields=Array([name, signature]), DR=Dictionary(Font=Dictionary(F1=font)), DA=String("/F1 0 Tf 0 g")
    )


def _widget(document: Any, form: Form, page: Any, seen: tuple[float, float, float, float], **entries: Any) -> Any:
    return document.make_indirect(
        Dictionary(Type=Name.Annot, Subtype=Name.Widget, Rect=Array(list(form.in_file(seen))), P=page, F=4, **entries)
    )
