"""Which mailboxes are meant. A refusal says where one was given, and doesn't name it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from directsuite.cli.credentials import MAILBOX, is_address
from directsuite.cli.errors import RefusedError, refuse_no_text
from directsuite.core.failures import reason_of


def addresses_of(named: Sequence[str], file: Path | None, variable: str | None = None) -> list[str]:
    """Those that are named, and those of a file, each once; where neither is given, that of the variable.

    Raises RefusedError.
    """
    given = [(place, address.strip()) for place, address in _numbered(named)]
    if file is not None:
        given += _lines_of(file)
    elif not given and variable:
        given = [(MAILBOX, variable)]
    kept = dict[str, tuple[str, str]]()
    for place, address in given:
        refuse_no_text(address, place)
        if not is_address(address):
            raise RefusedError(f"{place} is no address: nurse@direct.example.org is one")
        earlier, spelt = kept.setdefault(address.lower(), (place, address))
        if spelt != address:  # a store would have it twice, with all its messages
            raise RefusedError(
                f"{earlier} and {place} are one mailbox, in large and small letters: leave one of them out"
            )
    return [address for _, address in kept.values()]


def refuse_unknown(named: Sequence[str], known: Collection[str]) -> None:
    """Raise RefusedError where one of --mailbox isn't known."""
    for place, address in _numbered(named):
        if address not in known:
            raise RefusedError(
                f"{place} is not known to the store: `directsuite sync status` without it tells which ones are"
            )


def _numbered(named: Sequence[str]) -> Iterator[tuple[str, str]]:
    return ((f"number {number} of --mailbox", address) for number, address in enumerate(named, start=1))


def _lines_of(file: Path) -> Iterator[tuple[str, str]]:
    """One address a line; blank lines and those that begin with # don't count. Raises RefusedError."""
    try:
        lines = file.read_text("utf-8-sig").splitlines()  # Windows editors begin a file with a mark
    except FileNotFoundError:
        raise RefusedError(f"there is no file {file}: give --mailboxes a file with one address a line") from None
    except OSError as error:
        raise RefusedError(f"the file {file} can't be read ({reason_of(error)}): give another") from None
    except UnicodeDecodeError:
        raise RefusedError(f"the file {file} is no text in UTF-8: save it as such") from None
    for number, line in enumerate(lines, start=1):
        address = line.strip()
        if address and not address.startswith("#"):
            yield f"line {number} of the file {file}", address
