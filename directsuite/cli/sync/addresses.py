"""Which mailboxes are meant."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from directsuite.cli.refusal import RefusedError
from directsuite.core.system_errors import reason_of


def addresses_of(named: Sequence[str], file: Path | None) -> list[str]:
    """Those that are named, and those of a file with one a line; blank lines and those that begin with # don't count.

    Raises RefusedError.
    """
    lines = list(named)
    if file is not None:
        try:
            lines += file.read_text("utf-8-sig").splitlines()  # Windows editors begin a file with a mark
        except FileNotFoundError:
            raise RefusedError(f"there is no file {file}: give --mailboxes a file with one address a line") from None
        except OSError as error:
            raise RefusedError(f"the file {file} can't be read ({reason_of(error)}): give another") from None
        except UnicodeDecodeError:
            raise RefusedError(f"the file {file} is no text in UTF-8: save it as such") from None
    stripped = (line.strip() for line in lines)
    addresses = list(dict.fromkeys(line for line in stripped if line and not line.startswith("#")))
    for number, address in enumerate(addresses, start=1):
        if "@" not in address or any(character.isspace() for character in address):
            raise RefusedError(f"mailbox {number} of those given is no address: nurse@direct.example.org is one")
    return addresses
