"""Write text as PDF content: the fonts, and the layout of lines in a box.

Helvetica, which every viewer has, covers Windows-1252. For other characters, a subset of a TrueType font of this
machine is embedded: the first of FONT_PATHS that has all characters. If none has, `find_font` returns None. Then
question marks are acceptable in a signature's appearance, but not in the value of a form field.
"""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import pikepdf
from pikepdf import Array, Dictionary, Name

from directsuite.sandbox.signing.document import make_stream

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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

# Helvetica's glyph widths in thousandths of the font size, for bytes 32 to 255 of Windows-1252; 0 if unused.
_HELVETICA_WIDTHS = (
    278, 278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333, 278, 278, 556, 556, 556, 556, 556, 556,
    556, 556, 556, 556, 278, 278, 584, 584, 584, 556, 1015, 667, 667, 722, 722, 667, 611, 778, 722, 278, 500, 667,
    556, 833, 722, 778, 667, 778, 722, 667, 611, 722, 667, 944, 667, 667, 611, 278, 278, 278, 469, 556, 333, 556,
    556, 500, 556, 556, 278, 556, 556, 222, 222, 500, 222, 833, 556, 556, 556, 556, 333, 500, 278, 556, 500, 722,
    500, 500, 500, 334, 260, 334, 584, 761, 556, 0, 222, 556, 333, 1000, 556, 556, 333, 1000, 667, 333, 1000, 0,
    611, 0, 0, 222, 222, 333, 333, 350, 556, 1000, 333, 1000, 500, 333, 944, 0, 500, 667, 278, 333, 556, 556, 556,
    556, 260, 556, 333, 737, 370, 556, 584, 333, 737, 333, 400, 584, 333, 333, 333, 556, 537, 278, 333, 333, 365,
    556, 834, 834, 834, 611, 667, 667, 667, 667, 667, 667, 1000, 722, 667, 667, 667, 667, 278, 278, 278, 278, 722,
    722, 778, 778, 778, 778, 778, 584, 778, 722, 722, 722, 722, 667, 667, 611, 556, 556, 556, 556, 556, 556, 889,
    500, 556, 556, 556, 556, 278, 278, 278, 278, 556, 556, 556, 556, 556, 556, 556, 584, 611, 556, 556, 556, 556,
    500, 556, 500,
)  # fmt: skip

_EMBEDDED_TABLES = {"GlyphOrder", "cvt ", "fpgm", "glyf", "head", "hhea", "hmtx", "loca", "maxp", "prep"}
_MARGIN = 2.0  # points between a box and its text
_LEADING = 1.15  # between baselines, in font sizes
_MIN_FONT_SIZE, _MAX_FONT_SIZE = 4.0, 12.0  # for automatic sizes
_BASELINE = 0.22  # above the bottom of a row, in font sizes
_CAP_HEIGHT = 0.72  # of Helvetica and similar fonts, in font sizes
_HIGHLIGHT = b"0.6 0.75686 0.8549 rg"  # the usual background of selected items


class Helvetica:
    """Helvetica in Windows-1252. Other characters are written as question marks."""

    def measure_width(self, text: str, size: float) -> float:
        """Return the width of a line of text in points."""
        return sum(_HELVETICA_WIDTHS[code - 32] for code in self._encode_bytes(text)) * size / 1000

    def encode(self, text: str) -> bytes:
        """Return the text as a PDF string for the Tj operator."""
        escaped = self._encode_bytes(text).replace(b"\\", b"\\\\").replace(b"(", b"\\(").replace(b")", b"\\)")
        return b"(" + escaped + b")"

    def make_resource(self, pdf: pikepdf.Pdf) -> pikepdf.Object:
        """Create the font's dictionary in `pdf`."""
        return pdf.make_indirect(
            Dictionary(Type=Name.Font, Subtype=Name.Type1, BaseFont=Name.Helvetica, Encoding=Name.WinAnsiEncoding)
        )

    @staticmethod
    def _encode_bytes(text: str) -> bytes:
        return bytes(max(code, 32) for code in text.encode("cp1252", "replace"))


class EmbeddedFont:
    """The glyphs of a TrueType font for one text, embedded with their original numbers (Identity-H).

    May raise any exception if the font file is damaged.
    """

    def __init__(self, font: _TrueType, text: str) -> None:
        self._font = font
        self._characters = {font.glyphs[ord(character)]: character for character in text}
        self._program = _make_subset(font, set(self._characters))

    def measure_width(self, text: str, size: float) -> float:
        """Return the width of a line of text in points."""
        return sum(self._font.advances[glyph] for glyph in self._list_glyphs(text)) * size / 1000

    def encode(self, text: str) -> bytes:
        """Return the text as a PDF string for the Tj operator."""
        glyphs = self._list_glyphs(text)
        return b"<" + struct.pack(f">{len(glyphs)}H", *glyphs).hex().encode() + b">"

    def make_resource(self, pdf: pikepdf.Pdf) -> pikepdf.Object:
        """Create the font's dictionary in `pdf`, with its glyphs and a map to Unicode."""
        font = self._font
        name = Name("/DSBOXA+" + font.name)
        descriptor = Dictionary(
            Type=Name.FontDescriptor,
            FontName=name,
            Flags=4,
            FontBBox=Array(list(font.bounds)),
            ItalicAngle=0,
            Ascent=font.ascent,
            Descent=font.descent,
            CapHeight=font.ascent,
            StemV=80,
            FontFile2=make_stream(pdf, self._program, Length1=len(self._program)),
        )
        widths = [part for glyph in sorted(self._characters) for part in (glyph, Array([font.advances[glyph]]))]
        descendant = Dictionary(
            Type=Name.Font,
            Subtype=Name.CIDFontType2,
            BaseFont=name,
            CIDSystemInfo=Dictionary(Registry=b"Adobe", Ordering=b"Identity", Supplement=0),
            FontDescriptor=pdf.make_indirect(descriptor),
            W=Array(widths),
            CIDToGIDMap=Name.Identity,
        )
        return pdf.make_indirect(
            Dictionary(
                Type=Name.Font,
                Subtype=Name.Type0,
                BaseFont=name,
                Encoding=Name("/Identity-H"),
                DescendantFonts=Array([pdf.make_indirect(descendant)]),
                ToUnicode=make_stream(pdf, _build_unicode_map(self._characters)),
            )
        )

    def _list_glyphs(self, text: str) -> list[int]:
        return [self._font.glyphs.get(ord(character), 0) for character in text]


Font: TypeAlias = Helvetica | EmbeddedFont


def find_font(text: str) -> Font | None:
    """Return a font with every printable character of the text, or None if this machine has none."""
    printable = "".join(character for character in text if character >= " ")
    has_controls = any(0x80 <= ord(character) < 0xA0 for character in printable)
    if not has_controls and printable == printable.encode("cp1252", "ignore").decode("cp1252"):
        return Helvetica()
    return next((font for font in (_embed_font(path, printable) for path in FONT_PATHS) if font is not None), None)


@dataclass(frozen=True, slots=True)
class TextStyle:
    """The size of a box, and the style of its text."""

    font: Font
    size: float
    """In points, or 0 for an automatic size."""
    colour: str
    """PDF operators that set it."""
    alignment: int
    """0 left, 1 centered, 2 right."""
    width: float
    height: float


def draw_line(style: TextStyle, text: str) -> bytes:
    """Return PDF content with one vertically centered line. Line breaks become spaces."""
    line = " ".join(text.splitlines())
    natural = style.font.measure_width(line, 1.0)
    fitting = (style.width - 2 * _MARGIN) / natural if natural else _MAX_FONT_SIZE
    size = style.size or max(_MIN_FONT_SIZE, min(_MAX_FONT_SIZE, style.height * 0.7, fitting))
    middle = style.height / 2 - (_CAP_HEIGHT / 2) * size
    return _clip(style, _write_lines(style, size, [(_compute_start(style, size, line), middle, line)]))


def draw_paragraph(style: TextStyle, text: str) -> bytes:
    """Return PDF content with lines from the top of the box, wrapped between words. Excess lines are clipped."""
    size = style.size or next(
        (float(size) for size in range(int(_MAX_FONT_SIZE), int(_MIN_FONT_SIZE), -1) if _can_fit(style, text, size)),
        _MIN_FONT_SIZE,
    )
    top = style.height - _MARGIN - size
    lines = _wrap_text(style.font, text, size, style.width - 2 * _MARGIN)
    placed = [
        (_compute_start(style, size, line), top - number * size * _LEADING, line) for number, line in enumerate(lines)
    ]
    return _clip(style, _write_lines(style, size, placed))


def draw_comb(style: TextStyle, text: str, cells: int) -> bytes:
    """Return PDF content with one character in the center of each of `cells` equal cells. The excess is left out."""
    size = style.size or min(_MAX_FONT_SIZE, max(_MIN_FONT_SIZE, style.height * 0.7))
    cell = style.width / cells
    middle = style.height / 2 - (_CAP_HEIGHT / 2) * size
    placed = [
        (cell * number + (cell - style.font.measure_width(character, size)) / 2, middle, character)
        for number, character in enumerate(text[:cells])
    ]
    return _clip(style, _write_lines(style, size, placed))


def draw_item_list(style: TextStyle, items: Sequence[str], chosen: set[int], first: int) -> bytes:
    """Return PDF content with the items that fit into the box, starting with the index `first`.

    chosen: the indexes of the items to highlight.
    """
    size = style.size or _MAX_FONT_SIZE
    row = size * _LEADING
    content = b""
    placed: list[tuple[float, float, str]] = []
    for number, item in enumerate(items[first:]):
        bottom = style.height - _MARGIN - row * (number + 1)
        if bottom + row <= 0:
            break
        if number + first in chosen:
            content += b"q %s %.3f %.3f %.3f %.3f re f Q\n" % (_HIGHLIGHT, 1, bottom, style.width - 2, row)
        placed.append((_compute_start(style, size, item), bottom + _BASELINE * size, item))
    return _clip(style, content + _write_lines(style, size, placed))


def _wrap_text(font: Font, text: str, size: float, width: float) -> list[str]:
    lines: list[str] = []
    space = font.measure_width(" ", 1000)
    for line in text.splitlines() or [""]:
        words, units = list[str](), 0.0  # integers, so that sums are exact
        for word in line.split(" "):
            added = font.measure_width(word, 1000)
            if words and (units + space + added) * size / 1000 > width:
                lines.append(" ".join(words))
                words, units = [], 0.0
            if words or word:
                units += added + (space if words else 0.0)
                words.append(word)
        lines.append(" ".join(words))
    return lines


def _can_fit(style: TextStyle, text: str, size: float) -> bool:
    lines = _wrap_text(style.font, text, size, style.width - 2 * _MARGIN)
    wide_enough = all(style.font.measure_width(line, size) <= style.width - 2 * _MARGIN for line in lines)
    return wide_enough and len(lines) * size * _LEADING <= style.height - 2 * _MARGIN


def _compute_start(style: TextStyle, size: float, line: str) -> float:
    room = style.width - style.font.measure_width(line, size)
    return {1: room / 2, 2: room - _MARGIN}.get(style.alignment, _MARGIN)


def _write_lines(style: TextStyle, size: float, placed: Sequence[tuple[float, float, str]]) -> bytes:
    lines = b"".join(b"1 0 0 1 %.3f %.3f Tm %s Tj\n" % (x, y, style.font.encode(line)) for x, y, line in placed)
    return b"BT\n%s\n/Text %.3f Tf\n%sET\n" % (style.colour.encode("latin-1", "replace"), size, lines)


def _clip(style: TextStyle, content: bytes) -> bytes:
    return b"q\n1 1 %.3f %.3f re W n\n%sQ\n" % (max(style.width - 2, 0), max(style.height - 2, 0), content)


class _TrueType(NamedTuple):
    name: str
    content: bytes
    glyphs: Mapping[int, int]
    """Glyph numbers by code point."""
    advances: Sequence[int]
    """Widths by glyph number."""
    bounds: tuple[int, int, int, int]
    ascent: int
    descent: int


def _embed_font(path: str, text: str) -> EmbeddedFont | None:
    try:
        font = _read_font(path)
        return EmbeddedFont(font, text) if all(ord(character) in font.glyphs for character in text) else None
    except (ImportError, MemoryError):
        raise
    except Exception:  # noqa: BLE001  fontTools may raise any exception for a damaged file
        return None


@lru_cache(maxsize=len(FONT_PATHS))
def _read_font(path: str) -> _TrueType:
    content = Path(path).read_bytes()
    font = _open_font(content)
    if "glyf" not in font:
        raise ValueError("the font has no TrueType outlines")
    head = font["head"]
    units_per_em: int = head.unitsPerEm

    def scale(units: int) -> int:
        return round(units * 1000 / units_per_em)

    return _TrueType(
        name="".join(character for character in Path(path).stem if character.isalnum()) or "Font",
        content=content,
        glyphs={code: int(name) for code, name in font.getBestCmap().items() if int(name) != 0},
        advances=[scale(font["hmtx"][name][0]) for name in font.getGlyphOrder()],
        bounds=(scale(head.xMin), scale(head.yMin), scale(head.xMax), scale(head.yMax)),
        ascent=scale(font["hhea"].ascent),
        descent=scale(font["hhea"].descent),
    )


def _open_font(content: bytes) -> Any:
    """Open a font with numbers as glyph names, because its own names may be missing or wrong."""
    tables: Any = import_module("fontTools.ttLib")  # imported only if a text needs it
    font = tables.TTFont(io.BytesIO(content), lazy=True, recalcBBoxes=False, recalcTimestamp=False)
    font.setGlyphOrder([str(number) for number in range(font["maxp"].numGlyphs)])
    return font


def _make_subset(font: _TrueType, glyphs: set[int]) -> bytes:
    """Return a font file with only these glyphs, numbered as before.

    fontTools.subset is slow to import, and logs the text.
    """
    opened = _open_font(font.content)
    outlines = opened["glyf"]
    needed = set[str]()
    waiting = ["0", *map(str, glyphs)]
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed.add(name)
            waiting += outlines[name].getComponentNames(outlines)
    empty: Any = import_module("fontTools.ttLib.tables._g_l_y_f").Glyph()
    for name in set(opened.getGlyphOrder()) - needed:
        outlines[name] = empty
    for tag in set(opened.keys()) - _EMBEDDED_TABLES:
        del opened[tag]
    output = io.BytesIO()
    opened.save(output)
    return output.getvalue()


def _build_unicode_map(characters: dict[int, str]) -> bytes:
    lines = [f"<{glyph:04x}> <{text.encode('utf-16-be').hex()}>" for glyph, text in sorted(characters.items())]
    blocks = [lines[start : start + 100] for start in range(0, len(lines), 100)]  # the maximum of the format
    mappings = "\n".join(f"{len(block)} beginbfchar\n" + "\n".join(block) + "\nendbfchar" for block in blocks)
    return (
        "/CIDInit /ProcSet findresource begin 12 dict begin begincmap\n"
        "/CMapName /Adobe-Identity-UCS def /CMapType 2 def\n"
        f"1 begincodespacerange\n<0000> <ffff>\nendcodespacerange\n{mappings}\n"
        "endcmap CMapName currentdict /CMap defineresource pop end end\n"
    ).encode()
