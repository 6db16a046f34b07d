"""The text of HTML, for people who read mail at a terminal."""

from __future__ import annotations

import re
from typing import Any

from justhtml import Comment, JustHTML, Template, Text

_UNSEEN = frozenset(("script", "style"))
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
_CDATA = "[CDATA["
_END, _BLANK = "\v", "\x1f"  # of a line, and one that stays where it is
_BLANKS = re.compile(r"[ \t\r\n\f\xa0]+")
_ENDLESS_TITLE = re.compile(r"<title(?=[\s/>])[^<>]*+>(?=[^<]*+(?:\Z|<(?!/title\b)))", re.IGNORECASE)


def text_of(html: str) -> str:
    """What a browser would show, without form: blocks are lines, and a link's address stands behind it.

    Where programs differ the text is there: that of templates and CDATA sections, of pictures that aren't loaded, and
    what follows a title that has no end.
    """
    read = JustHTML(_ENDLESS_TITLE.sub("", html), sanitize=False, fragment=True, scripting_enabled=False)
    lines = [_BLANKS.sub(" ", line).strip(" ").replace(_BLANK, " ") for line in "".join(_pieces(read.root)).split(_END)]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(line.rstrip() for line in lines)).strip("\n")


def _pieces(root: Any) -> list[str]:
    """Text in its order. Without recursion, for a sender may nest as deep as they like."""
    pieces, todo = list[str](), list[tuple[Any, bool]]([(root, False)])
    while todo:
        node, as_it_stands = todo.pop()
        if isinstance(node, str):
            pieces.append(node)
        elif isinstance(node, Text):
            text = node.data or ""
            pieces.append(_standing(text) if as_it_stands else _flowing(text))
        elif isinstance(node, Comment):
            pieces.append(_flowing(_of_cdata(str(node.data))))
        elif not _is_unseen(node):
            before, after = _around(node.name, node.attrs or {})
            pieces.append(before)
            todo.append((after, False))
            inside = [node.template_content] if isinstance(node, Template) else node.children or []
            todo += [(each, as_it_stands or node.name in _AS_IT_STANDS) for each in reversed(inside)]
    return pieces


def _is_unseen(node: Any) -> bool:
    """An SVG's title is a part of its picture."""
    return node.name in _UNSEEN or (node.name == "title" and node.namespace == "html")


def _around(name: str, attributes: dict[str, str | None]) -> tuple[str, str]:
    """What stands before and behind the text of an element."""
    if name in _LINES:
        return _END, _END
    if name in _BREAKS:
        return _END, ""
    if name in _APART:
        return " ", f"{_flowing(attributes.get('alt') or '')} "
    if name == "sup":
        return "^", ""  # 10 to the power of 9 isn't 109
    address = attributes.get("href") if name == "a" else None
    return "", f" <{_flowing(address)}>" if address else ""


def _of_cdata(comment: str) -> str:
    """What stands in a CDATA section, which to a browser is a comment up to the next `>`; nothing of others."""
    if not comment.startswith(_CDATA):
        return ""
    text = comment.removeprefix(_CDATA)
    return text.removesuffix("]]") if text.endswith("]]") else f"{text}>"


def _flowing(text: str) -> str:
    return text.replace(_END, " ").replace(_BLANK, " ")


def _standing(text: str) -> str:
    return _flowing(text).expandtabs().replace("\n", _END).replace(" ", _BLANK)
