"""The four services answered from memory, without a socket.

    from directsuite.testing import mocked_services

    with mocked_services() as mocked:
        mocked.post(f"{message_url}/GetMessageCount/INBOX", payload={"success": True, "count": 3})
        assert await suite.mailbox("alice@direct.example.test", "...").get_message_count() == 3

It builds on the package aioresponses, which the extra `testing` brings. What needs a real connection, such as
time-outs, dropped connections and redirects, is for `directsuite.sandbox`.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import AsyncMock, Mock, patch

from aiohttp import ClientResponse, ClientSession
from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import Payload
from yarl import URL

if TYPE_CHECKING:
    from collections.abc import Generator

    from aioresponses import aioresponses


@contextmanager
def mocked_services(
    **options: Any,
) -> Generator[Any]:  # its own types are incomplete
    """An `aioresponses` object that answers whatever aiohttp is asked for until the block ends.

    It works with the aiohttp that directsuite needs, and does three things more: `requests` and callbacks get the body
    as bytes (`kwargs["data"]`); URLs match however their characters are quoted; and a request without a mocked answer
    raises AssertionError at once, where aioresponses alone reports a connection error that directsuite would retry.

    options: those of aioresponses, such as `passthrough`. Raises ModuleNotFoundError where aioresponses is missing.
    """
    mocked = _make_mock_class()(**options)
    # aioresponses 0.7.9 leaves out an argument that ClientResponse requires since aiohttp 3.14.
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
        text = "mocked_services needs the package aioresponses: pip install aioresponses"
        raise ModuleNotFoundError(text, name="aioresponses") from None

    class MockedServices(aioresponses):
        async def _request_mock(
            self, orig_self: ClientSession, method: str, url: URL | str, *args: Any, **kwargs: Any
        ) -> ClientResponse:
            if isinstance(kwargs.get("data"), Payload):
                kwargs["data"] = await _read_content(kwargs["data"])
            # The client quotes more than a URL needs, '@' for one; parsed from text, both sides are quoted alike.
            mock: Any = super()  # whose types are incomplete
            response: ClientResponse = await mock._request_mock(orig_self, method, URL(str(url)), *args, **kwargs)
            return response

        async def match(
            self, method: str, url: URL, allow_redirects: bool = True, **kwargs: Any
        ) -> ClientResponse | None:
            response = await super().match(method, url, allow_redirects=allow_redirects, **kwargs)
            if response is None and not self.passthrough_unmatched:
                raise AssertionError(f"no answer is mocked for {method} {url}, or none is left")
            return response

    return MockedServices


async def _read_content(body: Payload) -> bytes:
    """What a body writes, by letting it write: a body that streams a file has no other way to tell."""
    writer = AsyncMock(spec=AbstractStreamWriter)
    await body.write(writer)
    return b"".join(call.args[0] for call in writer.write.await_args_list)
