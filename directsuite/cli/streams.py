"""The process's streams, and the width of what stands on them, as every command can use them.

stdin, stdout   may be closed; no letter that they can't read or write is an error
stderr          takes everything, and where it can't be written what is for people is lost: it changes nothing of what a
                command did, so it changes no exit status
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import sys
from pathlib import Path
from typing import Any, cast

_COLUMNS = range(20, 10_001)
"""As many as help and tables can be laid out in."""


def prepare_streams() -> None:
    """Have them as above. It may be called again."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115  until the process ends
    real: Any = sys.__stderr__
    if sys.stderr is real and hasattr(real, "buffer"):
        sys.stderr = forgiving(cast("io.TextIOWrapper[Any]", real))
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def prepare_width() -> None:
    """Have a width that text can be laid out in, whatever COLUMNS and the terminal say."""
    named = os.environ.get("COLUMNS")
    if named is not None and not (named.isascii() and named.isdigit() and int(named[:9]) in _COLUMNS):
        del os.environ["COLUMNS"]
    if shutil.get_terminal_size().columns < _COLUMNS.start:
        os.environ["COLUMNS"] = str(_COLUMNS.start)


def forgiving(stream: io.TextIOWrapper[Any]) -> io.TextIOWrapper[Any]:
    """A stream that writes to the same place, and loses what that doesn't take."""
    raw: Any = getattr(stream.buffer, "raw", stream.buffer)  # with python -u it is that itself
    taking: Any = _Forgiving(raw)  # without a buffer in between, which would write again what Ctrl-C came upon
    return io.TextIOWrapper(taking, encoding=stream.encoding, line_buffering=True)


class _Forgiving(io.RawIOBase):
    """Bytes to a place that may be full, or that nobody reads any more."""

    def __init__(self, place: io.RawIOBase) -> None:
        super().__init__()
        self._place = place

    def writable(self) -> bool:
        """It is, as far as anybody sees."""
        return True

    def write(self, content: Any, /) -> int:
        """Takes all of it, and never raises OSError."""
        rest = memoryview(content)
        with contextlib.suppress(OSError):
            while rest and (written := self._place.write(rest)):  # None where it would have to wait
                rest = rest[written:]
        return len(content)

    def fileno(self) -> int:
        """The place's."""
        return self._place.fileno()

    def isatty(self) -> bool:
        """Whether the place is a terminal."""
        return self._place.isatty()
