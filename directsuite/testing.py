"""For users' own tests: the four services answered from memory, without a socket.

    with directsuite.testing.mocked_services() as mocked:
        mocked.post(f"{message_url}/GetMessageCount/INBOX", payload={"success": True, "count": 3})
        assert await suite.mailbox("alice@direct.example.test", "...").get_message_count() == 3

It builds on the package aioresponses, which directsuite itself doesn't depend on. What needs a real connection, such as
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
    from collections.abc import Iterator

    from aioresponses import aioresponses


@contextmanager
def mocked_services(**options: Any) -> Iterator[aioresponses]:
    """An `aioresponses` object that answers all that aiohttp is asked for until the block ends.

    It works with the aiohttp that directsuite needs, and does three things more: `requests` and callbacks get the body
    as bytes (`kwargs["data"]`); URLs match however their characters are quoted; a request without a mocked answer raises
    AssertionError at once, where aioresponses alone reports a connection error, which directsuite would try again.

    options: those of aioresponses, such as `passthrough`. Raises ModuleNotFoundError where aioresponses is missing.
    """
    # aioresponses 0.7.9 leaves out an argument that ClientResponse has required since aiohttp 3.14.
    with patch("aioresponses.core.ClientResponse", _Answer) if _installed() else _missing(), _mock()(**options) as mocked:
        yield mocked
