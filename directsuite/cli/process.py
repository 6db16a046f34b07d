"""The process of a command: exit statuses, streams, terminal width, and required libraries.

stdin, stdout   may be closed; characters that can't be decoded or encoded are replaced
stderr          ignores errors of writing, so that a lost message doesn't change the exit status

This module imports neither cyclopts nor rich, so that it can report that they are missing.
"""

from __future__ import annotations

import contextlib
import enum
import io
import os
import re
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Callable, Generator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self, cast

NOTHING_CHANGED = "nothing was changed: run the same command again"
"""What to do after an interrupted command that only reads or has not started."""


class RunState:
    """The state of the running command that messages depend on."""

    def __init__(self) -> None:
        self.has_begun = False
        """True if the work of the command has started; set by `Command.run`."""
        self.options_of_variables = dict[str, str]()
        """The option that has set each of these variables; set by `run` of `app`."""
        self.secret_sources = dict[str, str]()
        """The source of each secret that the command has read, such as a variable, by the secret's name."""
        self.secret_owners = dict[str, str]()
        """The address or user name that each of these passwords belongs to, by the secret's name."""


state = RunState()
"""The state of the running command. `main` replaces it at the start of each command."""

EXTRAS: Mapping[str, tuple[str, ...]] = {
    "cli": ("cyclopts", "justhtml", "keyring", "rich"),
    "sandbox": (
        *("pikepdf", "pyhanko", "pyhanko_certvalidator", "cryptography", "reportlab", "PIL", "yaml"),
        *("jinja2", "pypdfium2"),
    ),
}
"""The modules that each of these extras installs."""
_CONTROL_CATEGORIES = frozenset(("Cc", "Cs", "Zl", "Zp"))
"""The Unicode categories of control characters, lone surrogates, and line and paragraph separators."""
_BIDI_CONTROLS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_COLUMNS_RANGE = range(20, 10_001)
_QUOTED_COMMAND = re.compile(r"`[^`]*`[.,:;]?")


class ExitStatus(enum.IntEnum):
    """The exit status of a command, and its meaning."""

    meaning: str

    def __new__(cls, number: int, meaning: str) -> Self:
        """Create a member."""
        status = int.__new__(cls, number)
        status._value_ = number
        status.meaning = meaning
        return status

    DONE = 0, "done"
    FAILED = 1, "not done, or only partly: stderr has the reason"
    USAGE_ERROR = 2, "an option, file or variable is invalid: nothing was changed"
    DENIED = 3, "the password, token or login was rejected, or lacks a permission"
    NOT_FOUND = 4, "there is no such message, fax, patient or address, or the URL is wrong"
    REJECTED = 5, "the service rejected the request"
    UNAVAILABLE = 6, "no usable response from the service: you can safely repeat the command"
    UNKNOWN = 7, "the outcome is unknown: check before you repeat the command"
    INTERRUPTED = 130, "Ctrl-C"
    TERMINATED = 143, "SIGTERM"


class MissingExtraError(Exception):
    """Libraries of an extra are not installed. The text names them and the command to install them."""


def require_extra(extra: str) -> None:
    """Raise MissingExtraError unless all libraries of an extra are installed. Import none of them."""
    if absent := [library for library in EXTRAS[extra] if find_spec(library) is None]:
        raise MissingExtraError(
            f"This needs {', '.join(absent)}, which the extra '{extra}' installs. "
            "In a copy of the repository, run pip install '.[cli,sandbox]'."
        )


def prepare_streams() -> None:
    """Set up the standard streams as described at the top of this module. Can be called again."""
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
    """Ignore an invalid COLUMNS. Set COLUMNS to the minimum if the terminal is narrower."""
    named = os.environ.get("COLUMNS")
    if named is not None and not (named.isascii() and named.isdigit() and int(named[:9]) in _COLUMNS_RANGE):
        del os.environ["COLUMNS"]
    if shutil.get_terminal_size().columns < _COLUMNS_RANGE.start:
        os.environ["COLUMNS"] = str(_COLUMNS_RANGE.start)


def is_verbose() -> bool:
    """Return True on a terminal or with --verbose: stderr may show file names, values and the service's messages.

    Otherwise stderr may be a log that other people read.
    """
    return sys.stderr.isatty() or get_verbosity() > 0


def get_verbosity() -> int:
    """Return the value of DIRECTSUITE_VERBOSE, which --verbose sets: 0 if it is not set, 1 if it is not a number."""
    text = os.environ.get("DIRECTSUITE_VERBOSE") or "0"
    return int(text) if text.isdecimal() else 1


def make_printable(text: str) -> str:
    """Replace each character that could control a terminal, or hide or reorder other characters."""
    return "".join(
        "\N{REPLACEMENT CHARACTER}"
        if letter in _BIDI_CONTROLS or unicodedata.category(letter) in _CONTROL_CATEGORIES
        else letter
        for letter in text
    )


def show_line(text: str = "") -> None:
    """Write one line to stdout, through `make_printable`."""
    sys.stdout.write(f"{make_printable(text)}\n")


def echo_err(sentence: str) -> None:
    """Write a message to stderr, after the program's name. On a terminal, long lines are wrapped."""
    sys.stderr.write(f"{wrap_on_terminal(f'directsuite: {sentence}')}\n")


def echo_err_line(text: str) -> None:
    """Write one line to stderr, through `make_printable`."""
    sys.stderr.write(f"{make_printable(text)}\n")


def wrap_on_terminal(text: str) -> str:
    """Make a text printable. If stderr is a terminal, also wrap it to the terminal's width.

    Lines are broken only at spaces, and not within commands in backquotes, because people copy them. A command that
    is longer than a line is on its own line, without the backquotes and the punctuation after it.
    """
    text = make_printable(text)
    if not sys.stderr.isatty():
        return text
    columns = 0
    if "COLUMNS" not in os.environ:
        with contextlib.suppress(OSError, ValueError):  # shutil.get_terminal_size looks at stdout only
            columns = os.get_terminal_size(sys.stderr.fileno()).columns
    width = max(columns or shutil.get_terminal_size().columns, _COLUMNS_RANGE.start)

    def join_command(match: re.Match[str]) -> str:
        command = match[0] if len(match[0].rstrip(".,:;")) <= width else match[0].strip("`.,:;")
        return command.replace(" ", "\0")

    joined = _QUOTED_COMMAND.sub(join_command, text)
    return textwrap.fill(joined, width, break_long_words=False, break_on_hyphens=False).replace("\0", " ")


def end_line() -> None:
    """End the line that has ^C or a question, if stderr is a terminal."""
    if sys.stderr.isatty():
        sys.stderr.write("\n")


def discard_stdout() -> None:
    """Redirect stdout to the null device, so that flushing its buffer can't fail. Call it after a failed write."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, sys.stdout.fileno())
    finally:
        os.close(nowhere)


@contextlib.contextmanager
def ignore_stdout_errors(on_loss: Callable[[OSError], None]) -> Generator[None]:
    """Ignore errors of writing to stdout, and flush each line. on_loss: called with the first error only."""
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
    """Return a stream to the same file that ignores errors of writing. on_loss: see `ignore_stdout_errors`."""
    raw: Any = getattr(stream.buffer, "raw", stream.buffer)  # `python -u` has no buffer in between
    # No buffer, because after Ctrl-C it would write its content again.
    lossy_raw: Any = _LossyRawIO(raw, on_loss)
    return io.TextIOWrapper(lossy_raw, encoding=stream.encoding, errors=stream.errors, line_buffering=True)


class _LossyRawIO(io.RawIOBase):
    def __init__(self, raw: io.RawIOBase, on_loss: Callable[[OSError], None] | None) -> None:
        super().__init__()
        self._raw = raw
        self._on_loss = on_loss

    def writable(self) -> bool:
        return True

    def write(self, content: Any, /) -> int:
        rest = memoryview(content)
        try:
            while rest and (written := self._raw.write(rest)):  # None if a non-blocking file would block
                rest = rest[written:]
        except OSError as error:
            if self._on_loss is not None:
                self._on_loss(error)
                self._on_loss = None
        return len(content)

    def fileno(self) -> int:
        return self._raw.fileno()

    def isatty(self) -> bool:
        return self._raw.isatty()
