"""Which of the package's extras are installed, found without importing them."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Literal

Extra = Literal["cli", "sandbox"]

REMEDY = "pip install 'directsuite[cli,sandbox]'"

_LIBRARIES: dict[Extra, tuple[str, ...]] = {
    "cli": ("cyclopts", "justhtml", "rich"),
    "sandbox": ("pikepdf", "pyhanko", "pyhanko_certvalidator", "cryptography", "PIL"),
}


class MissingExtraError(Exception):
    """Libraries of an extra are not installed; the text names them and the remedy."""


def missing(extra: Extra) -> list[str]:
    """The libraries of an extra that are not installed."""
    return [library for library in _LIBRARIES[extra] if find_spec(library) is None]


def require(extra: Extra) -> None:
    """Raise MissingExtraError unless all libraries of an extra are installed."""
    if absent := missing(extra):
        raise MissingExtraError(f"this needs {', '.join(absent)}, which the extra '{extra}' brings: {REMEDY}")
