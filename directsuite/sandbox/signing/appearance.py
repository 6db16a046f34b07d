"""Draw appearances: the text, frame and picture of a form field or signature, as PDF written by reportlab.

Helvetica, which every viewer has, covers Windows-1252. For other characters, a subset of a TrueType font of this
machine is embedded: the first of FONT_PATHS that has all characters. If none has, `find_font` returns None. Then
question marks are acceptable in a signature's appearance, but not in the value of a form field.
"""

from __future__ import annotations

import io
import re
import threading
import zlib
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pikepdf

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from PIL.Image import Image

# reportlab has no types
_canvas: Any = import_module("reportlab.pdfgen.canvas")
_metrics: Any = import_module("reportlab.pdfbase.pdfmetrics")
_truetype: Any = import_module("reportlab.pdfbase.ttfonts")
_objects: Any = import_module("reportlab.pdfbase.pdfdoc")

FONT_PATHS = (
    "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf",
    "/usr/share/fonts/dejavu-sans-fonts/DejaVuSans.ttf",
    "/usr/share/fonts/TTF/DejaVuSans.ttf",
    "/usr/share/fonts/truetype/liberation/LiberationSans-Regular.ttf",
    "/usr/share/fonts/truetype/noto/NotoSans-Regular.ttf",
    "/usr/share/fonts/truetype/droid/DroidSansFallbackFull.ttf",
    "/usr/share/fonts/truetype/unifont/unifont.ttf",
    "/System/Library/Fonts/Supplemental/Arial Unicode.ttf",
    "/System/Library/Fonts/Supplemental/Arial.ttf",
    "C:/Windows/Fonts/arial.ttf",
    "C:/Windows/Fonts/segoeui.ttf",
)
HELVETICA = "Helvetica"

_FONT_LOCK = threading.Lock()  # reportlab reads the glyphs of a font by seeking in it
_WIDE_CODE = re.compile(r"<([0-9A-F]{5,6})>$", re.MULTILINE)

_MARGIN = 2.0  # points between a box and its text
_LEADING = 1.15  # between baselines, in font sizes
_MIN_FONT_SIZE, _MAX_FONT_SIZE = 4, 12  # for automatic sizes
_BASELINE = 0.22  # above the bottom of a row, in font sizes
_CAP_HEIGHT = 0.72  # of Helvetica and similar fonts, in font sizes
_HIGHLIGHT = "0.6 0.75686 0.8549 rg"  # the usual background of selected items


class Drawing:
    """A drawing with the size of a rectangle on a page. It is upright if the page is rotated.

    width, height: the size of the rectangle before rotation, in points.
    turned: the clockwise rotation of the page in degrees.
    """

    def __init__(self, width: float, height: float, turned: int) -> None:
        self._output = io.BytesIO()
        self.canvas: Any = _canvas.Canvas(self._output, pagesize=(width, height), pageCompression=1)
        self.canvas.translate(width if turned in (90, 180) else 0, height if turned in (180, 270) else 0)
        self.canvas.rotate(turned)
        self.width, self.height = (height, width) if turned in (90, 270) else (width, height)

    def draw_picture(self, picture: Image, left: float, bottom: float, width: float, height: float) -> None:
        """Draw an RGBA picture in the center of a box. reportlab would encode it as ASCII, which takes seconds."""
        document = self.canvas._doc
        image = _make_image(picture.convert("RGB"), "DeviceRGB")
        image.smask = document.Reference(_make_image(picture.getchannel("A"), "DeviceGray"), "mask")
        document.addForm("picture", image)
        scale = min(width / picture.width, height / picture.height)
        across, up = picture.width * scale, picture.height * scale
        self.canvas.saveState()
        self.canvas.translate(left + (width - across) / 2, bottom + (height - up) / 2)
        self.canvas.scale(across, up)
        self.canvas.doForm("picture")
        self.canvas.restoreState()

    def to_pdf(self) -> bytes:
        """Return the finished drawing as a PDF of one page."""
        self.canvas.showPage()
        with _FONT_LOCK:
            self.canvas.save()
        return self._output.getvalue()

    def to_form_object(self, pdf: pikepdf.Pdf) -> pikepdf.Object:
        """Return the finished drawing as a form XObject of `pdf`."""
        drawn = pikepdf.open(io.BytesIO(self.to_pdf()))  # not closed: the copy is read when `pdf` is saved
        return pdf.copy_foreign(drawn.pages[0].as_form_xobject())


def find_font(text: str) -> str | None:
    """Return the name of a font with every printable character of the text, or None if this machine has none."""
    printable = {character for character in text if character >= " "}
    if all(character.encode("cp1252", "ignore") for character in printable):
        return HELVETICA
    codes = [ord(character) for character in printable]
    for path in FONT_PATHS:
        with suppress(Exception), _FONT_LOCK:  # the file is absent, or reportlab cannot read it
            font = _load_font(path)
            if all(code in font.face.charToGlyph for code in codes):
                font.face.makeSubset(codes)  # fails if the outlines are damaged
                return str(font.fontName)
    return None


@lru_cache(maxsize=len(FONT_PATHS))
def _load_font(path: str) -> Any:
    font = _Font(f"directsuite:{path}", path)
    font.face.name += b"-directsuite"  # reportlab would use a font of the program that has the same name
    _metrics.registerFont(font)
    return font


class _Font(_truetype.TTFont):  # type: ignore[misc]  # it has no types
    def addObjects(self, doc: Any) -> None:  # noqa: N802  reportlab's name
        """Add the font to a document. reportlab does not write characters above U+FFFF as UTF-16."""
        super().addObjects(doc)  # pyright: ignore[reportUnknownMemberType]
        for name, stream in doc.idToObject.items():
            if name.startswith("toUnicodeCMap:"):
                stream.content = _WIDE_CODE.sub(
                    lambda code: f"<{chr(int(code[1], 16)).encode('utf-16-be').hex()}>", stream.content
                )


def _make_image(pixels: Image, colors: str) -> Any:
    image = _objects.PDFImageXObject("")
    image.width, image.height = pixels.size
    image.bitsPerComponent, image.colorSpace = 8, colors
    image._filters, image.streamContent = ("FlateDecode",), zlib.compress(pixels.tobytes())
    return image


@dataclass(frozen=True, slots=True)
class TextStyle:
    """The size of a box, and the style of its text. The box is at the origin of the canvas."""

    font: str
    size: float
    """The size in points, or 0 for an automatic size."""
    colour: str
    """The PDF operators that set the colour."""
    alignment: int
    """The alignment: 0 left, 1 centered, 2 right."""
    width: float
    height: float

    @property
    def anchor(self) -> float:
        """The x coordinate of the start, center or end of a line."""
        return {1: self.width / 2, 2: self.width - _MARGIN}.get(self.alignment, _MARGIN)

    @property
    def text_width(self) -> float:
        """The width between the margins."""
        return self.width - 2 * _MARGIN

    def measure(self, line: str, size: float) -> float:
        """Return the width of a line of text in points."""
        width: float = _metrics.stringWidth(line, self.font, size)
        return width


def draw_line(canvas: Any, style: TextStyle, text: str) -> None:
    """Draw one vertically centered line. Line breaks become spaces."""
    line = " ".join(text.splitlines())
    natural = style.measure(line, 1)
    fitting = style.text_width / natural if natural else _MAX_FONT_SIZE
    size = style.size or max(_MIN_FONT_SIZE, min(_MAX_FONT_SIZE, style.height * 0.7, fitting))
    with _open_box(canvas, style, size) as draw:
        draw(style.anchor, style.height / 2 - (_CAP_HEIGHT / 2) * size, line)


def draw_paragraph(canvas: Any, style: TextStyle, text: str) -> None:
    """Draw lines from the top of the box, wrapped between words. Excess lines are clipped."""
    size, lines = style.size, list[str]()
    for size in (style.size,) if style.size else range(_MAX_FONT_SIZE, _MIN_FONT_SIZE - 1, -1):
        lines = _wrap_text(style, text, size)
        is_high_enough = len(lines) * size * _LEADING <= style.height - 2 * _MARGIN
        if is_high_enough and all(style.measure(line, size) <= style.text_width for line in lines):
            break
    with _open_box(canvas, style, size) as draw:
        for number, line in enumerate(lines):
            draw(style.anchor, style.height - _MARGIN - size - number * size * _LEADING, line)


def draw_comb(canvas: Any, style: TextStyle, text: str, cells: int) -> None:
    """Draw one character in the center of each of `cells` equal cells. The excess is left out."""
    size = style.size or min(_MAX_FONT_SIZE, max(_MIN_FONT_SIZE, style.height * 0.7))
    with _open_box(canvas, replace(style, alignment=1), size) as draw:
        for number, character in enumerate(text[:cells]):
            draw(style.width / cells * (number + 0.5), style.height / 2 - (_CAP_HEIGHT / 2) * size, character)


def draw_item_list(canvas: Any, style: TextStyle, items: Sequence[str], chosen: set[int], first: int) -> None:
    """Draw the items that fit into the box, starting with the index `first`.

    chosen: the indexes of the items to highlight.
    """
    size = style.size or _MAX_FONT_SIZE
    row = size * _LEADING
    with _open_box(canvas, style, size) as draw:
        for number, item in enumerate(items[first:]):
            bottom = style.height - _MARGIN - row * (number + 1)
            if bottom + row <= 0:
                break
            if number + first in chosen:
                fill_rectangle(canvas, _HIGHLIGHT, 1, bottom, style.width - 2, row)
            draw(style.anchor, bottom + _BASELINE * size, item)


def fill_rectangle(canvas: Any, colour: str, left: float, bottom: float, width: float, height: float) -> None:
    """Fill a rectangle. colour: PDF operators that set it."""
    canvas.saveState()
    canvas.addLiteral(colour)
    canvas.rect(left, bottom, width, height, stroke=0, fill=1)
    canvas.restoreState()


def _wrap_text(style: TextStyle, text: str, size: float) -> list[str]:
    lines: list[str] = []
    for line in text.splitlines() or [""]:
        current, *words = line.split(" ")
        for word in words:
            longer = f"{current} {word}"
            if current and style.measure(longer, size) > style.text_width:
                lines.append(current)
                current = word
            else:
                current = longer
        lines.append(current)
    return lines


@contextmanager
def _open_box(canvas: Any, style: TextStyle, size: float) -> Generator[Callable[[float, float, str], None]]:
    """Clip to the box and set the font and color. Yield a function that draws a line at an anchor."""
    aligned = {1: canvas.drawCentredString, 2: canvas.drawRightString}.get(style.alignment, canvas.drawString)

    def draw(x: float, y: float, line: str) -> None:
        line = "".join(max(character, " ") for character in line)
        if style.font == HELVETICA:
            line = line.encode("cp1252", "replace").decode("cp1252")
        aligned(x, y, line)

    canvas.saveState()
    inside = canvas.beginPath()
    inside.rect(1, 1, max(style.width - 2, 0), max(style.height - 2, 0))
    canvas.clipPath(inside, stroke=0, fill=0)
    canvas.setFont(style.font, size)
    canvas.addLiteral(style.colour.encode("ascii", "replace").decode())
    yield draw
    canvas.restoreState()
