"""README's sections, and the programs in them, which the tests run as they stand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

README = Path(__file__).parent.parent / "README.md"


def section(title: str) -> str:
    """The text under a heading, its subsections included."""
    text = README.read_text("utf-8")
    heading = re.search(rf"^(##+) {re.escape(title)}\n", text, re.MULTILINE)
    assert heading is not None, f"README.md has no section {title}"
    return re.split(rf"^#{{2,{len(heading[1])}}} ", text[heading.end() :], maxsplit=1, flags=re.MULTILINE)[0]


def blocks(title: str, language: str = "python") -> list[str]:
    """The blocks of a language in a section."""
    return re.findall(rf"```{language}\n(.*?)```", section(title), re.DOTALL)


def defined_by(*programs: str, **known: Any) -> dict[str, Any]:
    """What programs define, each by itself, as it is copied. known: what it does not define itself."""
    defined = dict[str, Any]()
    for program in programs:
        names = known.copy()
        code = compile(program, "README.md", "exec", dont_inherit=True)  # without this file's `from __future__`
        exec(code, names)  # noqa: S102  the text of our own README
        defined |= names
    return defined
