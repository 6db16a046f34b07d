"""Which folders are meant."""

from __future__ import annotations

from collections.abc import Sequence

from directsuite.cli.errors import RefusedError, refuse_no_text

_INBOX = "INBOX"


def folders_of(named: Sequence[str]) -> list[str]:
    """Those that are named, each once; INBOX in whatever case, as RFC 3501, 5.1 has it. Raises RefusedError."""
    for number, name in enumerate(named, start=1):
        place = f"number {number} of --folder"
        refuse_no_text(name, place)
        if not name.strip() or name in (".", ".."):  # which no URL can have
            raise RefusedError(f"{place} is no folder's name: give one as INBOX.Sent, or --all-folders")
    return list(dict.fromkeys(_INBOX if name.upper() == _INBOX else name for name in named))
