"""The pages of a fax number's list: where the next one starts, and which page is the last.

The list is the newest first, so faxes that arrive while it is read shift the pages: a page may then repeat faxes of
pages before it, and even consist of them. Services return pages of different sizes. For these reasons only an empty
page is the end, not a short page, nor one without anything new.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence

import attrs

from directsuite.errors import NotFoundError
from directsuite.fax.models import FaxMessage, FaxMessageInformation

PAGE = 10
"""The number of messages of a page (specification section 8). Services with smaller pages exist."""

FetchPage = Callable[[int], Awaitable[FaxMessageInformation]]
"""Requests a page: the newest messages first, after skipping this number of them."""


@attrs.define(eq=False, repr=False)
class PageReader:
    """Reads one page after the other, from `offset` to the end."""

    _fetch: FetchPage
    offset: int = 0
    """Where the next page starts."""
    has_reached_end: bool = attrs.field(default=False, init=False)
    """True if there are no messages at `offset`."""
    is_repeating: bool = attrs.field(default=False, init=False)
    """True if the service returns the same pages at all further offsets."""
    _seen: set[str] = attrs.field(factory=set[str], init=False)  # on all pages
    _latest: set[str] = attrs.field(factory=set[str], init=False)  # on the last pages
    _latest_start: int = attrs.field(default=0, init=False)  # of the first of those
    _repeats: int = attrs.field(default=0, init=False)  # of pages that only had messages of `_latest`

    @property
    def is_done(self) -> bool:
        """True if there is no other page to read."""
        return self.has_reached_end or self.is_repeating

    async def read(self) -> Sequence[FaxMessage]:
        """Return the next page. At the end it is empty, or only repeats messages of pages before it.

        The specification does not say what a service returns past the end: one may say 404. But a 404 may also be a
        temporary failure, so the page that starts one message earlier is read then: at the end it has one message.
        Raises NotFoundError if that page is full or also a 404, and at offset 0, where nothing is known of the number.
        """
        start = self.offset
        try:
            messages = (await self._fetch(start)).message_detail
        except NotFoundError:
            if start == 0:
                raise
            start -= 1
            messages = (await self._fetch(start)).message_detail
            if len(messages) >= PAGE:
                raise
        end = start + len(messages)
        if end <= self.offset:
            self.has_reached_end = True
        else:
            await self._note(start, keys_of(messages))
        self.offset = max(end, self.offset)
        return messages

    async def hides_rest(self) -> bool:
        """Return True if all pages are full first pages, so that there may be messages that no page shows."""
        if not self.is_repeating or len(self._latest) < PAGE:
            return False
        if self._latest_start and not await self._keys_at(0) <= self._latest:
            return False
        second = await self._keys_at(1)
        return len(second) >= PAGE and second <= self._latest

    async def _note(self, start: int, keys: frozenset[str]) -> None:
        """Compare a page with those before it, and set `is_repeating`.

        If pages repeat messages of the latest ones, the first of those is read again: if new faxes have shifted the
        same messages to several offsets, its offset now shows others. Otherwise the service ignores offsets, or those
        past the end; if its servers differ, it may return several pages in turn.
        """
        if not keys <= self._seen:
            self._seen |= keys
            self._latest, self._latest_start, self._repeats = set(keys), start, 0
        elif not keys <= self._latest:  # new faxes have shifted older pages to these offsets
            self._latest |= keys
        else:
            self._repeats += 1
            if self._repeats > 1:
                self.is_repeating = await self._keys_at(self._latest_start) <= self._latest
                if not self.is_repeating:
                    self._latest, self._latest_start, self._repeats = set(keys), start, 0

    async def _keys_at(self, offset: int) -> frozenset[str]:
        return keys_of((await self._fetch(offset)).message_detail)


def keys_of(messages: Sequence[FaxMessage]) -> frozenset[str]:
    """Return what identifies each of these messages."""
    return frozenset(map(key_of, messages))


def key_of(message: FaxMessage) -> str:
    """Return what identifies a message: its handle or, if it has none, a hash of the complete record."""
    return message.message_handle or f"\0{digest_of(message).hex()}"


def digest_of(message: FaxMessage) -> bytes:
    """Return a hash of all fields of a record: it differs from that of other records, and changes with the record."""
    return hashlib.blake2b(repr(attrs.astuple(message)).encode(), digest_size=16).digest()
