"""Places on a page: between the service's coordinates and those of the PDF.

The service measures in points from the top-left corner of the crop box, before the page is turned by /Rotate:

    service   left →, top ↓    from the top-left of the crop box
    PDF       x →, y ↑         from an origin anywhere, often not a corner of the crop box
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pikepdf

if TYPE_CHECKING:
    from collections.abc import Iterable

_LETTER = (0.0, 0.0, 612.0, 792.0)  # for a page without a media box, as viewers do


@dataclass(frozen=True, slots=True)
class Rectangle:
    """A rectangle in PDF user space, in points; left <= right and bottom <= top."""

    left: float
    bottom: float
    right: float
    top: float

    @classmethod
    def of(cls, corners: Iterable[object]) -> Rectangle:
        """The rectangle of four PDF numbers that name two opposite corners in either order."""
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
        """Whether it lies inside `other`, give or take `tolerance` points."""
        return (
            self.left >= other.left - tolerance
            and self.bottom >= other.bottom - tolerance
            and self.right <= other.right + tolerance
            and self.top <= other.top + tolerance
        )

    def intersection(self, other: Rectangle) -> Rectangle | None:
        """The part that both cover; None if they do not overlap."""
        left, bottom = max(self.left, other.left), max(self.bottom, other.bottom)
        right, top = min(self.right, other.right), min(self.top, other.top)
        return Rectangle(left, bottom, right, top) if left < right and bottom < top else None

    def corners(self) -> tuple[float, float, float, float]:
        """Left, bottom, right, top: the order of a PDF rectangle."""
        return self.left, self.bottom, self.right, self.top


def crop_box(page: pikepdf.Page) -> Rectangle:
    """The visible part of a page in its own user space, before rotation."""
    media = _inherited_box(page, "/MediaBox") or Rectangle(*_LETTER)
    crop = _inherited_box(page, "/CropBox")
    return (crop.intersection(media) if crop is not None else None) or media


def rotation(page: pikepdf.Page) -> int:
    """How far viewers turn the page clockwise: 0, 90, 180 or 270 degrees."""
    turned = inherited(page.obj, "/Rotate")
    try:
        return int(float(str(turned))) // 90 * 90 % 360 if turned is not None else 0
    except ValueError:
        return 0


def upright(turned: int, width: float, height: float) -> tuple[float, float, tuple[int, int, int, int, float, float]]:
    """How to draw in a `width` by `height` rectangle so that it reads upright when turned clockwise by `turned`.

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
    """The value of `key` in a page or form field, or in the nearest /Parent that has it."""
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
