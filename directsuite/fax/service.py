"""The facade of the fax service."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from directsuite.core.facade import Facade
from directsuite.core.listing import Listing
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
        """All messages of a fax number, newest first, page by page; at the most `limit` of them.

        Faxes that arrive meanwhile shift the pages: each message still comes once, told apart by its handle or, where
        it has none, by the whole record. `timeout` holds for each page.
        """
        if limit is not None and (type(limit) is not int or limit < 1):
            raise InvalidArgumentError("give a number of messages, 1 or more, or None for all", parameter="limit")
        operations.GET_MULTIPLE_MESSAGE_INFO.check((fax_number, "0"))
        return Listing(self._pages(fax_number, limit, timeout))

    async def _pages(self, fax_number: str, limit: int | None, timeout: float | None) -> AsyncGenerator[FaxMessage]:
        seen: set[object] = set()
        offset = 0
        barren = 0
        while True:
            page = (await self.get_multiple_message_info(fax_number, offset, timeout=timeout)).message_detail
            known = len(seen)
            for message in page:
                key = message.message_handle or codec.encode(message)
                if key in seen:
                    continue
                seen.add(key)
                yield message
                if len(seen) == limit:
                    return
            # A page of known messages may only have been shifted by new ones; two running are a server that repeats.
            barren = barren + 1 if len(seen) == known else 0
            if len(page) < PAGE or barren == 2:
                return
            offset += PAGE
