"""Judge whether changes after a signature invalidate it, with limited time and memory.

pyHanko follows every path to a changed object. The number of paths can be exponential: 40 objects that each refer twice
to the next one exhaust any memory. Therefore the number of object lookups is limited.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from pyhanko.pdf_utils.generic import Reference
from pyhanko.pdf_utils.reader import HistoricalResolver, PdfFileReader
from pyhanko.sign.diff_analysis import DiffResult, ModificationLevel
from pyhanko.sign.validation.pdf_embedded import EmbeddedPdfSignature

from directsuite.sandbox.signing.clear import POLICY

MAX_LOOKUPS = 20_000
"""The maximum for all signatures of a document, which takes about two seconds."""

ObjectNumber: TypeAlias = tuple[int, int]
"""The number and generation of a PDF object."""


class TooManyLookupsError(Exception):
    """The changes of a document need more than MAX_LOOKUPS lookups."""


class _CountingResolver(HistoricalResolver):
    def __init__(self, limited: LimitedReader, revision: int) -> None:
        original: Any = super()  # pyHanko's methods have no types
        original.__init__(limited, revision)
        self._limited = limited

    def get_object(self, ref: Reference, as_metadata_stream: bool = False) -> Any:
        self._limited.count_lookup()
        original: Any = super()
        return original.get_object(ref, as_metadata_stream)


class LimitedReader(PdfFileReader):
    """A reader that raises TooManyLookupsError after MAX_LOOKUPS lookups in earlier revisions of the document."""

    _lookups_left = MAX_LOOKUPS

    def count_lookup(self) -> None:
        """Count a lookup in an earlier revision. Raises TooManyLookupsError after MAX_LOOKUPS."""
        self._lookups_left -= 1
        if self._lookups_left < 0:
            raise TooManyLookupsError

    def get_historical_resolver(self, revision: int) -> HistoricalResolver:
        """Return a resolver for one revision of the document, which counts its lookups."""
        resolvers: dict[int, HistoricalResolver] = self._historical_resolver_cache
        return resolvers.setdefault(revision, _CountingResolver(self, revision))


def open_signature(opened: PdfFileReader, field: ObjectNumber, name: str = "") -> Any:
    """Return pyHanko's object for the signature in a field. May raise any exception if it is malformed."""
    dictionary: Any = Reference(*field, opened).get_object()
    return EmbeddedPdfSignature(opened, dictionary, name)


def judge(signature: Any) -> tuple[str, bool]:
    """Judge the changes after a signature of a LimitedReader that `open_signature` has returned.

    Return the name of pyHanko's ModificationLevel, and True if the changes do not invalidate the signature. Raises
    TooManyLookupsError, or any exception if the document is malformed.
    """
    signature.coverage = signature.evaluate_signature_coverage()
    found: Any = signature.evaluate_modifications(POLICY)
    level: Any = found.modification_level if isinstance(found, DiffResult) else ModificationLevel.OTHER
    permitted: Any = signature.docmdp_level
    return str(level.name), level != ModificationLevel.OTHER and (permitted is None or level.value <= permitted.value)
