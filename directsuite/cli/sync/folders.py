"""Which folders are meant."""

from __future__ import annotations

from collections.abc import Sequence

from directsuite.cli.refusal import RefusedError

_INBOX = "INBOX"


def folders_of(named: Sequence[str]) -> list[str]:
    """Those that are named, each once; INBOX in whatever case, as RFC 3501, 5.1 has it. Raises RefusedError."""
    if not all(name.strip() for name in named):
        raise RefusedError("--folder has no name: give that of a folder, or --all-folders")
    return list(dict.fromkeys(_INBOX if name.upper() == _INBOX else name for name in named))
