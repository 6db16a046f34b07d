"""The facade of the fax service."""

from __future__ import annotations

import functools
import itertools
from collections.abc import AsyncGenerator
from datetime import datetime
from typing import TYPE_CHECKING

from directsuite.core.call import validate_timeout
from directsuite.core.checks import POSITIVE
from directsuite.core.clock import make_unix_time
from directsuite.core.facade import Facade
from directsuite.core.iteration import Listing, Prefetch
from directsuite.errors import InvalidArgumentError, ResponseDecodeError
from directsuite.fax import operations
from directsuite.fax.models import FaxMessage, FaxMessageInformation
from directsuite.wire.models import require_instance

if TYPE_CHECKING:  # listings and watches are imported only when they are used, to start faster
    from directsuite.fax.watching import FetchPage, OnPoll


class Fax(Facade):
    """The status of fax messages. `suite.fax`; needs `fax_url` and a token.

    Every method raises TransportError if no usable response was received, and ServiceError if the service rejects the
    request, for example because the number or handle is unknown. Operations: specification 4.B.
    """

    async def get_single_message_info(
        self, fax_number: str, message_handle: str, *, timeout: float | None = None
    ) -> FaxMessageInformation:
        """Return the fax with this handle, in the list `message_detail`."""
        return await self._call(operations.GET_SINGLE_MESSAGE_INFO, fax_number, message_handle, timeout=timeout)

    async def get_multiple_message_info(
        self, fax_number: str, offset: int = 0, *, timeout: float | None = None
    ) -> FaxMessageInformation:
        """Return a page of messages of a fax number, newest first: ten, or fewer if the service has smaller pages.

        offset: number of newest messages to skip.
        """
        if type(offset) is not int or offset < 0:
            raise InvalidArgumentError("must be the number of messages to skip, 0 or more", parameter="offset")
        return await self._call(operations.GET_MULTIPLE_MESSAGE_INFO, fax_number, str(offset), timeout=timeout)

    def iter_messages(
        self, fax_number: str, *, limit: int | None = None, timeout: float | None = None
    ) -> Listing[FaxMessage]:
        """Yield the messages of a fax number, newest first, each once. The next page is fetched ahead.

        A message without a handle is identified by its complete record. Raises ResponseDecodeError if the service
        returns the same ten or more messages at every offset, so that other messages cannot be listed.

        limit: maximum number of messages. None: all messages.
        timeout: timeout of each request, in seconds.
        """
        if limit is not None and (type(limit) is not int or limit < 1):
            raise InvalidArgumentError("must be a number of messages, 1 or more, or None for all", parameter="limit")
        operations.GET_MULTIPLE_MESSAGE_INFO.validate_segments((fax_number, "0"))
        validate_timeout(timeout)
        return Listing(self._iter_new_messages(fax_number, limit, timeout))

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
        """Yield the existing records of a fax number, and then each new or changed record.

        - The records that one poll finds are yielded in order of `updated_ts`, earliest first.
        - Older faxes are polled only until they are complete, have failed, or have not changed for a day. A changed
          record without a handle counts as a new one.
        - The iterator ends if its `async with` block is left, if `aclose` is called, or if the suite is closed.
        - Failed polls are repeated after growing pauses, up to 15 minutes (or `interval` if that is longer), or up to
          an hour if the service requests it (Retry-After). The records found before the failure are yielded.
        - Errors that a repeat cannot resolve, such as AuthenticationError, are raised. Until one poll has succeeded,
          BadRequestError and NotFoundError are also raised, because the number or handle may be wrong.

        `directsuite guide faxes` has examples.

        interval: time between two polls, in seconds.
        since: an aware datetime, to continue an earlier watch. Existing records that were last updated before it are
            not yielded. A time in the future is set back by a day, or ignored if it is a day or more ahead; some
            records may then be yielded again. None: yield all.
        message_handle: handle of the only fax to watch. The iterator ends after the record that is complete or has
            failed. None: watch all faxes of the number.
        on_poll: called after each poll except the last, after its records were consumed, with its error or None, and
            the number of seconds until the next poll.
        timeout: timeout of each request, in seconds.
        """
        from directsuite.fax.watching import FaxPoller, correct_since, watch

        operations.GET_MULTIPLE_MESSAGE_INFO.validate_segments((fax_number, "0"))
        if message_handle is not None:
            operations.GET_SINGLE_MESSAGE_INFO.validate_segments((fax_number, message_handle))
        if not POSITIVE.predicate(interval):
            raise InvalidArgumentError("must be a number of seconds greater than 0", parameter="interval")
        if since is not None and require_instance(since, datetime, "since").utcoffset() is None:
            raise InvalidArgumentError("must be an aware datetime, with a time zone, or None", parameter="since")
        validate_timeout(timeout)
        fetch_page = self._make_fetch_page(fax_number, timeout)
        fetch_single = functools.partial(self.get_single_message_info, fax_number, timeout=timeout)
        clock, session = self.environment.clock, self.environment.session
        since = correct_since(since, make_unix_time(clock)())
        poller = FaxPoller(fetch_page, fetch_single, clock.monotonic, since, message_handle)
        return Listing(watch(poller, interval, session.sleep, lambda: session.closed, on_poll))

    async def _iter_new_messages(
        self, fax_number: str, limit: int | None, timeout: float | None
    ) -> AsyncGenerator[FaxMessage]:
        from directsuite.fax.watching import PageReader, get_message_key

        reader, seen = PageReader(self._make_fetch_page(fax_number, timeout)), set[str]()

        async def fetch(_: object) -> list[FaxMessage]:
            fresh: list[FaxMessage] = []
            for message in await reader.read():
                key = get_message_key(message)
                if key not in seen and len(seen) != limit:
                    seen.add(key)
                    fresh.append(message)
            if await reader.may_hide_messages():
                raise ResponseDecodeError(
                    "the service returns the same messages at every offset, so the older ones cannot be listed",
                    path="$.MessageDetail",
                    **operations.GET_MULTIPLE_MESSAGE_INFO.error_context,
                )
            return fresh

        steps = itertools.takewhile(lambda _: not reader.is_done and len(seen) != limit, itertools.count())
        async with Prefetch(steps, fetch, window=1) as pages:
            async for messages in pages:
                for message in messages:
                    yield message

    def _make_fetch_page(self, fax_number: str, timeout: float | None) -> FetchPage:
        return functools.partial(self.get_multiple_message_info, fax_number, timeout=timeout)
