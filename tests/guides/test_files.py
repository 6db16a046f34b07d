"""README and the guides name existing files, and their links have targets."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.guides.documents import DOCUMENTS, PACKAGE, ROOT, read_document

PLACEHOLDERS = ("SERVICE", "COMMAND")


def named_files(text: str) -> list[str]:
    """Return the files and folders of the project that a text names."""
    words = [word for quoted in re.findall(r"`([^`\n]+)`", text) for word in quoted.split()]
    words += [word for line in text.splitlines() if line.startswith("$ ") for word in line.split("#")[0].split()]
    words = [word.rstrip(":,") for word in words]
    return [
        word
        for word in words
        if re.fullmatch(r"[\w.*-]+(/[\w.*-]*)+|[\w*-]+\.(py|md|yaml|toml)", word)
        and not any(each in word for each in (*PLACEHOLDERS, ".venv"))
    ]


def is_there(name: str) -> bool:
    folders = (ROOT, PACKAGE, *PACKAGE.iterdir(), ROOT / "benchmarks" / "results")
    return any(True for folder in folders if folder.is_dir() for _ in folder.glob(name))


@pytest.mark.parametrize("guide", ["contributing", "evidence"])
def test_every_file_of_the_repository_that_a_guide_names_is_there(guide: str) -> None:
    assert named_files(read_document(guide))
    assert [name for name in named_files(read_document(guide)) if not is_there(name)] == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_link_leads_somewhere(document: str) -> None:
    links = re.findall(r"\]\(([^)]+)\)", read_document(document))
    files = {link: DOCUMENTS[document].parent / link.partition("#")[0] for link in links if not link.startswith("http")}
    assert [link for link, file in files.items() if not file.exists()] == []
    assert [
        link for link in links if "#" in link and link.partition("#")[2] not in anchors(files[link], document)
    ] == []


def anchors(file: Path, document: str) -> set[str]:
    text = file.read_text("utf-8") if file.is_file() else read_document(document)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_readme_leads_to_every_guide() -> None:
    assert {name for name in DOCUMENTS if f"(directsuite/guides/{name}.md)" in read_document("README")} == {
        *DOCUMENTS
    } - {"README"}
