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
    """True if the service returned the same page at two offsets, so that reading on shows no others."""
    hides_rest: bool = attrs.field(default=False, init=False)
    """True if that is a full first page at every offset, so that there may be messages that no page shows."""
    _previous: tuple[int, frozenset[str]] | None = attrs.field(default=None, init=False)  # offset and keys of a page

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
        elif self._previous is not None and self._previous[1] == keys:
            await self._compare_again(self._previous[0], keys)
        self._previous, self.offset = (start, keys), max(end, self.offset)
        return messages

    async def _compare_again(self, before: int, keys: frozenset[str]) -> None:
        """Find out why this page is the same as the one before it, by reading that one (at `before`) again.

        If faxes have arrived in between, the earlier offset now shows others. Otherwise the service ignores offsets, or
        those past the end.
        """
        self.is_repeating = await self._keys_at(before) == keys
        if self.is_repeating and before == 0 and len(keys) >= PAGE:
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
