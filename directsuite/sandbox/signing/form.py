"""The interactive form of a PDF as a flat list of its terminal fields, and places on its pages.

A form is a tree: names are joined with dots on the way down, and type, flags and value may be inherited from
above. A terminal field has one or more widgets (its appearances on pages), often merged into the field itself.

The service measures in points from the top-left corner of the crop box, before the page is turned by /Rotate:

    service   left →, top ↓    from the top-left of the crop box
    PDF       x →, y ↑         from an origin anywhere, often not a corner of the crop box
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntFlag
from typing import TYPE_CHECKING

import pikepdf

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_KINDS = {"/Tx": "text", "/Ch": "choice", "/Sig": "signature"}
_LETTER = (0.0, 0.0, 612.0, 792.0)  # for a page without a media box, as viewers do


class FieldFlag(IntFlag):
    """The field flags (/Ff) that change how a field looks or what it is (ISO 32000-1, 12.7.4)."""

    READ_ONLY = 1 << 0
    REQUIRED = 1 << 1
    MULTILINE = 1 << 12
    PASSWORD = 1 << 13
    RADIO = 1 << 15
    PUSH_BUTTON = 1 << 16
    COMBO = 1 << 17
    COMB = 1 << 24


@dataclass(frozen=True, slots=True)
class Field:
    """A terminal form field; its pikepdf objects live as long as the document they come from."""

    name: str
    dictionary: pikepdf.Object
    widgets: list[pikepdf.Object]

    def get(self, key: str) -> pikepdf.Object | None:
        """Return the field's own or inherited value of `key`."""
        return inherited(self.dictionary, key)

    @property
    def flags(self) -> FieldFlag:
        """The field flags."""
        flags = self.get("/Ff")
        try:
            return FieldFlag(int(str(flags)) & 0x7FFFFFFF) if flags is not None else FieldFlag(0)
        except ValueError:
            return FieldFlag(0)

    @property
    def kind(self) -> str:
        """text, choice, signature, checkbox, radio or pushbutton; unknown for a field without a type."""
        field_type = str(self.get("/FT"))
        if field_type == "/Btn":
            if FieldFlag.PUSH_BUTTON in self.flags:
                return "pushbutton"
            return "radio" if FieldFlag.RADIO in self.flags else "checkbox"
        return _KINDS.get(field_type, "unknown")

    @property
    def value(self) -> str:
        """The field's value as text; empty if it has none. Several chosen items are joined with commas."""
        value = self.get("/V")
        if isinstance(value, pikepdf.Array):
            return ",".join(text_of(item) for item in value)
        return text_of(value)

    @property
    def signed(self) -> bool:
        """Return True for a signature field that holds a signature."""
        return self.kind == "signature" and isinstance(self.get("/V"), pikepdf.Dictionary)


def acro_form(pdf: pikepdf.Pdf) -> pikepdf.Dictionary | None:
    """Return the document's form dictionary, None if it has no form."""
    form = pdf.Root.get("/AcroForm")
    return form if isinstance(form, pikepdf.Dictionary) else None


def fields(pdf: pikepdf.Pdf) -> Iterator[Field]:
    """Yield all terminal fields in the order of the form."""
    form = acro_form(pdf)
    roots = form.get("/Fields") if form is not None else None
    seen: set[tuple[int, int]] = set()
    for root in _dictionaries(roots):
        yield from _terminal(root, "", seen)


def signature_count(pdf: pikepdf.Pdf) -> int:
    """Return the number of signatures that the document carries."""
    return sum(field.signed for field in fields(pdf))


def subfields(node: pikepdf.Object) -> list[pikepdf.Object]:
    """Return the fields right below `node`: those of its kids that have a name of their own."""
    return [kid for kid in _dictionaries(node.get("/Kids")) if kid.get("/T") is not None]


def page_numbers(pdf: pikepdf.Pdf) -> dict[tuple[int, int], tuple[int, int]]:
    """Map the object number of each widget to its page and its place among the page's widgets, both from 1.

    Looked up through the pages' annotations, since a widget's own /P is optional and often wrong.
    """
    places: dict[tuple[int, int], tuple[int, int]] = {}
    for page_number, page in enumerate(pdf.pages, 1):
        widgets = [note for note in _dictionaries(page.obj.get("/Annots")) if str(note.get("/Subtype")) == "/Widget"]
        for tab, widget in enumerate(widgets, 1):
            places.setdefault(widget.objgen, (page_number, tab))
    return places


def text_of(value: pikepdf.Object | None) -> str:
    """Return a PDF value as text: strings decoded, names without their slash, streams as UTF-8."""
    if value is None:
        return ""
    if isinstance(value, pikepdf.Name):
        return str(value)[1:]
    if isinstance(value, pikepdf.Stream):
        return value.read_bytes().decode("utf-8", "replace")
    return str(value)


def _terminal(node: pikepdf.Object, prefix: str, seen: set[tuple[int, int]]) -> Iterator[Field]:
    if node.is_indirect:
        if node.objgen in seen:
            return
        seen.add(node.objgen)
    own = node.get("/T")
    name = ".".join(part for part in (prefix, text_of(own)) if part)
    below = subfields(node)
    if below:
        for kid in below:
            yield from _terminal(kid, name, seen)
        return
    kids = list(_dictionaries(node.get("/Kids")))
    yield Field(name, node, kids or [node])


def _dictionaries(array: pikepdf.Object | None) -> Iterator[pikepdf.Object]:
    if isinstance(array, pikepdf.Array):
        yield from (item for item in array if isinstance(item, pikepdf.Dictionary))


@dataclass(frozen=True, slots=True)
class Rectangle:
    """A rectangle in PDF user space, in points; left <= right and bottom <= top."""

    left: float
    bottom: float
    right: float
    top: float

    @classmethod
    def of(cls, corners: Iterable[object]) -> Rectangle:
        """Return the rectangle of four PDF numbers that name two opposite corners in either order."""
        x0, y0, x1, y1 = (float(str(number)) for number in corners)
        return cls(min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1))

    @property
    def width(self) -> float:
        """Points from left to right."""
        return self.right - self.left

    @property
    def height(self) -> float:
        """Points from bottom to top."""
        return self.top - self.bottom

    def within(self, other: Rectangle, *, tolerance: float) -> bool:
        """Return True if it lies inside `other`, give or take `tolerance` points."""
        return (
            self.left >= other.left - tolerance
            and self.bottom >= other.bottom - tolerance
            and self.right <= other.right + tolerance
            and self.top <= other.top + tolerance
        )

    def intersection(self, other: Rectangle) -> Rectangle | None:
        """Return the part that both cover, None if they do not overlap."""
        left, bottom = max(self.left, other.left), max(self.bottom, other.bottom)
        right, top = min(self.right, other.right), min(self.top, other.top)
        return Rectangle(left, bottom, right, top) if left < right and bottom < top else None

    def corners(self) -> tuple[float, float, float, float]:
        """Return left, bottom, right and top: the order of a PDF rectangle."""
        return self.left, self.bottom, self.right, self.top


def crop_box(page: pikepdf.Page) -> Rectangle:
    """Return the visible part of a page in its own user space, before rotation."""
    media = _inherited_box(page, "/MediaBox") or Rectangle(*_LETTER)
    crop = _inherited_box(page, "/CropBox")
    return (crop.intersection(media) if crop is not None else None) or media


def rotation(page: pikepdf.Page) -> int:
    """Return how far viewers turn the page clockwise: 0, 90, 180 or 270 degrees."""
    turned = inherited(page.obj, "/Rotate")
    try:
        return int(float(str(turned))) // 90 * 90 % 360 if turned is not None else 0
    except ValueError:
        return 0


def upright(turned: int, width: float, height: float) -> tuple[float, float, tuple[int, int, int, int, float, float]]:
    """Return how to draw in a `width` by `height` rectangle so that it reads upright when turned clockwise by `turned`.

    Gives the width and height to draw for, and the matrix that puts the drawing into the rectangle.
    """
    if turned == 90:
        return height, width, (0, 1, -1, 0, width, 0)
    if turned == 180:
        return width, height, (-1, 0, 0, -1, width, height)
    if turned == 270:
        return height, width, (0, -1, 1, 0, 0, height)
    return width, height, (1, 0, 0, 1, 0, 0)


def inherited(node: pikepdf.Object, key: str) -> pikepdf.Object | None:
    """Return the value of `key` in a page or form field, or in the nearest /Parent that has it."""
    for _ in range(64):  # a limit, since a damaged file may make a field its own ancestor
        value = node.get(key)
        if value is not None:
            return value
        parent = node.get("/Parent")
        if not isinstance(parent, pikepdf.Dictionary):
            return None
        node = parent
    return None


def _inherited_box(page: pikepdf.Page, key: str) -> Rectangle | None:
    corners = inherited(page.obj, key)
    try:
        box = Rectangle.of(iter(corners)) if corners is not None else None
    except (TypeError, ValueError):
        return None
    return box if box is not None and box.width > 0 and box.height > 0 else None
