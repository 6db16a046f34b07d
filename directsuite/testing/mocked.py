"""Mock responses of the four services, without a socket.

    from directsuite.testing import mocked_services

    with mocked_services() as mocked:
        mocked.respond("GetMessageCount", folder="INBOX", count=3)
        assert await suite.mailbox("alice@direct.example.test", "...").get_message_count() == 3

It requires the package aioresponses (extra `testing`). For tests of redirects, and of responses that depend on earlier
requests, use `directsuite.sandbox`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any
from unittest.mock import ANY, patch
from urllib.parse import quote

from aiohttp import ClientError, ClientResponse, ClientSession
from aiohttp.payload import Payload
from yarl import URL

from directsuite.core.attempt import Attempt
from directsuite.core.operation import MediaType
from directsuite.core.privacy import EXPECTED_ATTR
from directsuite.testing.responses import describe_request, find_operation, find_parameters, response

try:
    from aioresponses import aioresponses
except ModuleNotFoundError as error:
    text = "Mocked responses need the package aioresponses. Run: pip install aioresponses"
    raise ModuleNotFoundError(text, name=error.name) from None

_ANY_SEGMENT = quote(str(ANY), safe="")
_SERVICES = ("signing", "fax", "message", "registration")


class MockedServices(aioresponses):
    """Mocked responses of the services. A subclass of `aioresponses`, with its methods."""

    requests: dict[tuple[str, URL], list[Any]]
    """The requests by HTTP method and URL. Their `kwargs["data"]` is the body as bytes."""
    unexpected: list[str]
    """The requests without a mocked response, such as "GetUIDs (folder='INBOX')"."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)

        async def request(session: ClientSession, method: str, url: URL | str, *args: Any, **kwargs: Any) -> Any:
            return await self._request_mock(session, method, url, *args, **kwargs)

        # The mock that aioresponses would use checks the signature, which takes longer than most tests.
        patcher: Any = patch.object(ClientSession, "_request", request)
        self.patcher = patcher
        self.unexpected = []
        self._defined: dict[str, str] = {}
        self._sent: list[tuple[str, Any]] = []
        """The body of each request, with its operation."""

    @property
    def environment(self) -> dict[str, str]:
        """The variables for `DirectSuite.from_env`, with URLs at which no server exists."""
        return {
            **{f"DIRECTSUITE_{name.upper()}_URL": f"https://{name}.example.test" for name in _SERVICES},
            "DIRECTSUITE_TOKEN": "access-token",
            "DIRECTSUITE_LOGIN_USERNAME": "reseller",
            "DIRECTSUITE_LOGIN_PASSWORD": "secret",
        }

    @property
    def unused(self) -> list[str]:
        """The responses that were not requested, such as "GetUIDs (folder='INBOX')", in the order of their definition.

        A response that was defined by a method of aioresponses is listed as its HTTP method and URL. Responses with
        `repeat=True` are not listed.
        """
        matches: dict[str, Any] = self._matches
        return [self._describe_response(key) for key, match in matches.items() if match.repeat is not True]

    def bodies(self, operation: str) -> list[Any]:
        """Return the bodies of all requests of an operation, in their order: JSON decoded, others as bytes or None.

        That of Save is the base64 text of the PDF.
        """
        __tracebackhide__ = True
        is_json = find_operation(operation).content_type is MediaType.JSON
        return [json.loads(body) if is_json and body else body for name, body in self._sent if name == operation]

    def respond(
        self,
        operation: str,
        *,
        repeat: bool = False,
        headers: Mapping[str, str | int] | None = None,
        exception: ClientError | TimeoutError | None = None,
        **values: Any,
    ) -> None:
        """Add the response to the next request of an operation, whatever the URL of the service.

        operation: the name in the specification, such as "GetUIDs".
        repeat: use it for all further requests of the operation. There need not be any.
        headers: the headers of the response, such as {"Retry-After": "120"}.
        exception: what aiohttp raises instead of a response, such as TimeoutError(), or
            aiohttp.ServerDisconnectedError() for a lost connection.
        values: `status`, the parameters of the path, and the fields of the response, as for
            `directsuite.testing.response`. With `exception`, only the parameters. `unittest.mock.ANY` matches any value
            of a parameter.

        Raises ValueError and TypeError as `response` does.
        """
        __tracebackhide__ = True
        if exception is not None:
            if not isinstance(exception, ClientError | TimeoutError):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError(
                    "exception must be TimeoutError(), or one of aiohttp, such as aiohttp.ServerDisconnectedError()"
                )
            extra = values.keys() - set(find_parameters(find_operation(operation)))
            if extra or headers is not None:
                raise TypeError(
                    f"with exception, give only the parameters of the path, and no {min(extra or ['headers'])}"
                )
            values["status"] = HTTPStatus.INTERNAL_SERVER_ERROR  # this response needs no fields
        answer = response(operation, **values)
        path = URL(f"/{answer.path}")  # quoted as in the URL of the request
        mock: Any = self
        mock.add(
            re.compile(f".*{re.escape(str(path)).replace(_ANY_SEGMENT, '[^/]+')}$"),
            answer.method,
            status=answer.status,
            body=answer.body,
            headers={name: str(value) for name, value in (headers or {}).items()},
            exception=exception,
            repeat=repeat,
        )
        self._defined[[*self._matches][-1]] = describe_request(answer.method, path)

    def stop(self) -> None:
        """End the mocking. `unexpected`, `unused` and `requests` remain available."""
        matches = self._matches.copy()
        super().stop()
        self._matches = matches

    async def _request_mock(
        self, orig_self: ClientSession, method: str, url: URL | str, *args: Any, **kwargs: Any
    ) -> ClientResponse:
        if isinstance(kwargs.get("data"), Payload):
            # A body that streams a file has no other way to return its content.
            chunks = list[bytes]()

            async def write(chunk: bytes | memoryview) -> None:
                chunks.append(bytes(chunk))

            writer: Any = SimpleNamespace(write=write)
            await kwargs["data"].write(writer)
            kwargs["data"] = b"".join(chunks)
        self._sent.append((describe_request(method, URL(str(url))).split()[0], kwargs.get("data")))
        mock: Any = super()

        async def respond(_: object) -> ClientResponse:
            # The client quotes some characters, such as '@'. Parsing the text makes both URLs equal.
            response: ClientResponse = await mock._request_mock(orig_self, method, URL(str(url)), *args, **kwargs)
            return response

        for middleware in kwargs.get("middlewares") or ():  # those of other programs are ignored, as by aioresponses
            if isinstance(getattr(middleware, "__self__", None), Attempt):
                kwargs["middlewares"] = ()
                request: Any = SimpleNamespace(headers={}, response=True)
                sent: ClientResponse = await middleware(request, respond)
                return sent
        return await respond(None)

    async def match(self, method: str, url: URL, allow_redirects: bool = True, **kwargs: Any) -> ClientResponse | None:
        """Return the mocked response to a request. Raises AssertionError if there is none."""
        response = await super().match(method, url, allow_redirects=allow_redirects, **kwargs)
        if response is None and not self.passthrough_unmatched:
            request = describe_request(method, url)
            self.unexpected.append(request)
            error = AssertionError(self._describe_lack(request))
            setattr(error, EXPECTED_ATTR, True)
            raise error
        return response

    def _describe_lack(self, request: str) -> str:
        used = [each for key, each in self._defined.items() if key not in self._matches]
        lists = {
            "Already used": [each for each in used if each.split()[0] == request.split()[0]],
            "Responses left": [self._describe_response(key) for key in self._matches],
        }
        texts = [f"{title}: {', '.join(each)}." for title, each in lists.items() if each]
        return " ".join([f"No response is mocked for {request}.", *texts])

    def _describe_response(self, key: str) -> str:
        match: Any = self._matches[key]
        return self._defined.get(key, f"{match.method.upper()} {match.url_or_pattern}")


@contextmanager
def mocked_services(**options: Any) -> Generator[Any]:  # the types of aioresponses are incomplete
    """Yield a MockedServices object that responds to all requests of aiohttp until the block ends.

    Unlike aioresponses alone, it supports newer versions of aiohttp, passes bodies to `requests` and callbacks as bytes
    (`kwargs["data"]`), and matches URLs however their characters are quoted. A request without a mocked response raises
    AssertionError instead of a connection error, after which directsuite would retry.

    Its method `respond` adds the response to the next request of an operation. `unexpected` lists the requests without
    a response, and `unused` the responses that were not requested. `assert mocked.unexpected == mocked.unused == []`
    checks that there are none, as the fixture `directsuite_mocked` does.

    Pass `clock=LeapingClock()` to the suite, so that tests do not wait before retries.

    options: those of aioresponses, such as `passthrough`.
    """
    mocked = MockedServices(**options)
    # aioresponses 0.7.9 omits an argument that ClientResponse requires since aiohttp 3.14.
    with patch("aioresponses.core.ClientResponse", _MockedResponse), mocked:
        yield mocked


class _MockedResponse(ClientResponse):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("stream_writer", SimpleNamespace(output_size=0))
        super().__init__(*args, **kwargs)
