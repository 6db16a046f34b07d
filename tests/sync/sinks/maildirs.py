"""Helpers that read the files of Maildirs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from directsuite.sync.sinks.eml import iter_eml
from tests.sync.sinks.sample_changes import make_message


def list_files(root: Path) -> list[Path]:
    return [path for path in sorted(root.rglob("*")) if path.is_file() and path.parent.name in ("new", "cur")]


def read_files(root: Path) -> dict[str, list[bytes]]:
    found: dict[str, list[bytes]] = {}
    for path in list_files(root):
        found.setdefault(str(path.parent.parent.relative_to(root)), []).append(path.read_bytes())
    return {name: sorted(those) for name, those in found.items()}


def read_contents(root: Path) -> list[bytes]:
    return sorted(content for those in read_files(root).values() for content in those)


def compose(*numbers: int) -> list[bytes]:
    return sorted(b"".join(iter_eml(make_message(number))) for number in numbers)


def make_expected(**numbers: Sequence[int]) -> dict[str, list[bytes]]:
    names = {"inbox": "nurse@direct.test", "sent": "nurse@direct.test/.Sent"}
    return {names[each]: compose(*those) for each, those in numbers.items()}


def list_temporaries(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file() and path.parent.name == "tmp"]


def find_only_file(root: Path) -> Path:
    (path,) = (path for path in root.rglob("*.eml*") if path.is_file())
    return path
