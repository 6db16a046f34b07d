"""Conversion of HTML mail to plain text for a terminal."""

from __future__ import annotations

import re

import attrs
from justhtml import stream

_HIDDEN_ELEMENTS = frozenset(("script", "style", "title"))
_FOREIGN_ELEMENTS = frozenset(("svg", "math"))
_BLOCK_ELEMENTS = frozenset(
    (
        *("address", "article", "aside", "blockquote", "caption", "center", "dd", "details", "dialog", "dir", "div"),
        *("dl", "dt", "fieldset", "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6"),
        *("header", "legend", "li", "main", "menu", "nav", "ol", "optgroup", "p", "pre", "section", "summary"),
        *("table", "template", "textarea", "tr", "ul"),
    )
)
_BREAK_ELEMENTS = frozenset(("br", "hr"))
_SPACED_ELEMENTS = frozenset(
    (
        *("audio", "button", "canvas", "iframe", "img", "object", "option", "select", "td", "th", "video"),
        *("mi", "mn", "mo"),  # of MathML: without spaces, a fraction 1/2 would become 12
    )
)
_PREFORMATTED_ELEMENTS = frozenset(("pre", "textarea"))
_STRIKETHROUGH_ELEMENTS = frozenset(("del", "s", "strike"))
_DEL_OPEN, _DEL_CLOSE = "[DEL: ", " :DEL]"  # the markers of w3m
_CDATA_PREFIX = "[CDATA["
_LINE_END, _HARD_SPACE = "\v", "\x1f"  # placeholders for a line break and a space to keep
_WHITESPACE = re.compile(r"[ \t\r\n\f\xa0]+")
_UNCLOSED_TITLE = re.compile(r"<title(?=[\s/>])[^<>]*+>(?=[^<]*+(?:\Z|<(?!/title\b)))", re.IGNORECASE)
_NOSCRIPT = re.compile(r"(?<=<)(/?)noscript(?=[\s/>])", re.IGNORECASE)
_COMMENT_END = re.compile("--!?>")
_COMMENT_END_MARKER = "</--!>"  # HTML without effect that contains the rarer end of a comment, `--!>`


def html_to_text(html: str) -> str:
    """Return the text that a browser would show. Blocks become lines, and a link's URL follows its text.

    Text that only some programs show is included: that of templates, CDATA sections, images and `noscript`, and the
    text after an unclosed title. Struck-through text is marked.
    """
    reader = _TextReader()
    html = _NOSCRIPT.sub(r"\1no-script", _UNCLOSED_TITLE.sub("", html))
    # For each comment, justhtml searches for both ends. With both nearby, it doesn't search the rest of the document.
    html = _COMMENT_END.sub(f"-->{_COMMENT_END_MARKER}", html)
    # Events instead of a tree, because a tree repeats all open formats in each paragraph: its size can be quadratic.
    for event in stream(html):
        if event[0] == "start":
            reader.begin_element(*event[1])
        elif event[0] == "end":
            reader.end_element(event[1])
        elif event[0] == "text":
            reader.add_text(event[1])
        elif event[0] == "comment":
            reader.add_text(_get_cdata_text(event[1]))
    lines = [
        _WHITESPACE.sub(" ", line).strip(" ").replace(_HARD_SPACE, " ") for line in reader.get_text().split(_LINE_END)
    ]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(line.rstrip() for line in lines)).strip("\n")


@attrs.define
class _TextReader:
    _pieces: list[str] = attrs.field(factory=list[str], init=False)
    _pending_pieces: list[str] = attrs.field(factory=list[str], init=False)
    """Text of a hidden element: dropped if the next tag ends the element, else shown."""
    _hidden_element: str | None = attrs.field(default=None, init=False)
    _link_url: str | None = attrs.field(default=None, init=False)
    _foreign_depth: int = attrs.field(default=0, init=False)
    _preformatted_depth: int = attrs.field(default=0, init=False)
    _strikethrough_depth: int = attrs.field(default=0, init=False)

    def begin_element(self, name: str, attributes: dict[str, str | None]) -> None:
        self._show_pending()
        # An SVG's title is part of its picture.
        if name in _HIDDEN_ELEMENTS and not (name == "title" and self._foreign_depth):
            self._hidden_element = name
        self._foreign_depth += name in _FOREIGN_ELEMENTS
        self._preformatted_depth += name in _PREFORMATTED_ELEMENTS
        if name in _BLOCK_ELEMENTS or name in _BREAK_ELEMENTS:
            self._pieces.append(_LINE_END)
        elif name in _SPACED_ELEMENTS:
            self._pieces.append(f" {_collapse_control_chars(attributes.get('alt') or '')} ")
        elif name == "input":
            self._pieces.append(f" {_collapse_control_chars(_get_input_text(attributes))} ")
        elif name == "sup":
            self._pieces.append("^")  # otherwise 10 to the power of 9 would become 109
        elif name in _STRIKETHROUGH_ELEMENTS:
            self._strikethrough_depth += 1
            self._pieces.append(_DEL_OPEN)
        elif name == "a":
            self._end_link()  # links can't be nested
            self._link_url = attributes.get("href")

    def end_element(self, name: str) -> None:
        if name == self._hidden_element:
            self._pending_pieces.clear()
        self._show_pending()
        self._foreign_depth -= name in _FOREIGN_ELEMENTS and self._foreign_depth > 0
        self._preformatted_depth -= name in _PREFORMATTED_ELEMENTS and self._preformatted_depth > 0
        if name in _BLOCK_ELEMENTS or name == "br":
            self._pieces.append(_LINE_END)
        elif name in _SPACED_ELEMENTS:
            self._pieces.append(" ")
        elif name in _STRIKETHROUGH_ELEMENTS and self._strikethrough_depth:
            self._strikethrough_depth -= 1
            self._pieces.append(_DEL_CLOSE)
        elif name == "a":
            self._end_link()

    def add_text(self, text: str) -> None:
        shown = _preserve_whitespace(text) if self._preformatted_depth else _collapse_control_chars(text)
        (self._pieces if self._hidden_element is None else self._pending_pieces).append(shown)

    def get_text(self) -> str:
        if self._foreign_depth:
            self._show_pending()
        self._end_link()
        return "".join((*self._pieces, _DEL_CLOSE * self._strikethrough_depth))

    def _show_pending(self) -> None:
        # If the end tag doesn't follow immediately, the element doesn't hide its text, as `<style/>` in an SVG.
        self._pieces += self._pending_pieces
        self._pending_pieces.clear()
        self._hidden_element = None

    def _end_link(self) -> None:
        if self._link_url:
            self._pieces.append(f" <{_collapse_control_chars(self._link_url)}>")
        self._link_url = None


def _get_input_text(attributes: dict[str, str | None]) -> str:
    match (attributes.get("type") or "").lower():
        case "hidden" | "password":
            return ""
        case "checkbox" | "radio":
            return "[x]" if "checked" in attributes else "[ ]"
        case _:
            return attributes.get("value") or attributes.get("alt") or ""


def _get_cdata_text(comment: str) -> str:
    """Return a CDATA section's text, including a `>` in it that ended the parser's comment; else ""."""
    if not comment.startswith(_CDATA_PREFIX):
        return ""
    text = comment.removeprefix(_CDATA_PREFIX)
    return text.removesuffix("]]") if text.endswith("]]") else f"{text}>"


def _collapse_control_chars(text: str) -> str:
    return text.replace(_COMMENT_END_MARKER, "").replace(_LINE_END, " ").replace(_HARD_SPACE, " ")


def _preserve_whitespace(text: str) -> str:
    return _collapse_control_chars(text).expandtabs().replace("\n", _LINE_END).replace(" ", _HARD_SPACE)
