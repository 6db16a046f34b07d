"""The calls that a walk counts."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from benchmarks.walks import CallPath, CallRecorder

_FIRST = """
import walked_second

async def work():
    walked_second.plain()
    await walked_second.waiting()
"""
_SECOND = """
import asyncio

def plain():
    return _helper()

def _helper():
    return 1

async def waiting():
    await asyncio.sleep(0)
"""


async def test_step_enters_another_file_and_resumed_coroutine_counts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "walked_first.py").write_text(_FIRST, "utf-8")
    (tmp_path / "walked_second.py").write_text(_SECOND, "utf-8")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    first = importlib.import_module("walked_first")
    with CallRecorder(tmp_path) as recorder:
        await first.work()
    assert recorder.path == CallPath(files=("walked_first.py", "walked_second.py"), steps=2, calls=4)
