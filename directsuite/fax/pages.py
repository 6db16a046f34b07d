"""Read the list of a fax number's messages page by page, and detect the end of the list.

The list starts with the newest message. If faxes arrive while it is read, later pages shift and repeat messages. The
page size differs between services. Therefore a short page, or one without new messages, is not the end of the list.

The *key* of a message is its handle or, if it has none, a hash of the complete record.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence

import attrs

from directsuite.errors import NotFoundError
from directsuite.fax.models import FaxMessage, FaxMessageInformation

FULL_PAGE_MESSAGES = 10
"""The page size of the specification (section 8). Some services have smaller pages."""

FetchPage = Callable[[int], Awaitable[FaxMessageInformation]]
"""Requests the page that starts at an offset: the number of newest messages to skip."""


@attrs.define(eq=False, repr=False)
class PageReader:
    """Reads successive pages from `offset` to the end of the list."""

    _fetch: FetchPage
    offset: int = 0
    """The offset of the next page."""
    has_reached_end: bool = attrs.field(default=False, init=False)
    """True if there are no messages at `offset`."""
    is_repeating: bool = attrs.field(default=False, init=False)
    """True if the service returns the same messages at all further offsets."""
    # The keys on all pages.
    _seen_keys: set[str] = attrs.field(factory=set[str], init=False)
    # The keys on the latest page with a new message, and on the pages after it.
    _latest_keys: set[str] = attrs.field(factory=set[str], init=False)
    # The offset of the first of those pages.
    _latest_start: int = attrs.field(default=0, init=False)
    # The number of pages since then that had only messages of `_latest_keys`.
    _repeats: int = attrs.field(default=0, init=False)

    @property
    def is_done(self) -> bool:
        """True if no further page has new messages."""
        return self.has_reached_end or self.is_repeating

    async def read(self) -> Sequence[FaxMessage]:
        """Return the next page. At the end of the list it is empty, or only repeats messages of earlier pages.

        Some services respond with a 404 at the end of the list, but a 404 may also be a temporary failure. It is the
        end if the page that starts one message earlier is not full. That page is returned then. NotFoundError is raised
        if it is full or also a 404, or if the first page is a 404.
        """
        start = self.offset
        try:
            messages = (await self._fetch(start)).message_detail
        except NotFoundError:
            if start == 0:
                raise
            start -= 1
            messages = (await self._fetch(start)).message_detail
            if len(messages) >= FULL_PAGE_MESSAGES:
                raise
        end = start + len(messages)
        if end <= self.offset:
            self.has_reached_end = True
        else:
            await self._record_page(start, get_message_keys(messages))
        self.offset = max(end, self.offset)
        return messages

    async def may_hide_messages(self) -> bool:
        """Return True if the service returns the same full page at all offsets, so that other messages may exist."""
        if not self.is_repeating or len(self._latest_keys) < FULL_PAGE_MESSAGES:
            return False
        if self._latest_start and not await self._fetch_keys(0) <= self._latest_keys:
            return False
        second = await self._fetch_keys(1)
        return len(second) >= FULL_PAGE_MESSAGES and second <= self._latest_keys

    async def _record_page(self, start: int, keys: frozenset[str]) -> None:
        """Compare a page with earlier pages, and set `is_repeating`.

        After two pages with only messages of `_latest_keys`, the page at `_latest_start` is read again. If it has other
        messages now, new faxes have shifted the list. Otherwise the service ignores offsets, at least those after the
        end.
        """
        if not keys <= self._seen_keys:
            self._seen_keys |= keys
            self._latest_keys, self._latest_start, self._repeats = set(keys), start, 0
        elif (
            not keys <= self._latest_keys
        ):  # new faxes have shifted older pages here, or servers of the service alternate
            self._latest_keys |= keys
        else:
            self._repeats += 1
            if self._repeats > 1:
                self.is_repeating = await self._fetch_keys(self._latest_start) <= self._latest_keys
                if not self.is_repeating:
                    self._latest_keys, self._latest_start, self._repeats = set(keys), start, 0

    async def _fetch_keys(self, offset: int) -> frozenset[str]:
        return get_message_keys((await self._fetch(offset)).message_detail)


def get_message_keys(messages: Sequence[FaxMessage]) -> frozenset[str]:
    """Return the messages' keys."""
    return frozenset(map(get_message_key, messages))


def get_message_key(message: FaxMessage) -> str:
    """Return the message's key."""
    return message.message_handle or f"\0{compute_record_digest(message).hex()}"


def compute_record_digest(message: FaxMessage) -> bytes:
    """Return a hash of all fields of a record."""
    return hashlib.blake2b(repr(attrs.astuple(message)).encode(), digest_size=16).digest()
