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
    """True if the service returns the same page at any further offset."""
    hides_rest: bool = attrs.field(default=False, init=False)
    """True if that is a full first page at every offset, so that there may be messages that no page shows."""
    _keys: frozenset[str] = attrs.field(default=frozenset(), init=False)  # of the previous page
    _starts: list[int] = attrs.field(factory=list[int], init=False)  # of the last pages, which had these keys

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
        keys = keys_of(messages)
        end = start + len(messages)
        if end <= self.offset:
            self.has_reached_end = True
        elif keys != self._keys:
            self._keys, self._starts = keys, [start]
        else:
            self._starts.append(start)
            if len(self._starts) > 2:
                await self._compare_again(self._starts[0], keys)
        self.offset = max(end, self.offset)
        return messages

    async def _compare_again(self, first: int, keys: frozenset[str]) -> None:
        """Find out why the last three pages are the same, by reading the first of them again.

        If new faxes have shifted the same messages to all three offsets, the first offset now shows others. Otherwise
        the service ignores offsets, or those past the end.
        """
        self.is_repeating = await self._keys_at(first) == keys
        if self.is_repeating and first == 0 and len(keys) >= PAGE:
            self.hides_rest = await self._keys_at(1) == keys

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
