"""The text of HTML, for people who read mail at a terminal."""

from __future__ import annotations

import re

import attrs
from justhtml import stream

_UNSEEN = frozenset(("script", "style", "title"))
_FOREIGN = frozenset(("svg", "math"))
_LINES = frozenset(
    (
        *("address", "article", "aside", "blockquote", "caption", "center", "dd", "details", "dialog", "dir", "div"),
        *("dl", "dt", "fieldset", "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6"),
        *("header", "legend", "li", "main", "menu", "nav", "ol", "optgroup", "p", "pre", "section", "summary"),
        *("table", "template", "textarea", "tr", "ul"),
    )
)
_BREAKS = frozenset(("br", "hr"))
_APART = frozenset(("audio", "button", "canvas", "iframe", "img", "object", "option", "select", "td", "th", "video"))
_AS_IT_STANDS = frozenset(("pre", "textarea"))
_STRUCK = frozenset(("del", "s", "strike"))
_STRUCK_BEGINS, _STRUCK_ENDS = "[DEL: ", " :DEL]"  # as w3m has them
_CDATA = "[CDATA["
_END, _BLANK = "\v", "\x1f"  # of a line, and one that stays where it is
_BLANKS = re.compile(r"[ \t\r\n\f\xa0]+")
_ENDLESS_TITLE = re.compile(r"<title(?=[\s/>])[^<>]*+>(?=[^<]*+(?:\Z|<(?!/title\b)))", re.IGNORECASE)
_NOSCRIPT = re.compile(r"(?<=<)(/?)noscript(?=[\s/>])", re.IGNORECASE)
_COMMENT_ENDS = re.compile("--!?>")
_MARK = "</--!>"  # which is nothing: the one way to end a comment, near the other


def text_of(html: str) -> str:
    """What a browser would show, without form: blocks are lines, and a link's address stands behind it.

    Where programs differ the text is there: that of templates and CDATA sections, of pictures that aren't loaded, what
    is for readers without scripts, and what follows a title that has no end. Struck text is marked as that.
    """
    reader = _Reader()
    html = _NOSCRIPT.sub(r"\1no-script", _ENDLESS_TITLE.sub("", html))
    html = _COMMENT_ENDS.sub(f"-->{_MARK}", html)  # else it looks through all the rest for the other, at each comment
    # Of tags and not of a tree, which can be made the square of its HTML: each paragraph in it has all open formats.
    for event in stream(html):
        if event[0] == "start":
            reader.begin(*event[1])
        elif event[0] == "end":
            reader.end(event[1])
        elif event[0] == "text":
            reader.text(event[1])
        elif event[0] == "comment":
            reader.text(_of_cdata(event[1]))
    lines = [_BLANKS.sub(" ", line).strip(" ").replace(_BLANK, " ") for line in reader.read().split(_END)]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(line.rstrip() for line in lines)).strip("\n")


@attrs.define
class _Fraction:
    """A fraction that is open. parts: those that began. depth: of the elements in it that are open."""

    parts: int = 0
    depth: int = 0


@attrs.define
class _Reader:
    """Collects text, tag by tag. A sender may leave open, or end, what they like."""

    _pieces: list[str] = attrs.field(factory=list[str], init=False)
    _held: list[str] = attrs.field(factory=list[str], init=False)  # what is unseen if its element ends behind it
    _unseen: str | None = attrs.field(default=None, init=False)
    _address: str | None = attrs.field(default=None, init=False)
    _foreign: int = attrs.field(default=0, init=False)
    _standing: int = attrs.field(default=0, init=False)
    _struck: int = attrs.field(default=0, init=False)
    _fractions: list[_Fraction] = attrs.field(factory=list[_Fraction], init=False)

    def begin(self, name: str, attributes: dict[str, str | None]) -> None:
        """An element begins."""
        self._show_held()
        if name in _UNSEEN and not (name == "title" and self._foreign):  # an SVG's title is a part of its picture
            self._unseen = name
        self._foreign += name in _FOREIGN
        self._standing += name in _AS_IT_STANDS
        self._begin_part(name)
        if name in _LINES or name in _BREAKS:
            self._pieces.append(_END)
        elif name in _APART:
            self._pieces.append(f" {_flowing(attributes.get('alt') or '')} ")
        elif name == "input":
            self._pieces.append(f" {_flowing(_of_input(attributes))} ")
        elif name == "sup":
            self._pieces.append("^")  # 10 to the power of 9 isn't 109
        elif name in _STRUCK:
            self._struck += 1
            self._pieces.append(_STRUCK_BEGINS)
        elif name == "a":
            self._end_link()  # there are no links in links
            self._address = attributes.get("href")

    def end(self, name: str) -> None:
        """An element ends."""
        if name == self._unseen:
            self._held.clear()
        self._show_held()
        self._foreign -= name in _FOREIGN and self._foreign > 0
        self._standing -= name in _AS_IT_STANDS and self._standing > 0
        self._end_part(name)
        if name in _LINES or name == "br":
            self._pieces.append(_END)
        elif name in _APART:
            self._pieces.append(" ")
        elif name in _STRUCK and self._struck:
            self._struck -= 1
            self._pieces.append(_STRUCK_ENDS)
        elif name == "a":
            self._end_link()

    def text(self, text: str) -> None:
        """Text, as it is written."""
        shown = _standing(text) if self._standing else _flowing(text)
        (self._pieces if self._unseen is None else self._held).append(shown)

    def read(self) -> str:
        """Return the whole text once the HTML is read."""
        if self._foreign:
            self._show_held()
        self._end_link()
        return "".join((*self._pieces, _STRUCK_ENDS * self._struck))

    def _show_held(self) -> None:
        """An element whose end isn't the next tag is none of those whose text is unseen: `<style/>` in an SVG."""
        self._pieces += self._held
        self._held.clear()
        self._unseen = None

    def _end_link(self) -> None:
        if self._address:
            self._pieces.append(f" <{_flowing(self._address)}>")
        self._address = None

    def _begin_part(self, name: str) -> None:
        if self._fractions:
            fraction = self._fractions[-1]
            if not fraction.depth:
                fraction.parts += 1
                self._pieces.append("/" if fraction.parts == 2 else "")  # a half isn't 12
            fraction.depth += 1
            self._pieces.append("(" if name in ("mrow", "mfrac") else "")
        if name == "mfrac":
            self._fractions.append(_Fraction())

    def _end_part(self, name: str) -> None:
        if name == "mfrac" and self._fractions:
            self._fractions.pop()
        if self._fractions:
            fraction = self._fractions[-1]
            self._pieces.append(")" if name in ("mrow", "mfrac") and fraction.depth else "")
            fraction.depth = max(0, fraction.depth - 1)


def _of_input(attributes: dict[str, str | None]) -> str:
    match (attributes.get("type") or "").lower():
        case "hidden" | "password":
            return ""
        case "checkbox" | "radio":
            return "[x]" if "checked" in attributes else "[ ]"
        case _:
            return attributes.get("value") or attributes.get("alt") or ""


def _of_cdata(comment: str) -> str:
    """What stands in a CDATA section, which to a browser is a comment up to the next `>`; nothing of others."""
    if not comment.startswith(_CDATA):
        return ""
    text = comment.removeprefix(_CDATA)
    return text.removesuffix("]]") if text.endswith("]]") else f"{text}>"


def _flowing(text: str) -> str:
    return text.replace(_MARK, "").replace(_END, " ").replace(_BLANK, " ")


def _standing(text: str) -> str:
    return _flowing(text).expandtabs().replace("\n", _END).replace(" ", _BLANK)
