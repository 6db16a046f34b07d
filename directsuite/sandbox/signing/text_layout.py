"""Text laid out in a box as PDF content: one line, a wrapped paragraph, a list, or one character to a cell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from directsuite.sandbox.signing.fonts import Font

_MARGIN = 2.0  # points between a box's edge and its text
_LEADING = 1.15  # from one baseline to the next, in font sizes
_SMALLEST, _LARGEST = 4.0, 12.0  # for sizes that are chosen to fit
_BASELINE = 0.22  # how far below the middle of a line its text sits, in font sizes
_CAP_HEIGHT = 0.72  # of Helvetica and its likes, in font sizes
_HIGHLIGHT = b"0.6 0.75686 0.8549 rg"  # viewers' usual background for a chosen item


@dataclass(frozen=True, slots=True)
class TextStyle:
    """A box and how to write in it: size 0 fits the box; alignment 0 left, 1 centred, 2 right; colour as operators."""

    font: Font
    size: float
    colour: str
    alignment: int
    width: float
    height: float


def single_line(style: TextStyle, text: str) -> bytes:
    """One line in the middle of the box."""
    line = " ".join(text.splitlines())
    size = style.size or _fitting_size(style, line)
    middle = style.height / 2 - (_CAP_HEIGHT / 2) * size
    return _clipped(style, _written(style, size, [(_start(style, size, line), middle, line)]))


def paragraph(style: TextStyle, text: str) -> bytes:
    """Lines from the top of the box, wrapped between words."""
    size = style.size or next(
        (float(size) for size in range(int(_LARGEST), int(_SMALLEST), -1) if _fits(style, text, float(size))), _SMALLEST
    )
    top = style.height - _MARGIN - size
    lines = wrapped(style.font, text, size, style.width - 2 * _MARGIN)
    placed = [(_start(style, size, line), top - number * size * _LEADING, line) for number, line in enumerate(lines)]
    return _clipped(style, _written(style, size, placed))


def comb(style: TextStyle, text: str, cells: int) -> bytes:
    """One character in the middle of each of `cells` equal cells."""
    size = style.size or min(_LARGEST, max(_SMALLEST, style.height * 0.7))
    cell = style.width / cells
    middle = style.height / 2 - (_CAP_HEIGHT / 2) * size
    placed = [
        (cell * number + (cell - style.font.width(character, size)) / 2, middle, character)
        for number, character in enumerate(text[:cells])
    ]
    return _clipped(style, _written(style, size, placed))


def item_list(style: TextStyle, items: Sequence[str], chosen: set[int], first: int) -> bytes:
    """Items one below the other from number `first` on, the chosen ones highlighted."""
    size = style.size or _LARGEST
    row = size * _LEADING
    content = b""
    placed: list[tuple[float, float, str]] = []
    for number, item in enumerate(items[first:]):
        bottom = style.height - _MARGIN - row * (number + 1)
        if bottom + row <= 0:
            break
        if number + first in chosen:
            content += b"q %s %.3f %.3f %.3f %.3f re f Q\n" % (_HIGHLIGHT, 1, bottom, style.width - 2, row)
        placed.append((_start(style, size, item), bottom + _BASELINE * size, item))
    return _clipped(style, content + _written(style, size, placed))


def wrapped(font: Font, text: str, size: float, width: float) -> list[str]:
    """The lines of a text, wrapped between words to a width; a word that is wider stands alone."""
    lines: list[str] = []
    for line in text.splitlines() or [""]:
        current = ""
        for word in line.split(" "):
            longer = f"{current} {word}" if current else word
            if current and font.width(longer, size) > width:
                lines.append(current)
                current = word
            else:
                current = longer
        lines.append(current)
    return lines


def _fits(style: TextStyle, text: str, size: float) -> bool:
    lines = wrapped(style.font, text, size, style.width - 2 * _MARGIN)
    wide_enough = all(style.font.width(line, size) <= style.width - 2 * _MARGIN for line in lines)
    return wide_enough and len(lines) * size * _LEADING <= style.height - 2 * _MARGIN


def _fitting_size(style: TextStyle, line: str) -> float:
    natural = style.font.width(line, 1.0)
    across = (style.width - 2 * _MARGIN) / natural if natural else _LARGEST
    return max(_SMALLEST, min(_LARGEST, style.height * 0.7, across))


def _start(style: TextStyle, size: float, line: str) -> float:
    room = style.width - style.font.width(line, size)
    return {1: room / 2, 2: room - _MARGIN}.get(style.alignment, _MARGIN)


def _written(style: TextStyle, size: float, placed: Sequence[tuple[float, float, str]]) -> bytes:
    lines = b"".join(b"1 0 0 1 %.3f %.3f Tm %s Tj\n" % (x, y, style.font.encoded(line)) for x, y, line in placed)
    return b"BT\n%s\n/Text %.3f Tf\n%sET\n" % (style.colour.encode("latin-1", "replace"), size, lines)


def _clipped(style: TextStyle, content: bytes) -> bytes:
    return b"q\n1 1 %.3f %.3f re W n\n%sQ\n" % (max(style.width - 2, 0), max(style.height - 2, 0), content)
