"""The work on PDFs that the service asks for, one function for all changes; runs in a worker thread.

Importing this module imports pyHanko and pikepdf, which takes the better part of a second and the `sandbox` extra:
the service does so when the first document arrives.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from directsuite.sandbox.refusals import InvalidActionError, InvalidParameterError, RefusedError
from directsuite.sandbox.signing import document
from directsuite.sandbox.signing.clear import clear_unsigned_fields
from directsuite.sandbox.signing.flatten import flatten
from directsuite.sandbox.signing.inspect import inspect
from directsuite.sandbox.signing.request import decoded
from directsuite.sandbox.signing.sign import sign

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from datetime import datetime

    from directsuite.sandbox.signing.keys import KeySource
    from directsuite.sandbox.signing.request import SignatureRequest

logger = logging.getLogger("directsuite.sandbox")

_at_work: ContextVar[bool] = ContextVar("_at_work", default=False)


def _is_of_others(_: logging.LogRecord) -> bool:
    """Return False for what the PDF libraries log of the sandbox's documents: tracebacks that name their signers."""
    return not _at_work.get()


for _name in list(logging.Logger.manager.loggerDict):  # a filter works at the logger alone, not at those below it
    if _name.split(".")[0] in ("pyhanko", "pyhanko_certvalidator", "pikepdf"):
        logging.getLogger(_name).addFilter(_is_of_others)


@dataclass(frozen=True, slots=True)
class Change:
    """What a change makes of a document: its new bytes, the fields or signatures concerned, and a sentence on it."""

    content: bytes
    names: list[str]
    description: str


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What a change is made with: the signatures asked for, the keys, and the time."""

    signatures: Sequence[SignatureRequest]
    keys: KeySource
    at: datetime


def _flatten(content: bytes, _: Circumstances) -> Change:
    flattened, names = flatten(content)
    return Change(flattened, names, f"{len(names)} form field(s) flattened")


def _clear(content: bytes, _: Circumstances) -> Change:
    cleared, names = clear_unsigned_fields(content)
    return Change(cleared, names, f"{len(names)} unsigned signature field(s) removed")


def _sign(content: bytes, circumstances: Circumstances) -> Change:
    signed, names = sign(content, circumstances.signatures, circumstances.keys.signer(), circumstances.at)
    return Change(signed, names, f"signed: {', '.join(names)}")


CHANGES: dict[str, Callable[[bytes, Circumstances], Change]] = {
    "Flatten": _flatten,
    "ClearUnsignedFields": _clear,
    "Sign": _sign,
    "MultiSign": _sign,
}


def receive(body: bytes) -> tuple[bytes, bool]:
    """Return the document in the base64 body of Save, True beside it once repaired. Raises InvalidParameterError."""
    content = decoded(body, "the body")
    with _at_work_on_a_document(InvalidParameterError("the PDF document is damaged beyond repair")):
        return document.accepted(content)


def change(operation: str, content: bytes, circumstances: Circumstances) -> Change:
    """Return what one of `CHANGES` makes of a document. Raises RefusedError."""
    with _at_work_on_a_document():
        return CHANGES[operation](content, circumstances)


def describe(content: bytes, keys: KeySource, moment: datetime) -> dict[str, Any]:
    """Return the members of GetDocInfo that come from the document. Raises RefusedError."""
    with _at_work_on_a_document():
        return inspect(content, keys.trust_roots(), moment)


@contextmanager
def _at_work_on_a_document(refusal: RefusedError | None = None) -> Generator[None]:
    """Keep the libraries' logs back, and turn what they raise for a document that breaks PDF's rules into a refusal."""
    token = _at_work.set(True)
    try:
        yield
    except (RefusedError, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001  the libraries raise almost anything where an object has a wrong type
        logger.warning("a document is taken for malformed after %s", type(error).__name__)  # its text quotes content
        raise refusal or InvalidActionError("the document is malformed") from None
    finally:
        _at_work.reset(token)
