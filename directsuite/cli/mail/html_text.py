"""The text of HTML, for people who read mail at a terminal."""

from __future__ import annotations

import re
from html.parser import HTMLParser

_UNSEEN = frozenset(("script", "style", "head", "title", "template"))
_LINES = frozenset(
    ("br", "p", "div", "tr", "li", "ul", "ol", "table", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "blockquote", "pre")
)
_VOID = frozenset(("br", "hr"))  # whose end is told, too, where they are written as in XML
_BLANKS = re.compile(r"[ \t\r\n\f\xa0]+")


def text_of(html: str) -> str:
    """What a browser would show, without form: blocks are lines, and a link's address stands behind it."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    lines = [_BLANKS.sub(" ", line).strip() for line in "".join(reader.pieces).split("\v")]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip("\n")


class _Reader(HTMLParser):
    """Collects text. A vertical tab, which is no blank here, stands for the end of a line."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces = list[str]()
        self._unseen = 0
        self._links = list[str | None]()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _UNSEEN:
            self._unseen += 1
        elif tag in _LINES:
            self.pieces.append("\v")
        elif tag in ("td", "th"):
            self.pieces.append(" ")
        elif tag == "a":
            self._links.append(dict(attrs).get("href"))

    def handle_endtag(self, tag: str) -> None:
        if tag in _UNSEEN:
            self._unseen = max(0, self._unseen - 1)
        elif tag in _LINES and tag not in _VOID:
            self.pieces.append("\v")
        elif tag == "a" and self._links and (address := self._links.pop()):
            self.pieces.append(f" <{address}>")

    def handle_data(self, data: str) -> None:
        if not self._unseen:
            self.pieces.append(data.replace("\v", " "))
