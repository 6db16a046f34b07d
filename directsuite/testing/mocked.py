"""Mock responses of the four services, without a socket.

    from directsuite.testing import mocked_services

    with mocked_services() as mocked:
        mocked.respond("GetMessageCount", folder="INBOX", count=3)
        assert await suite.mailbox("alice@direct.example.test", "...").get_message_count() == 3

It requires the package aioresponses (extra `testing`). For tests of timeouts, dropped connections and redirects, use
`directsuite.sandbox`.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import AsyncMock, Mock, patch

from aiohttp import ClientResponse, ClientSession
from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import Payload
from yarl import URL

from directsuite.testing.responses import response

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from aioresponses import aioresponses


@contextmanager
def mocked_services(
    **options: Any,
) -> Generator[Any]:  # the types of aioresponses are incomplete
    """Yield an `aioresponses` object that responds to all requests of aiohttp until the block ends.

    Unlike aioresponses alone, it supports newer versions of aiohttp, passes bodies to `requests` and callbacks as bytes
    (`kwargs["data"]`), and matches URLs however their characters are quoted. A request without a mocked response raises
    AssertionError instead of a connection error, after which directsuite would retry.

    It also has the method `respond(operation, *, repeat=False, headers=None, **values)`, which adds the response to the
    next request of an operation, whatever the URL of the service. `help(mocked.respond)` describes its parameters.

    Pass `clock=LeapingClock()` to the suite, so that tests do not wait before retries.

    options: those of aioresponses, such as `passthrough`.

    Raises ModuleNotFoundError if aioresponses is not installed.
    """
    mocked = _make_mock_class()(**options)
    # aioresponses 0.7.9 omits an argument that ClientResponse requires since aiohttp 3.14.
    with patch("aioresponses.core.ClientResponse", _MockedResponse), mocked:
        yield mocked


class _MockedResponse(ClientResponse):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("stream_writer", Mock(output_size=0))
        super().__init__(*args, **kwargs)


def _make_mock_class() -> type[aioresponses]:
    try:
        from aioresponses import aioresponses
    except ModuleNotFoundError as error:
        if error.name != "aioresponses":
            raise
        text = "mocked_services needs the package aioresponses. Run: pip install aioresponses"
        raise ModuleNotFoundError(text, name="aioresponses") from None

    class MockedServices(aioresponses):
        def respond(
            self, operation: str, *, repeat: bool = False, headers: Mapping[str, str] | None = None, **values: Any
        ) -> None:
            """Add the response to the next request of an operation, whatever the URL of the service.

            operation: the name in the specification, such as "GetUIDs".
            repeat: use it for all further requests of the operation.
            headers: the headers of the response, such as {"Retry-After": "120"}.
            values: `status`, the parameters of the path, and the fields of the response, as for
                `directsuite.testing.response`.

            Raises ValueError and TypeError as `response` does.
            """
            answer = response(operation, **values)
            path = re.escape(str(URL(f"/{answer.path}")))  # quoted as in the URL of the request
            mock: Any = self
            mock.add(
                re.compile(f".*{path}$"),
                answer.method,
                status=answer.status,
                body=answer.body,
                headers=headers,
                repeat=repeat,
            )

        async def _request_mock(
            self, orig_self: ClientSession, method: str, url: URL | str, *args: Any, **kwargs: Any
        ) -> ClientResponse:
            if isinstance(kwargs.get("data"), Payload):
                kwargs["data"] = await _read_content(kwargs["data"])
            # The client quotes some characters, such as '@'. Parsing the text makes both URLs equal.
            mock: Any = super()
            response: ClientResponse = await mock._request_mock(orig_self, method, URL(str(url)), *args, **kwargs)
            return response

        async def match(
            self, method: str, url: URL, allow_redirects: bool = True, **kwargs: Any
        ) -> ClientResponse | None:
            response = await super().match(method, url, allow_redirects=allow_redirects, **kwargs)
            if response is None and not self.passthrough_unmatched:
                raise AssertionError(f"No response is mocked for {method} {url}, or all of them were used.")
            return response

    return MockedServices


async def _read_content(body: Payload) -> bytes:
    # A body that streams a file has no other way to return its content.
    writer = AsyncMock(spec=AbstractStreamWriter)
    await body.write(writer)
    return b"".join(call.args[0] for call in writer.write.await_args_list)
