"""Conversion of HTML mail to plain text for a terminal."""

from __future__ import annotations

import re

import attrs
from justhtml import stream

_HIDDEN_ELEMENTS = frozenset(("script", "style", "title"))
_BLOCK_ELEMENTS = frozenset(
    (
        *("address", "article", "aside", "blockquote", "caption", "center", "dd", "details", "dialog", "dir", "div"),
        *("dl", "dt", "fieldset", "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6"),
        *("header", "legend", "li", "main", "menu", "nav", "ol", "optgroup", "p", "pre", "section", "summary"),
        *("table", "template", "textarea", "tr", "ul", "br", "hr"),
    )
)
_SPACED_ELEMENTS = frozenset(
    (
        *("audio", "button", "canvas", "iframe", "img", "input", "object", "option", "select", "td", "th", "video"),
        *("mi", "mn", "mo"),  # of MathML: without spaces, a fraction 1/2 would become 12
    )
)
_PREFORMATTED_ELEMENTS = frozenset(("pre", "textarea"))
_STRIKETHROUGH_ELEMENTS = frozenset(("del", "s", "strike"))
_DEL_OPEN, _DEL_CLOSE = "[DEL: ", " :DEL]"  # the markers of w3m
_LINE_END, _HARD_SPACE = "\v", "\x1f"  # placeholders for a line break and a space to keep
_WHITESPACE = re.compile(r"[ \t\r\n\f\xa0]+")
_UNCLOSED_TITLE = re.compile(r"<title(?=[\s/>])[^<>]*+>(?=[^<]*+(?:\Z|<(?!/title\b)))", re.IGNORECASE)
_NOSCRIPT = re.compile(r"(?<=<)(/?)noscript(?=[\s/>])", re.IGNORECASE)
_COMMENT_END = re.compile("--!?>")
_COMMENT_END_MARKER = "</--!>"  # HTML without effect that contains the rarer end of a comment, `--!>`


def html_to_text(html: str) -> str:
    """Return the text that a browser would show. Blocks become lines, and a link's URL follows its text.

    Text that only some programs show is included: that of templates, images and `noscript`, and the text after an
    unclosed title. Struck-through text is marked.
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
    lines = [
        _WHITESPACE.sub(" ", line).strip(" ").replace(_HARD_SPACE, " ") for line in reader.get_text().split(_LINE_END)
    ]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(line.rstrip() for line in lines)).strip("\n")


@attrs.define
class _TextReader:
    _pieces: list[str] = attrs.field(factory=list[str], init=False)
    _hidden_start: int | None = attrs.field(default=None, init=False)
    """The index of the first piece of a hidden element, until the next tag: `<style/>` in an SVG has no end tag."""
    _link_url: str | None = attrs.field(default=None, init=False)
    _preformatted_depth: int = attrs.field(default=0, init=False)
    _strikethrough_depth: int = attrs.field(default=0, init=False)

    def begin_element(self, name: str, attributes: dict[str, str | None]) -> None:
        self._hidden_start = len(self._pieces) if name in _HIDDEN_ELEMENTS else None
        self._preformatted_depth += name in _PREFORMATTED_ELEMENTS
        if name in _BLOCK_ELEMENTS:
            self._pieces.append(_LINE_END)
        elif name in _SPACED_ELEMENTS:
            self._pieces.append(
                f" {_collapse(_get_input_text(attributes) if name == 'input' else attributes.get('alt'))} "
            )
        elif name == "sup":
            self._pieces.append("^")  # otherwise 10 to the power of 9 would become 109
        elif name in _STRIKETHROUGH_ELEMENTS:
            self._strikethrough_depth += 1
            self._pieces.append(_DEL_OPEN)
        elif name == "a":
            self._end_link()  # links can't be nested
            self._link_url = attributes.get("href")

    def end_element(self, name: str) -> None:
        if name in _HIDDEN_ELEMENTS:
            self._drop_hidden()
        self._hidden_start = None
        self._preformatted_depth -= name in _PREFORMATTED_ELEMENTS and self._preformatted_depth > 0
        if name in _BLOCK_ELEMENTS:
            self._pieces.append(_LINE_END)
        elif name in _SPACED_ELEMENTS:
            self._pieces.append(" ")
        elif name in _STRIKETHROUGH_ELEMENTS and self._strikethrough_depth:
            self._strikethrough_depth -= 1
            self._pieces.append(_DEL_CLOSE)
        elif name == "a":
            self._end_link()

    def add_text(self, text: str) -> None:
        text = _collapse(text)
        if self._preformatted_depth:
            text = text.expandtabs().replace("\n", _LINE_END).replace(" ", _HARD_SPACE)
        self._pieces.append(text)

    def get_text(self) -> str:
        self._drop_hidden()
        self._end_link()
        return "".join((*self._pieces, _DEL_CLOSE * self._strikethrough_depth))

    def _drop_hidden(self) -> None:
        if self._hidden_start is not None:
            del self._pieces[self._hidden_start :]
        self._hidden_start = None

    def _end_link(self) -> None:
        if self._link_url:
            self._pieces.append(f" <{_collapse(self._link_url)}>")
        self._link_url = None


def _get_input_text(attributes: dict[str, str | None]) -> str | None:
    match (attributes.get("type") or "").lower():
        case "hidden" | "password":
            return None
        case "checkbox" | "radio":
            return "[x]" if "checked" in attributes else "[ ]"
        case _:
            return attributes.get("value") or attributes.get("alt")


def _collapse(text: str | None) -> str:
    """Remove the markers, and replace the placeholders by spaces."""
    return (text or "").replace(_COMMENT_END_MARKER, "").replace(_LINE_END, " ").replace(_HARD_SPACE, " ")
