"""Tokens, logins and mailboxes: accepted or refused, and nothing changed by asking."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable

import pytest
from aiohttp import web

from directsuite.cli import doctor_checks
from directsuite.errors import ConnectFailedError
from directsuite.sandbox.server import Sandbox
from tests.cli.doctor.conftest import Machine, server
from tests.integration.world import ALICE, PASSWORD

WRONG = "no-such-secret-9f3a"


def take(machine: Machine, sandbox: Sandbox, **others: str) -> None:
    for name, value in {**sandbox.environment, **others}.items():
        machine.set(name, value)


async def test_all_is_well_with_all_four_services_and_nothing_is_changed(machine: Machine, sandbox: Sandbox) -> None:
    take(machine, sandbox, DIRECTSUITE_MAILBOX_PASSWORD=PASSWORD)
    told = await machine.doctor("--mailbox", ALICE)
    assert told.status == 0
    for service, last in (("signing", "token"), ("fax", "token"), ("messaging", "mailbox"), ("registration", "login")):
        results = told.results(service)
        assert results.pop("TLS") == "not checked"
        assert results == dict.fromkeys(("URL", "name", "connection", "response", "clock", last), "ok")
    assert list(await sandbox.ledger()) == []
    assert told.document["ok"] is True


async def test_a_service_that_says_not_found_of_documents_is_told_from_a_wrong_url(
    machine: Machine, sandbox: Sandbox
) -> None:
    sandbox.missing_status = 404
    take(machine, sandbox)
    assert (await machine.doctor()).checks["signing", "token"] == ("ok", "The credential is accepted.")
    take(
        machine,
        sandbox,
        DIRECTSUITE_SIGNING_URL=f"{sandbox.root_url}/wrong",
        DIRECTSUITE_FAX_URL=f"{sandbox.root_url}/wrong",
        DIRECTSUITE_REGISTRATION_URL=f"{sandbox.root_url}/wrong",
    )
    told = await machine.doctor()
    assert told.status == 1
    for service, last in (("signing", "token"), ("fax", "token"), ("registration", "login")):
        assert told.checks[service, last] == (
            "failed",
            f"This is not the service. Check the path of DIRECTSUITE_{service.upper()}_URL.",
        )


TIMESTAMPS = itertools.count()


def not_found(description: str) -> web.Response:
    document = {"timestamp": next(TIMESTAMPS), "error": "Not Found", "description": description}
    return web.json_response(document, status=404)


def documents_and_paths(path: str) -> web.Response:
    """Says not found of both, and which only in the description."""
    known = path.startswith(("/service/pdf/", "/service/api/fax/"))
    return not_found("there is no such document" if known else f"no endpoint {path}")


def one_description_for_all(path: str) -> web.Response:
    return not_found(f"no endpoint GET {path} at 2026-05-01T12:00:00Z")


@pytest.mark.parametrize(("at", "result"), [(documents_and_paths, "ok"), (one_description_for_all, "failed")])
async def test_a_description_tells_a_missing_document_from_a_missing_path(
    at: Callable[[str], web.Response], result: str, machine: Machine
) -> None:
    async with server(at=at) as url:
        machine.set("DIRECTSUITE_SIGNING_URL", url)
        machine.set("DIRECTSUITE_FAX_URL", url)
        machine.set("DIRECTSUITE_TOKEN", WRONG)
        told = await machine.doctor()
    assert [told.results(service)["token"] for service in ("signing", "fax")] == [result, result]


async def test_a_wrong_token_login_and_password_are_told(machine: Machine, sandbox: Sandbox) -> None:
    wrong = {
        "DIRECTSUITE_TOKEN": WRONG,
        "DIRECTSUITE_LOGIN_PASSWORD": WRONG,
        "DIRECTSUITE_MAILBOX_PASSWORD": WRONG,
    }
    take(machine, sandbox, **wrong)
    told = await machine.doctor("--mailbox", ALICE)
    assert (told.status, told.err) == (1, "directsuite: Checks failed: 4. Follow the advice in the table.\n")
    token = (
        "failed",
        "The token is wrong or has run out: get a new one from the service's provider, and give it with --token-file "
        "or DIRECTSUITE_TOKEN.",
    )
    assert told.checks["signing", "token"] == told.checks["fax", "token"] == token
    assert told.checks["registration", "login"] == (
        "failed",
        "The service rejects the login. Check its name, and that the password belongs to it.",
    )
    assert told.checks["messaging", "mailbox"] == (
        "failed",
        "The service rejects the mailbox. Check its name, and that the password belongs to it.",
    )
    assert WRONG not in told.out + told.err


async def test_secrets_and_sessions_are_never_printed(machine: Machine, sandbox: Sandbox) -> None:
    take(machine, sandbox, DIRECTSUITE_MAILBOX_PASSWORD=PASSWORD)
    _, out, err = await machine.table("--mailbox", ALICE)
    secrets = [sandbox.environment[f"DIRECTSUITE_{name}"] for name in ("TOKEN", "LOGIN_PASSWORD")]
    assert [each for each in (*secrets, PASSWORD, ALICE) if each in out + err] == []
    assert out.splitlines()[-1].endswith("clock, login")
    assert out.splitlines()[0].split() == ["subject", "check", "result", "details"]


async def test_a_token_that_may_not_is_told_from_one_that_is_unknown(machine: Machine) -> None:
    async with server(lambda: web.json_response({"error": "no", "description": "no"}, status=403)) as url:
        machine.set("DIRECTSUITE_SIGNING_URL", url)
        machine.set("DIRECTSUITE_FAX_URL", url)
        machine.set("DIRECTSUITE_TOKEN", WRONG)
        told = await machine.doctor()
    assert told.status == 1
    assert told.checks["signing", "token"][1].startswith("The service accepts the token, but not for this operation.")
    assert told.results("fax")["token"] == "warning"


async def test_what_answers_and_is_no_service_is_told(machine: Machine) -> None:
    async with server(lambda: web.Response(text="<html>Welcome</html>", content_type="text/html")) as url:
        machine.set("DIRECTSUITE_REGISTRATION_URL", url)
        machine.set("DIRECTSUITE_LOGIN_USERNAME", "front-desk")
        machine.set("DIRECTSUITE_LOGIN_PASSWORD", WRONG)
        told = await machine.doctor()
    assert told.checks["registration", "login"] == (
        "failed",
        "This is not the service. Check the path of DIRECTSUITE_REGISTRATION_URL.",
    )


@pytest.mark.parametrize("status", [500, 429])
async def test_a_service_that_fails_is_told(machine: Machine, sandbox: Sandbox, status: int) -> None:
    take(machine, sandbox)
    sandbox.inject_fault("login", "status", status=status, times=None)
    told = await machine.doctor()
    result, said = told.checks["registration", "login"]
    assert (told.status, result) == (1, "failed")
    assert said.startswith("login: ")
    assert "try again" in said


def test_a_connection_that_fails_after_all_points_to_the_checks_before_it_and_not_to_doctor() -> None:
    error = ConnectFailedError("no connection (ClientConnectorError)", operation="GetDocInfo", service="signing")
    said = doctor_checks._explain("signing", error, has_token=True).sentence
    assert said == "GetDocInfo: no connection: see the checks before this one, and try again"


async def test_what_failed_stands_first_and_what_is_well_in_one_row_for_each_service(
    machine: Machine, sandbox: Sandbox
) -> None:
    take(machine, sandbox, DIRECTSUITE_TOKEN=WRONG)
    _, out, _ = await machine.table()
    order = [re.split(r"\s{2,}", line)[2] for line in out.splitlines()[1:]]
    assert order == sorted(order, key=["failed", "warning", "not checked", "ok"].index)
    assert order.count("failed") == 2
    assert order.count("ok") == 5
