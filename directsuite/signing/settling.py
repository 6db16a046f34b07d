"""Settling a change of a document whose answer got lost: GetDocInfo shows whether it happened.

    digest never seen before, and what the change does is to be seen ─► it happened
                                                                          ├─ an update: the new digest
                                                                          └─ a pull: GetDoc, then GetDocInfo once more
    otherwise ─► look again, for the settle time ─► OutcomeUnknownError

What a change does: signatures of these names are there and signed (more than there were, where the caller passed a
DocumentInfo), no form field is left, no unsigned signature field is left. A signature without a name can't be told
from another. With the bare identifier, or a digest that isn't the newest, nothing is looked for.

Many a document has no form field, or no unsigned signature field, to begin with: there the digest alone is proof, and
has to be comparable (`versions`). A name that is there, signed, is taken for this call's work even if it was there
before: a caller who has the same name signed twice in one document passes the DocumentInfo.
"""

# pyright: reportPrivateUsage=false
# Used: a view of the facade makes the calls that verify.

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import attrs

from directsuite.core.facade import NothingMoreToSeeError
from directsuite.errors import DirectSuiteError, OutcomeUnknownError, ResponseDecodeError
from directsuite.signing.models import DocumentInfo, DocumentUpdate, Signature
from directsuite.signing.versions import Change

R = TypeVar("R")

_PDF_AS_IT_STANDS = (
    "get_doc(identifier), or download(identifier, destination), gives the PDF as it stands now; the change need not "
    "be made again."
)


@attrs.frozen
class Effect:
    """What a change does."""

    is_shown: Callable[[DocumentInfo], bool]
    """Whether a document looks as the change leaves it."""
    is_common: bool
    """Whether many documents look so before the change."""


FORM_GONE = Effect(lambda info: not info.form_fields, is_common=True)
"""No form field is left, as after Flatten."""

UNSIGNED_FIELDS_GONE = Effect(lambda info: not any(each.is_signed is False for each in info.signatures), is_common=True)
"""No signature field is left unsigned, as after ClearUnsignedFields."""


def signed(signatures: Iterable[Signature], document: object) -> Effect | None:
    """These signatures are there beside those that the caller's document had. None if one of them has no name."""
    names = [signature.name for signature in signatures]
    if not all(names):
        return None
    before = _signed_names(document) if isinstance(document, DocumentInfo) else None

    def is_shown(info: DocumentInfo) -> bool:
        """Whether each name is there, signed, as often as it has to be."""
        expected, signed_names = Counter(names), _signed_names(info)
        if before is not None:
            expected += Counter({name: times for name, times in before.items() if name in expected})
        return all(signed_names[name] >= times for name, times in expected.items())

    return Effect(is_shown, is_common=False)


def _signed_names(info: DocumentInfo) -> Counter[str | None]:
    return Counter(signature.name for signature in info.signatures if signature.is_signed)


@attrs.define(eq=False, repr=False)
class Settling:
    """Finds out what became of one change of a document whose answer got lost."""

    get_info: Callable[[], Awaitable[DocumentInfo]]
    """Calls GetDocInfo within the change's call."""
    identifier: str
    change: Change
    effect: Effect
    digest: str | None = None
    """The document's digest after the change, once it is proven to have happened."""
    hindrance: str = "the PDF could not be fetched"
    """Why a pull can't give its PDF although the change happened."""
    cause: Exception | None = None
    """What `hindrance` comes from, where that is an error of the destination's."""

    async def update(self) -> DocumentUpdate | None:
        """What the lost answer would have been, if the change is proven."""
        if not await self._proven():
            return None
        return DocumentUpdate(identifier=self.identifier, document_digest=self.digest)

    async def pdf(
        self, fetch: Callable[[], Awaitable[R]], keep: Callable[[], Awaitable[None]] | None = None
    ) -> R | None:
        """What `fetch` gives, once `keep` has stored it, if it is the version that the change was proven to make."""
        if not await self._proven():
            return None
        try:
            fetched = await fetch()
            if (await self.get_info()).document_digest != self.digest:
                self.hindrance = "the document was changed again before its PDF could be fetched"
                raise NothingMoreToSeeError
            if keep is not None:
                await keep()
        except ResponseDecodeError as error:
            if not error.too_large:
                raise
            self.hindrance, self.cause = error.explanation, error
            raise NothingMoreToSeeError from None
        except (DirectSuiteError, NothingMoreToSeeError):
            raise
        except Exception as error:  # noqa: BLE001  the destination's or the callback's own, of whatever kind
            self.hindrance, self.cause = f"its answer could not be kept ({type(error).__name__})", error
            raise NothingMoreToSeeError from None
        return fetched

    def verdict(self, error: OutcomeUnknownError) -> OutcomeUnknownError:
        """The error for the caller of a pull that could not give its PDF, whether or not the change is proven."""
        if self.digest is None:
            return verdict(error)
        knowing = error.knowing(f"it happened, but {self.hindrance}", how_to_find_out=_PDF_AS_IT_STANDS)
        knowing.happened = True
        knowing.__cause__ = self.cause or error.__cause__
        return knowing

    async def _proven(self) -> bool:
        if self.digest is None:
            info = await self.get_info()
            made = self.change.made(info.document_digest) and (self.change.comparable or not self.effect.is_common)
            if made and self.effect.is_shown(info):
                self.digest = info.document_digest
        return self.digest is not None


async def nothing_to_see() -> None:
    """End the looking at once: nothing could prove this call."""
    raise NothingMoreToSeeError


def verdict(error: OutcomeUnknownError) -> OutcomeUnknownError:
    """The error for the caller of a pull without proof: if the answer came, and could not be kept, it did happen."""
    return error.knowing(error.explanation, how_to_find_out=_PDF_AS_IT_STANDS) if error.happened else error
