"""A display that can't be written any more, or for a while."""

from __future__ import annotations

import errno
import os
import sys
from typing import TYPE_CHECKING

from directsuite.cli.sync.displays import Lines
from directsuite.cli.sync.unbroken import Unbroken

if TYPE_CHECKING:
    import pytest


class _Full:
    """A disk that is full, or isn't."""

    def __init__(self) -> None:
        self.is_full = True
        self.written = list[str]()

    def write(self, text: str) -> int:
        """Take it, or raise."""
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.written.append(text)
        return len(text)

    def flush(self) -> None:
        """Nothing is held back."""


def test_a_full_disk_loses_lines_only_while_it_is_full(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stdout = _Full()
    monkeypatch.setattr(sys, "stdout", stdout)
    with Unbroken(Lines(as_json=False)) as display:
        for _ in range(3):
            display.say("lost", "lost")
        stdout.is_full = False
        display.say("kept", "kept")
    assert [text.split()[1] for text in stdout.written] == ["kept"]
    assert [record.getMessage() for record in caplog.records] == [
        "stdout can't be written (OSError): the worker goes on"
    ]


def test_a_reader_that_has_gone_is_missed_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        with Unbroken(Lines(as_json=True)) as display:
            for _ in range(3):
                display.say("lost", "lost")
    assert len(caplog.records) == 1
