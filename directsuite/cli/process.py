"""The process that a command runs in: its streams, the width of what stands on them, and the libraries it needs.

stdin, stdout   may be closed; no letter that they can't read or write is an error
stderr          takes everything: what can't be written is lost, for it is for people, and changes no exit status

This module imports neither cyclopts nor rich, so that it can say that they are missing.
"""

from __future__ import annotations

import contextlib
import enum
import io
import os
import shutil
import sys
import unicodedata
from collections.abc import Callable, Generator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self, cast

INSTALL_COMMAND = "pip install 'directsuite[cli,sandbox]'"
NOTHING_CHANGED = "nothing was changed: give the same command again"
"""How a command goes on that only reads, or has not begun."""

has_begun = False
"""True once a command's work has begun, which `Command.run` notes: until then, modules are imported."""

EXTRAS: Mapping[str, tuple[str, ...]] = {
    "cli": ("cyclopts", "justhtml", "keyring", "rich"),
    "fleet": ("procrastinate", "psycopg"),
    "hsm": ("pkcs11",),
    "otel": ("opentelemetry",),
    "sandbox": (
        *("pikepdf", "pyhanko", "pyhanko_certvalidator", "cryptography", "fontTools", "PIL", "yaml"),
        *("jinja2", "pypdfium2"),
    ),
    "storage": ("fsspec",),
    "testing": ("aioresponses",),
}
"""The modules that each extra brings, by which it is found to be installed."""
_CONTROL_CATEGORIES = frozenset(("Cc", "Cs", "Zl", "Zp"))
"""The categories of control characters, lone surrogates, and separators of lines and paragraphs."""
_BIDI_CONTROLS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_COLUMNS_RANGE = range(20, 10_001)
"""The widths in which help and tables can be laid out."""


class ExitStatus(enum.IntEnum):
    """The exit status of a command, and what it says."""

    meaning: str

    def __new__(cls, number: int, meaning: str) -> Self:
        """A number, and what it stands for."""
        status = int.__new__(cls, number)
        status._value_ = number
        status.meaning = meaning
        return status

    DONE = 0, "done"
    FAILED = 1, "not done, or not all of it: stderr says why"
    USAGE_ERROR = 2, "an option, a file or a variable is wrong: nothing was changed"
    DENIED = 3, "the password, token or login is refused, or may not do this"
    NOT_FOUND = 4, "there is no such message, fax, patient or address, or the URL is wrong"
    REJECTED = 5, "the service declines what was asked of it"
    UNAVAILABLE = 6, "no usable answer from the service; the same command again does no harm"
    UNKNOWN = 7, "it may or may not have happened: look before you repeat it"
    INTERRUPTED = 130, "Ctrl-C"
    TERMINATED = 143, "SIGTERM"


class MissingExtraError(Exception):
    """Libraries of an extra are not installed; the text names them and the remedy."""


def find_missing(libraries: Sequence[str]) -> list[str]:
    """Those of these modules that are not installed, found without importing them."""
    return [library for library in libraries if find_spec(library) is None]


def require_extra(extra: str) -> None:
    """Raise MissingExtraError unless all libraries of an extra are installed."""
    if absent := find_missing(EXTRAS[extra]):
        raise MissingExtraError(f"this needs {', '.join(absent)}, which the extra '{extra}' brings: {INSTALL_COMMAND}")


def prepare_streams() -> None:
    """Give the process the streams that this module promises. It may be called again."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115  until the process ends
    real: Any = sys.__stderr__
    if sys.stderr is real and hasattr(real, "buffer"):
        sys.stderr = make_lossy_stream(cast("io.TextIOWrapper[Any]", real))
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def prepare_width() -> None:
    """Give the process a width in which text can be laid out, whatever COLUMNS and the terminal say."""
    named = os.environ.get("COLUMNS")
    if named is not None and not (named.isascii() and named.isdigit() and int(named[:9]) in _COLUMNS_RANGE):
        del os.environ["COLUMNS"]
    if shutil.get_terminal_size().columns < _COLUMNS_RANGE.start:
        os.environ["COLUMNS"] = str(_COLUMNS_RANGE.start)


def is_verbose() -> bool:
    """Return True if stderr may show file names and the service's words: on a terminal, or if the user asks for it.

    Elsewhere stderr may be a log, which others read.
    """
    return sys.stderr.isatty() or get_verbosity() > 0


def get_verbosity() -> int:
    """How often --verbose was given, or what DIRECTSUITE_VERBOSE says: 1 for what is no number."""
    text = os.environ.get("DIRECTSUITE_VERBOSE") or "0"
    return int(text) if text.isdecimal() else 1


def make_printable(text: str) -> str:
    """Replace each character that a terminal would act upon, or that hides or reorders the characters near it."""
    return "".join(
        "\N{REPLACEMENT CHARACTER}"
        if letter in _BIDI_CONTROLS or unicodedata.category(letter) in _CONTROL_CATEGORIES
        else letter
        for letter in text
    )


def show_line(text: str = "") -> None:
    """Write one line to stdout, made printable."""
    sys.stdout.write(f"{make_printable(text)}\n")


def echo_err(sentence: str) -> None:
    """Write a sentence for people to stderr, made printable."""
    echo_err_line(f"directsuite: {sentence}")


def echo_err_line(text: str) -> None:
    """Write one line to stderr, made printable."""
    sys.stderr.write(f"{make_printable(text)}\n")


def end_line() -> None:
    """On a terminal, end the line that ^C or a question has begun."""
    if sys.stderr.isatty():
        sys.stderr.write("\n")


def discard_stdout() -> None:
    """Have stdout take what is written from now on, and what it still holds: its reader has gone."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, sys.stdout.fileno())
    finally:
        os.close(nowhere)


@contextlib.contextmanager
def ignore_stdout_errors(on_loss: Callable[[OSError], None]) -> Generator[None]:
    """Let stdout lose what can't be written, as stderr does. `lost` is called with the first error alone."""
    stdout: Any = sys.stdout
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout = make_lossy_stream(stdout, on_loss)
    try:
        yield
    finally:
        sys.stdout = stdout


def make_lossy_stream(
    stream: io.TextIOWrapper[Any], on_loss: Callable[[OSError], None] | None = None
) -> io.TextIOWrapper[Any]:
    """A stream that writes to the same place, and loses what that doesn't take. lost: as in `forgiving_stdout`."""
    raw: Any = getattr(stream.buffer, "raw", stream.buffer)  # with python -u it is that itself
    lossy_raw: Any = _LossyRawIO(
        raw, on_loss
    )  # without a buffer in between, which would write again what Ctrl-C came upon
    return io.TextIOWrapper(lossy_raw, encoding=stream.encoding, errors=stream.errors, line_buffering=True)


class _LossyRawIO(io.RawIOBase):
    """Bytes to a place that may be full, or that nobody reads any more."""

    def __init__(self, raw: io.RawIOBase, on_loss: Callable[[OSError], None] | None) -> None:
        super().__init__()
        self._raw = raw
        self._on_loss = on_loss

    def writable(self) -> bool:
        """Return True: what can't be written is lost, and no error."""
        return True

    def write(self, content: Any, /) -> int:
        """Write `content`, or lose it; OSError is never raised."""
        rest = memoryview(content)
        try:
            while rest and (written := self._raw.write(rest)):  # None where it would have to wait
                rest = rest[written:]
        except OSError as error:
            if self._on_loss is not None:
                self._on_loss(error)
                self._on_loss = None
        return len(content)

    def fileno(self) -> int:
        """The descriptor of the place."""
        return self._raw.fileno()

    def isatty(self) -> bool:
        """Return True if the place is a terminal."""
        return self._raw.isatty()
