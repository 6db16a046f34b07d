"""The request of each operation on a socket, byte by byte, and the value that the method returns for its response."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncGenerator

import pytest

import directsuite as ds
from tests.core import responses
from tests.core.scripted_server import Exchange, Request, ScriptedServer

from . import OPERATIONS, VARIANTS
from .case import LOGIN, TOKEN, OperationCase

CASES = [*OPERATIONS.values(), *VARIANTS]


@contextlib.asynccontextmanager
async def open_suite(case: OperationCase) -> AsyncGenerator[tuple[ds.DirectSuite, ScriptedServer]]:
    """Open a suite and a server that sends the response of the case, and that of `login` to logins."""
    media_type = "text/plain" if isinstance(case.response, bytes) else "application/json"
    respond = responses.respond(case.response, Content_Type=media_type)
    respond_to_login = responses.respond(OPERATIONS["login"].response)

    async def choose(exchange: Exchange) -> None:
        await (respond_to_login if exchange.request.target.endswith("/login") else respond)(exchange)

    async with ScriptedServer(choose) as server:
        settings = ds.Settings(
            signing_url=server.url("signing"),
            fax_url=server.url("fax"),
            message_url=server.url("message"),
            registration_url=server.url("registration"),
        )
        async with ds.DirectSuite(settings, token=TOKEN, login=LOGIN) as suite:
            yield suite, server


def is_list(argument: object) -> bool:
    return hasattr(argument, "append")


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_request_and_result(case: OperationCase) -> None:
    async with open_suite(case) as (suite, server):
        result = await case.call(suite)
    assert result == case.result
    assert isinstance(result, type(case.result))
    *logins, request = server.requests
    needs_session = case.facade == "registration" and case.name != "login"
    assert [login.target for login in logins] == ["/registration/login"] * needs_session
    assert_is_request_of(request, case)


@pytest.mark.parametrize(
    "case", [case for case in OPERATIONS.values() if any(map(is_list, case.arguments.values()))], ids=str
)
async def test_lists_of_arguments_may_be_iterators(case: OperationCase) -> None:
    iterators = {name: iter(each) for name, each in case.arguments.items() if is_list(each)}
    async with open_suite(case) as (suite, server):
        await case.call(suite, iterators)
    assert_is_request_of(server.requests[-1], case)


def assert_is_request_of(request: Request, case: OperationCase) -> None:
    assert (request.method, request.target) == (case.method, case.target)
    assert {name: request.headers.get(name) for name in case.headers} == dict(case.headers)
    assert not {"cookie", "authorization"} & (request.headers.keys() - case.headers.keys())
    if isinstance(case.body, bytes):
        assert request.body == case.body
    else:  # As text, because True equals 1 in Python.
        assert json.dumps(request.document, sort_keys=True) == json.dumps(case.body, sort_keys=True)
