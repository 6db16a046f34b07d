"""Read README and the guides, and the programs in them, which the tests run unchanged."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import directsuite as ds

ROOT = Path(__file__).parents[2]
PACKAGE = Path(ds.__file__).parent
ALICE = ("alice@direct.example.test", "secret")
DOCUMENTS = {"README": ROOT / "README.md"} | {guide.stem: guide for guide in sorted((PACKAGE / "guides").glob("*.md"))}


def read_document(document: str) -> str:
    return DOCUMENTS[document].read_text("utf-8")


def find_code_blocks(document: str, language: str = "python") -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", read_document(document), re.DOTALL | re.MULTILINE)


def execute_programs(*programs: str, **known: Any) -> dict[str, Any]:
    defined = dict[str, Any]()
    for program in programs:
        names = known.copy()
        code = compile(program, "guide", "exec", dont_inherit=True)  # without this file's `from __future__`
        exec(code, names)  # noqa: S102  the text of our own documents
        defined |= names
    return defined
