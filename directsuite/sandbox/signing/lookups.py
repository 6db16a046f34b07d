"""A PDF reader that limits the time for judging the changes after a signature.

pyHanko follows every path to a changed object. For a document of many pages that share a font, this could take longer
than a client waits.
"""

from __future__ import annotations

from typing import Any

from pyhanko.pdf_utils.generic import Reference
from pyhanko.pdf_utils.reader import HistoricalResolver, PdfFileReader

MAX_LOOKUPS = 20_000
"""The maximum for all signatures of a document, which takes about two seconds."""


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
