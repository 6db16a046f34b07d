"""Tokens, logins and mailboxes: accepted or rejected, and unchanged by the check."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable

import pytest
from aiohttp import web

from directsuite.cli import doctor
from directsuite.errors import ConnectFailedError
from directsuite.sandbox.server import DEMO_CLIENT, Sandbox
from tests.cli.doctor.conftest import DoctorRunner, serve_response
from tests.integration.scenario import ALICE, PASSWORD

pytestmark = pytest.mark.wide

WRONG = "no-such-secret-9f3a"


def take(machine: DoctorRunner, sandbox: Sandbox, **others: str) -> None:
    for name, value in {**sandbox.environment, **others}.items():
        machine.set_env(name, value)


async def test_all_is_well_with_all_four_services_and_nothing_is_changed(cli: DoctorRunner, sandbox: Sandbox) -> None:
    take(cli, sandbox, DIRECTSUITE_MAILBOX_PASSWORD=PASSWORD)
    told = await cli.run_json("--mailbox", ALICE)
    assert told.status == 0
    for service, last in (("signing", "token"), ("fax", "token"), ("messaging", "mailbox"), ("registration", "login")):
        results = told.get_results(service)
        assert results == dict.fromkeys(("connection", "clock", last), "ok")
    assert list(await sandbox.ledger()) == []
    assert told.document["ok"] is True


async def test_404_for_document_is_distinguished_from_wrong_url(cli: DoctorRunner, sandbox: Sandbox) -> None:
    sandbox.missing_status = 404
    take(cli, sandbox)
    assert (await cli.run_json()).checks["signing", "token"] == ("ok", "The credential is accepted.")
    checks = {"SIGNING": "token", "FAX": "token", "REGISTRATION": "login"}
    cli.set_variables({f"{service}_URL": f"{sandbox.root_url}/wrong" for service in checks})
    told = await cli.run_json()
    assert told.status == 1
    for service, check in checks.items():
        words = f"This is not the service. Check the path of DIRECTSUITE_{service}_URL."
        told.expect(service.lower(), check, "failed", words)


TIMESTAMPS = itertools.count()


def not_found(description: str) -> web.Response:
    document = {"timestamp": next(TIMESTAMPS), "error": "Not Found", "description": description}
    return web.json_response(document, status=404)


def documents_and_paths(path: str) -> web.Response:
    """Respond to both requests with 404. Only the description says what was not found."""
    known = path.startswith(("/service/pdf/", "/service/api/fax/"))
    return not_found("there is no such document" if known else f"no endpoint {path}")


def one_description_for_all(path: str) -> web.Response:
    return not_found(f"no endpoint GET {path} at 2026-05-01T12:00:00Z")


@pytest.mark.parametrize(("at", "result"), [(documents_and_paths, "ok"), (one_description_for_all, "failed")])
async def test_description_tells_a_missing_document_from_a_missing_path(
    at: Callable[[str], web.Response], result: str, cli: DoctorRunner
) -> None:
    async with serve_response(at=at) as url:
        cli.set_variables({"SIGNING_URL": url, "FAX_URL": url, "TOKEN": WRONG})
        told = await cli.run_json()
    assert [told.get_results(service)["token"] for service in ("signing", "fax")] == [result, result]


async def test_wrong_token_login_and_password_are_reported(cli: DoctorRunner, sandbox: Sandbox) -> None:
    wrong = {"DIRECTSUITE_TOKEN": WRONG, "DIRECTSUITE_LOGIN_PASSWORD": WRONG, "DIRECTSUITE_MAILBOX_PASSWORD": WRONG}
    take(cli, sandbox, **wrong)
    told = await cli.run_json("--mailbox", ALICE)
    assert (told.status, told.err) == (1, "directsuite: Checks failed: 4. Follow the advice in the table.\n")
    token = (
        "failed",
        "The token is wrong or has expired: get a new one from the service's provider, and set it with --token-file or "
        "DIRECTSUITE_TOKEN (the token is from DIRECTSUITE_TOKEN).",
    )
    assert told.checks["signing", "token"] == told.checks["fax", "token"] == token
    for service, check in (("registration", "login"), ("messaging", "mailbox")):
        advice = "Check its name, and that the password belongs to it (the password is from "
        variable = f"DIRECTSUITE_{check.upper()}_PASSWORD"
        told.expect(service, check, "failed", f"The service rejects the {check}. {advice}{variable}).")
    assert WRONG not in told.out + told.err


async def test_problem_of_the_oauth_client_is_not_that_of_a_token_or_service(
    cli: DoctorRunner, sandbox: Sandbox
) -> None:
    client = {"DIRECTSUITE_CLIENT_ID": DEMO_CLIENT[0], "DIRECTSUITE_CLIENT_SECRET": WRONG}
    rejected = (
        "The token endpoint rejects the client credentials: check the settings token_url and client_id, and "
        "client_secret or refresh_token, of which `directsuite config show` shows the sources."
    )
    async with serve_response(lambda: web.json_response({"error": "invalid_scope"}, status=400)) as scope_url:
        for token_url, sentence in (
            (sandbox.token_url, rejected),
            (f"{sandbox.root_url}/elsewhere", "token: "),
            ("http://127.0.0.1:1", "token: no connection to the token endpoint"),
            (scope_url, "token: the scope is unknown or exceeds what was granted"),
        ):
            take(cli, sandbox, **client, DIRECTSUITE_TOKEN_URL=token_url, DIRECTSUITE_TOKEN="")
            report = await cli.run_json()
            for service in ("signing", "fax"):
                report.expect(service, "token", "failed", sentence)
            assert "`directsuite doctor` shows more" not in report.out
    assert report.checks["fax", "token"][1].endswith("check the setting scope.")


async def test_secrets_and_sessions_are_never_printed(cli: DoctorRunner, sandbox: Sandbox) -> None:
    take(cli, sandbox, DIRECTSUITE_MAILBOX_PASSWORD=PASSWORD)
    result = await cli.run("--mailbox", ALICE)
    secrets = [sandbox.environment[f"DIRECTSUITE_{name}"] for name in ("TOKEN", "LOGIN_PASSWORD")]
    assert [each for each in (*secrets, PASSWORD, ALICE) if each in result.out + result.err] == []
    assert result.out.splitlines()[-1].endswith("clock, login")
    assert result.out.splitlines()[0].split() == ["subject", "check", "result", "details"]


async def test_forbidden_token_is_distinguished_from_unknown_token(cli: DoctorRunner) -> None:
    cli.set_env("DIRECTSUITE_TOKEN", WRONG)
    document = {"error": "no", "description": "no"}
    told = await cli.run_against(lambda: web.json_response(document, status=403), services=("SIGNING", "FAX"))
    assert told.status == 1
    assert told.checks["signing", "token"][1].startswith("The service accepts the token, but not for this operation.")
    assert told.get_results("fax")["token"] == "warning"


async def test_response_of_another_server_is_reported(cli: DoctorRunner) -> None:
    cli.set_variables({"LOGIN_USERNAME": "front-runner", "LOGIN_PASSWORD": WRONG})
    page = functools.partial(web.Response, text="<html>Welcome</html>", content_type="text/html")
    told = await cli.run_against(page, services=["REGISTRATION"])
    words = "This is not the service. Check the path of DIRECTSUITE_REGISTRATION_URL."
    told.expect("registration", "login", "failed", words)


@pytest.mark.parametrize("status", [500, 429])
async def test_service_that_fails_is_reported(cli: DoctorRunner, sandbox: Sandbox, status: int) -> None:
    take(cli, sandbox)
    sandbox.inject_fault("login", "status", status=status, times=None)
    told = await cli.run_json()
    assert told.status == 1
    told.expect("registration", "login", "failed", "login: ")
    assert "try again" in told.checks["registration", "login"][1]


def test_connect_error_after_checks_refers_to_earlier_checks() -> None:
    error = ConnectFailedError("no connection (Connection refused)", operation="GetDocInfo", service="signing")
    said = doctor._explain("signing", error, has_token=True).sentence
    hint = "nothing was sent; see the checks before this one, and try again"
    assert said == f"GetDocInfo: no connection (Connection refused): {hint}"


async def test_failures_come_first_and_passed_services_in_one_row_each(cli: DoctorRunner, sandbox: Sandbox) -> None:
    take(cli, sandbox, DIRECTSUITE_TOKEN=WRONG)
    out = (await cli.run()).out
    order = [re.split(r"\s{2,}", line)[2] for line in out.splitlines()[1:]]
    assert order == sorted(order, key=["failed", "warning", "not checked", "ok"].index)
    assert order.count("failed") == 2
    assert order.count("ok") == 5
