"""What keeps aiohttp from sending a request twice."""

from __future__ import annotations

import aiohttp

from directsuite.core.outcome import ConnectionDroppedError
from directsuite.core.upload import Outgoing

SENT_TWICE = frozenset({"GET", "PUT", "DELETE"})
"""Those of our methods that aiohttp sends again by itself; others need no middleware, which costs some time."""


class Sending:
    """One attempt's client middleware: a dropped connection is reported, not silently sent again.

    begun: whether anything of a request may have left, once aiohttp was asked to send it. A body knows that best; of a
    request without one, aiohttp writes all it has when it makes the response object.
    """

    def __init__(self, outgoing: Outgoing | None) -> None:
        self._outgoing = outgoing
        self._written = False

    @property
    def begun(self) -> bool:
        """Whether anything of the request may have left."""
        return self._written if self._outgoing is None else self._outgoing.started

    async def __call__(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Send, once."""
        request.headers.pop("Cookie", None)  # of a session of the user's: they would go from one mailbox to another
        try:
            return await handler(request)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError):
            raise
        except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
            raise ConnectionDroppedError(error) from None
        finally:
            self._written = request.response is not None
