"""The fonts that the service writes text with: Helvetica, which every viewer has, and embedded TrueType beyond it.

Helvetica covers Windows-1252, so Western European text. For other characters a font of this machine is embedded as
a subset: the first of `CANDIDATES` that has them all. Where there is none, `font_for` says so by giving None, and
its caller decides: a form's value must not be turned into question marks silently, a signature's picture may.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from pathlib import Path
from typing import Protocol

import pikepdf
from pikepdf import Array, Dictionary, Name

from directsuite.sandbox.signing.document import new_stream
from directsuite.sandbox.signing.truetype import TrueType

CANDIDATES = (
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

# Widths of Helvetica's glyphs in thousandths of the font size, for the bytes 32 to 255 of Windows-1252
# (Adobe's font metrics; 0 where the code is not used).
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


class Font(Protocol):
    """A font that text can be measured and written in."""

    def width(self, text: str, size: float) -> float:
        """How many points a line of text takes at this size."""
        ...

    def encoded(self, text: str) -> bytes:
        """The text as a PDF string for the Tj operator."""
        ...

    def resource(self, pdf: pikepdf.Pdf) -> pikepdf.Object:
        """The font's dictionary, made in `pdf`."""
        ...


class Helvetica:
    """Helvetica in Windows-1252; a character outside it becomes a question mark."""

    def width(self, text: str, size: float) -> float:
        """How many points a line of text takes at this size."""
        return sum(_HELVETICA_WIDTHS[code - 32] for code in self._codes(text)) * size / 1000

    def encoded(self, text: str) -> bytes:
        """The text as a PDF string for the Tj operator."""
        escaped = self._codes(text).replace(b"\\", b"\\\\").replace(b"(", b"\\(").replace(b")", b"\\)")
        return b"(" + escaped + b")"

    def resource(self, pdf: pikepdf.Pdf) -> pikepdf.Object:
        """The font's dictionary, made in `pdf`."""
        return pdf.make_indirect(
            Dictionary(Type=Name.Font, Subtype=Name.Type1, BaseFont=Name.Helvetica, Encoding=Name.WinAnsiEncoding)
        )

    @staticmethod
    def covers(text: str) -> bool:
        """Whether it has every character of the text."""
        return not any(0x80 <= ord(character) < 0xA0 for character in text) and text == text.encode(
            "cp1252", "ignore"
        ).decode("cp1252")

    @staticmethod
    def _codes(text: str) -> bytes:
        return bytes(max(code, 32) for code in text.encode("cp1252", "replace"))


class EmbeddedFont:
    """A TrueType font of which the glyphs for one text are embedded, numbered as in the font (Identity-H)."""

    def __init__(self, font: TrueType, text: str) -> None:
        self._font = font
        self._characters = {font.glyph(character): character for character in text}

    def width(self, text: str, size: float) -> float:
        """How many points a line of text takes at this size."""
        return sum(self._font.advance(self._font.glyph(character)) for character in text) * size / 1000

    def encoded(self, text: str) -> bytes:
        """The text as a PDF string for the Tj operator."""
        glyphs = [self._font.glyph(character) for character in text]
        return b"<" + struct.pack(f">{len(glyphs)}H", *glyphs).hex().encode() + b">"

    def resource(self, pdf: pikepdf.Pdf) -> pikepdf.Object:
        """The font's dictionary, made in `pdf`, with the subset and a map back to Unicode."""
        font = self._font
        name = Name("/DSBOXA+" + font.name)
        scale = 1000 / font.units_per_em
        program = font.subset(self._characters)
        descriptor = Dictionary(
            Type=Name.FontDescriptor,
            FontName=name,
            Flags=4,
            FontBBox=Array([round(bound * scale) for bound in font.bounds]),
            ItalicAngle=0,
            Ascent=round(font.ascent * scale),
            Descent=round(font.descent * scale),
            CapHeight=round(font.ascent * scale),
            StemV=80,
            FontFile2=new_stream(pdf, program, Length1=len(program)),
        )
        widths = [part for glyph in sorted(self._characters) for part in (glyph, Array([font.advance(glyph)]))]
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
                ToUnicode=new_stream(pdf, _unicode_map(self._characters)),
            )
        )


def font_for(text: str) -> Font | None:
    """A font that has every character of the text; None if this machine has none."""
    printable = "".join(character for character in text if character >= " ")
    if Helvetica.covers(printable):
        return Helvetica()
    for path in CANDIDATES:
        font = _load(path)
        if font is not None and font.covers(printable):
            return EmbeddedFont(font, printable)
    return None


@lru_cache(maxsize=len(CANDIDATES))
def _load(path: str) -> TrueType | None:
    try:
        return TrueType(Path(path))
    except (OSError, ValueError, KeyError, struct.error):
        return None


def _unicode_map(characters: dict[int, str]) -> bytes:
    lines = [f"<{glyph:04x}> <{text.encode('utf-16-be').hex()}>" for glyph, text in sorted(characters.items())]
    blocks = [lines[start : start + 100] for start in range(0, len(lines), 100)]  # the format's limit for a block
    mappings = "\n".join(f"{len(block)} beginbfchar\n" + "\n".join(block) + "\nendbfchar" for block in blocks)
    return (
        "/CIDInit /ProcSet findresource begin 12 dict begin begincmap\n"
        "/CMapName /Adobe-Identity-UCS def /CMapType 2 def\n"
        f"1 begincodespacerange\n<0000> <ffff>\nendcodespacerange\n{mappings}\n"
        "endcmap CMapName currentdict /CMap defineresource pop end end\n"
    ).encode()
