"""The facade of the fax service."""

from __future__ import annotations

import functools
import itertools
from collections.abc import AsyncGenerator
from datetime import datetime

from directsuite.core.call import refuse_timeout
from directsuite.core.checks import POSITIVE
from directsuite.core.clock import unix_time
from directsuite.core.facade import Facade
from directsuite.core.iteration import Listing, Prefetch
from directsuite.errors import InvalidArgumentError, ResponseDecodeError
from directsuite.fax import operations
from directsuite.fax.models import FaxMessage, FaxMessageInformation
from directsuite.fax.pages import FetchPage, PageReader, key_of
from directsuite.fax.watching import FaxPoller, OnPoll, watch
from directsuite.wire.models import require_instance


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
        """Yield the messages of a fax number, newest first, at most `limit` of them. The next page is read ahead.

        Pages may have any size; the listing ends at an empty page. Faxes that arrive meanwhile shift the pages: each
        message is still yielded once, identified by its handle or, if it has none, by the complete record. A 404 after
        the last message is also the end. Raises ResponseDecodeError if the service returns the same messages at every
        offset, ten or more, so that others cannot be listed. `timeout` holds for each page.
        """
        if limit is not None and (type(limit) is not int or limit < 1):
            raise InvalidArgumentError("give a number of messages, 1 or more, or None for all", parameter="limit")
        operations.GET_MULTIPLE_MESSAGE_INFO.check((fax_number, "0"))
        return Listing(self._messages(fax_number, limit, timeout))

    def watch(
        self,
        fax_number: str,
        *,
        interval: float = 60.0,
        since: datetime | None = None,
        message_handle: str | None = None,
        on_poll: OnPoll | None = None,
        timeout: float | None = None,
    ) -> Listing[FaxMessage]:
        """The records of a fax number, first those that are there, then each that is new or has changed, until closed.

        It polls every `interval` seconds (with getMultipleMessageInfo and getSingleMessageInfo, specification 4.B) and
        gives what a poll finds by `updated_ts`, the oldest first. A poll ends at the first page on which nothing is
        new; older faxes are polled while they are under way, up to a day without a change, but no others. A record
        that has no handle is another one when it changes.

        since: an aware datetime, for one who goes on after an earlier watch: records last updated before it are left
        out at first, and so are pages that lie a day before it. One in the future, set by a clock that was ahead, is
        set back by a day, and ignored if it is a week ahead: records may then come again, and no new one is left out.

        It ends when the loop is left (`async with`, or `aclose`) or the suite is closed. Requests that fail are made
        again later, at ever longer intervals up to a quarter of an hour, or an hour where the service asks for that or
        more (Retry-After); messages found before them are yielded, and the newest are polled first. Only an error that
        every request would repeat, such as AuthenticationError, is raised, and at the first poll BadRequestError or
        NotFoundError if the service refuses a number or handle.

        message_handle: of the one fax to watch, however old it is; then it ends with the record that is complete, or
        failed. on_poll: called after each poll that isn't the last, when what it found was taken, with the error it
        failed with or None, and the seconds until the next. timeout: of each request.
        """
        operations.GET_MULTIPLE_MESSAGE_INFO.check((fax_number, "0"))
        if message_handle is not None:
            operations.GET_SINGLE_MESSAGE_INFO.check((fax_number, message_handle))
        if not POSITIVE.fits(interval):
            raise InvalidArgumentError("give seconds, more than 0", parameter="interval")
        if since is not None and require_instance(since, datetime, "since").utcoffset() is None:
            raise InvalidArgumentError("give an aware datetime, with a time zone, or None", parameter="since")
        refuse_timeout(timeout)
        fetch_page = self._fetch_page(fax_number, timeout)
        fetch_single = functools.partial(self.get_single_message_info, fax_number, timeout=timeout)
        runtime = self.runtime
        now = unix_time(runtime.clock)
        poller = FaxPoller(fetch_page, fetch_single, runtime.clock.monotonic, since, message_handle, now)
        return Listing(watch(poller, interval, runtime.sleep, runtime.is_closed, on_poll))

    async def _messages(self, fax_number: str, limit: int | None, timeout: float | None) -> AsyncGenerator[FaxMessage]:
        reader, seen = PageReader(self._fetch_page(fax_number, timeout)), set[str]()

        def has_more() -> bool:
            """Return True if another page has to be read."""
            return not reader.is_done and len(seen) != limit

        async def fetch(_: object) -> list[FaxMessage]:
            """Return the messages of the next page that were on no page before, up to the limit."""
            fresh: list[FaxMessage] = []
            for message in await reader.read():
                key = key_of(message)
                if key not in seen and len(seen) != limit:
                    seen.add(key)
                    fresh.append(message)
            if await reader.hides_rest():
                raise ResponseDecodeError(
                    "the service returns the same messages at every offset, so that others cannot be listed",
                    path="$.MessageDetail",
                    **operations.GET_MULTIPLE_MESSAGE_INFO.about,
                )
            return fresh

        steps = itertools.takewhile(lambda _: has_more(), itertools.count())
        async with Prefetch(steps, fetch, window=1) as pages:
            async for messages in pages:
                for message in messages:
                    yield message

    def _fetch_page(self, fax_number: str, timeout: float | None) -> FetchPage:
        return functools.partial(self.get_multiple_message_info, fax_number, timeout=timeout)
