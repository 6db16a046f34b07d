"""TrueType fonts: which characters one covers, how wide they are, and a subset of it to embed in a PDF.

Only what embedding needs is read (OpenType 1.9: head, hhea, hmtx, maxp, cmap formats 4 and 12, loca, glyf).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_EMBEDDED_TABLES = ("cvt ", "fpgm", "glyf", "head", "hhea", "hmtx", "loca", "maxp", "prep")

# Composite glyph flags: which optional parts follow a component, and whether another component does.
_ARGUMENTS_ARE_WORDS, _HAS_SCALE, _MORE_COMPONENTS, _HAS_XY_SCALE, _HAS_TWO_BY_TWO = 0x1, 0x8, 0x20, 0x40, 0x80


class TrueType:
    """A TrueType font file. Raises ValueError, struct.error or KeyError for a file that is none."""

    def __init__(self, path: Path) -> None:
        self._tables = read_tables(path.read_bytes())
        self.name = "".join(character for character in path.stem if character.isalnum()) or "Font"
        head = self._tables["head"]
        self.units_per_em: int = struct.unpack_from(">H", head, 18)[0]
        self.bounds: tuple[int, int, int, int] = struct.unpack_from(">4h", head, 36)
        self._long_offsets = struct.unpack_from(">h", head, 50)[0] == 1
        self.ascent, self.descent = struct.unpack_from(">2h", self._tables["hhea"], 4)
        self._metrics = struct.unpack_from(">H", self._tables["hhea"], 34)[0]
        self._glyph_count: int = struct.unpack_from(">H", self._tables["maxp"], 4)[0]
        self._glyphs = _character_map(self._tables["cmap"])
        if "glyf" not in self._tables:
            raise ValueError("the font has no TrueType outlines")

    def glyph(self, character: str) -> int:
        """The number of a character's glyph; 0 if the font does not have it."""
        return self._glyphs.get(ord(character), 0)

    def covers(self, text: str) -> bool:
        """Whether the font has every character of the text."""
        return all(self.glyph(character) for character in text)

    def advance(self, glyph: int) -> int:
        """The width of a glyph in thousandths of the font size."""
        position = min(glyph, self._metrics - 1)
        units: int = struct.unpack_from(">H", self._tables["hmtx"], 4 * position)[0]
        return round(units * 1000 / self.units_per_em)

    def subset(self, glyphs: Iterable[int]) -> bytes:
        """A font file with the outlines of these glyphs alone, which keep their numbers."""
        needed = self._with_components(glyphs)
        outlines, offsets = bytearray(), [0]
        for glyph in range(self._glyph_count):
            if glyph in needed:
                outline = self._outline(glyph)
                outlines += outline + bytes(-len(outline) % 4)
            offsets.append(len(outlines))
        head = bytearray(self._tables["head"])
        struct.pack_into(">h", head, 50, 1)
        tables = {tag: self._tables[tag] for tag in _EMBEDDED_TABLES if tag in self._tables}
        tables |= {"head": bytes(head), "glyf": bytes(outlines), "loca": struct.pack(f">{len(offsets)}I", *offsets)}
        return font_file(tables)

    def _outline(self, glyph: int) -> bytes:
        table = self._tables["loca"]
        if self._long_offsets:
            start, end = struct.unpack_from(">2I", table, 4 * glyph)
        else:
            start, end = (2 * offset for offset in struct.unpack_from(">2H", table, 2 * glyph))
        return self._tables["glyf"][start:end]

    def _with_components(self, glyphs: Iterable[int]) -> set[int]:
        needed: set[int] = set()
        waiting = [0, *glyphs]
        while waiting:
            glyph = waiting.pop()
            if glyph not in needed and glyph < self._glyph_count:
                needed.add(glyph)
                waiting += _components(self._outline(glyph))
        return needed


def read_tables(file: bytes) -> dict[str, bytes]:
    """The tables of a font file by their tags."""
    tables: dict[str, bytes] = {}
    for position in range(struct.unpack_from(">H", file, 4)[0]):
        tag, _, offset, length = struct.unpack_from(">4sIII", file, 12 + 16 * position)
        tables[tag.decode("latin-1")] = file[offset : offset + length]
    return tables


def _components(outline: bytes) -> list[int]:
    """The glyphs that a composite glyph is put together from."""
    if len(outline) < 10 or struct.unpack_from(">h", outline)[0] >= 0:
        return []
    found: list[int] = []
    position, flags = 10, _MORE_COMPONENTS
    while flags & _MORE_COMPONENTS:
        flags, glyph = struct.unpack_from(">2H", outline, position)
        found.append(glyph)
        position += 8 if flags & _ARGUMENTS_ARE_WORDS else 6
        position += 2 * bool(flags & _HAS_SCALE) + 4 * bool(flags & _HAS_XY_SCALE) + 8 * bool(flags & _HAS_TWO_BY_TWO)
    return found


def _character_map(table: bytes) -> dict[int, int]:
    """Unicode code points to glyph numbers, from the widest Unicode subtable."""
    subtables: dict[int, int] = {}
    for position in range(struct.unpack_from(">H", table, 2)[0]):
        platform, encoding, offset = struct.unpack_from(">HHI", table, 4 + 8 * position)
        if platform == 0 or (platform == 3 and encoding in (1, 10)):
            subtables[struct.unpack_from(">H", table, offset)[0]] = offset
    if 12 in subtables:
        return _segments_of_32_bits(table, subtables[12])
    if 4 in subtables:
        return _segments_of_16_bits(table, subtables[4])
    raise ValueError("the font has no Unicode character map")


def _segments_of_32_bits(table: bytes, offset: int) -> dict[int, int]:
    glyphs: dict[int, int] = {}
    for group in range(struct.unpack_from(">I", table, offset + 12)[0]):
        first, last, glyph = struct.unpack_from(">3I", table, offset + 16 + 12 * group)
        glyphs.update((code, glyph + code - first) for code in range(first, last + 1))
    return glyphs


def _segments_of_16_bits(table: bytes, offset: int) -> dict[int, int]:
    count = struct.unpack_from(">H", table, offset + 6)[0] // 2
    ends = offset + 14
    starts, deltas, ranges = (ends + 2 + 2 * count * number for number in (1, 2, 3))
    glyphs: dict[int, int] = {}
    for segment in range(count):
        last, first, delta, shift = (
            struct.unpack_from(">H", table, where + 2 * segment)[0] for where in (ends, starts, deltas, ranges)
        )
        for code in range(first, min(last, 0xFFFE) + 1):
            glyph = code
            if shift:
                glyph = struct.unpack_from(">H", table, ranges + 2 * segment + shift + 2 * (code - first))[0]
            if glyph or not shift:
                glyphs[code] = (glyph + delta) & 0xFFFF
    return glyphs


def font_file(tables: dict[str, bytes]) -> bytes:
    """A font file of these tables."""
    power = 1 << (len(tables).bit_length() - 1)
    header = struct.pack(
        ">IHHHH", 0x00010000, len(tables), 16 * power, power.bit_length() - 1, 16 * (len(tables) - power)
    )
    directory, body = bytearray(), bytearray()
    start = len(header) + 16 * len(tables)
    for tag, table in sorted(tables.items()):
        padded = table + bytes(-len(table) % 4)
        checksum = sum(struct.unpack(f">{len(padded) // 4}I", padded)) & 0xFFFFFFFF
        directory += struct.pack(">4sIII", tag.encode("latin-1"), checksum, start + len(body), len(table))
        body += padded
    return header + bytes(directory) + bytes(body)
