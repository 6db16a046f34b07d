"""The facade of the fax service."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator

from directsuite.core.facade import Facade
from directsuite.core.listing import FetchedAhead, Listing
from directsuite.errors import InvalidArgumentError
from directsuite.fax import operations
from directsuite.fax.models import FaxMessage, FaxMessageInformation
from directsuite.wire import codec

PAGE = 10
"""Messages that one answer of getMultipleMessageInfo holds (specification section 8)."""


class Fax(Facade):
    """The status of fax messages. `suite.fax`; needs `fax_url` and a token.

    Every method raises TransportError where no usable answer came, ServiceError where the service said no.
    """

    async def get_single_message_info(
        self, fax_number: str, message_handle: str, *, timeout: float | None = None
    ) -> FaxMessageInformation:
        """One message, by its fax number and handle.

        Operation getSingleMessageInfo (specification 4.B).
        """
        return await self._call(operations.GET_SINGLE_MESSAGE_INFO, fax_number, message_handle, timeout=timeout)

    async def get_multiple_message_info(
        self, fax_number: str, offset: int = 0, *, timeout: float | None = None
    ) -> FaxMessageInformation:
        """Ten messages of a fax number, newest first, after skipping `offset` of them.

        Operation getMultipleMessageInfo (specification 4.B).
        """
        if type(offset) is not int or offset < 0:
            raise InvalidArgumentError("give the number of messages to skip, 0 or more", parameter="offset")
        return await self._call(operations.GET_MULTIPLE_MESSAGE_INFO, fax_number, str(offset), timeout=timeout)

    def iter_messages(
        self, fax_number: str, *, limit: int | None = None, timeout: float | None = None
    ) -> Listing[FaxMessage]:
        """All messages of a fax number, newest first, at the most `limit` of them: page by page, one page ahead.

        Faxes that arrive meanwhile shift the pages: each message still comes once, told apart by its handle or, where
        it has none, by the whole record. `timeout` holds for each page.
        """
        if limit is not None and (type(limit) is not int or limit < 1):
            raise InvalidArgumentError("give a number of messages, 1 or more, or None for all", parameter="limit")
        operations.GET_MULTIPLE_MESSAGE_INFO.check((fax_number, "0"))
        return Listing(self._messages(fax_number, limit, timeout))

    async def _messages(self, fax_number: str, limit: int | None, timeout: float | None) -> AsyncGenerator[FaxMessage]:
        pages = _Pages(limit)

        async def fetch(offset: int) -> list[FaxMessage]:
            """What a page brings that is new."""
            return pages.unseen(
                (await self.get_multiple_message_info(fax_number, offset, timeout=timeout)).message_detail
            )

        async with FetchedAhead(pages, fetch, window=1) as answers:
            async for messages in answers:
                for message in messages:
                    yield message


class _Pages(Iterator[int]):
    """The offsets of the pages, for as long as the pages before them leave anything to ask for."""

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._offset = 0
        self._seen: set[object] = set()
        self._barren = 0
        self._ended = False

    def __next__(self) -> int:
        if self._ended:
            raise StopIteration
        offset, self._offset = self._offset, self._offset + PAGE
        return offset

    def unseen(self, page: list[FaxMessage]) -> list[FaxMessage]:
        """The messages of the latest page that came on none before, as many as are wanted."""
        fresh: list[FaxMessage] = []
        for message in page:
            key = message.message_handle or codec.encode(message)
            if key not in self._seen and len(self._seen) != self._limit:
                self._seen.add(key)
                fresh.append(message)
        # A page of known messages may only have been shifted by new ones; two running are a server that repeats.
        self._barren = 0 if fresh else self._barren + 1
        self._ended = len(page) < PAGE or self._barren == 2 or len(self._seen) == self._limit
        return fresh
