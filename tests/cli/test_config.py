"""`directsuite config show`, and the options of all commands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import directsuite
from directsuite.cli.config import find_unknown_variables
from directsuite.sandbox.server import DEMO_CLIENT
from tests.cli.conftest import CliRunner, CommandRunner
from tests.integration.scenario import BOB, FAX_NUMBER, PASSWORD


def configured(runner: CliRunner, text: str) -> None:
    runner.write_private_file("suite.toml", text)
    runner.monkeypatch.setenv("DIRECTSUITE_CONFIG", "suite.toml")


async def test_each_setting_is_shown_with_its_origin(cli: CliRunner) -> None:
    configured(cli, 'timeout = 30\nproxy = "http://alice:Zaphod@127.0.0.1:3128"\n[profiles.test]\nburst = 7\n')
    result = await cli.run("config", "show", "--profile", "test")
    assert (result.status, result.err) == (0, "")
    assert {
        "# settings file: suite.toml",
        "# profile: test; profiles in the file: test",
        "timeout = 30  # suite.toml, line 1",
        "burst = 7  # suite.toml, line 4",
        "attempt_timeout = 20.0  # default",
        "token = (set)  # DIRECTSUITE_TOKEN",
    } <= set(result.out.splitlines())
    assert "Zaphod" not in result.out
    document = (await cli.run("config", "show", "--json")).document
    assert (document["profile"], document["profiles"]) == (None, ["test"])
    assert document["settings"]["burst"] == {"value": 150, "from": "default"}


async def test_settings_that_a_token_replaces_are_marked(cli: CliRunner) -> None:
    configured(cli, 'token_url = "https://id.example.org/token"\nclient_id = "clinic"\ntoken_file = "token"\n')
    cli.set_env("DIRECTSUITE_CLIENT_SECRET", "Zaphod")
    lines = (await cli.run("config", "show")).out.splitlines()
    assert {
        'token_url = "https://id.example.org/token"  # suite.toml, line 1 (not used: token is set)',
        'client_id = "clinic"  # suite.toml, line 2 (not used: token is set)',
        'token_file = "token"  # suite.toml, line 3 (not used: token is set)',
        "client_secret = (set)  # DIRECTSUITE_CLIENT_SECRET (not used: token is set)",
        "token = (set)  # DIRECTSUITE_TOKEN",
    } <= set(lines)
    settings = (await cli.run("config", "show", "--json")).document["settings"]
    assert (settings["client_id"]["used"], settings["token"].get("used")) == (False, None)
    cli.monkeypatch.delenv("DIRECTSUITE_TOKEN")
    conflict = await cli.run("config", "show")
    assert "not used" not in conflict.out
    assert "suite.toml, line 3 sets a token, and" in conflict.err
    assert conflict.status == 2
    cli.set_env("DIRECTSUITE_TOKEN_URL", "https://id.example.org/token")
    assert "line 3 (not used: token_url is set)" in (await cli.run("config", "show")).out
    cli.monkeypatch.delenv("DIRECTSUITE_TOKEN_URL")
    cli.set_env("DIRECTSUITE_TOKEN_FILE", "token")
    assert "line 2 (not used: token_file is set)" in (await cli.run("config", "show")).out


async def test_variables_that_nothing_reads_are_shown(cli: CliRunner) -> None:
    cli.set_env("DIRECTSUITE_TIMOUT", "7")
    cli.set_env("DIRECTSUITE_QUARTZ", "7")
    result = await cli.run("config", "show")
    assert result.out.splitlines()[-2:] == [
        "# unknown variable: DIRECTSUITE_QUARTZ",
        "# unknown variable: DIRECTSUITE_TIMOUT (did you mean DIRECTSUITE_TIMEOUT?)",
    ]
    unknown = (await cli.run("config", "show", "--json")).document["unknown_variables"]
    assert unknown == {"DIRECTSUITE_QUARTZ": None, "DIRECTSUITE_TIMOUT": "DIRECTSUITE_TIMEOUT"}


def test_each_variable_in_the_package_is_known() -> None:
    root = Path(directsuite.__file__).parent
    texts = [each.read_text("utf-8") for each in root.rglob("*") if each.suffix in (".py", ".md")]
    found = {name for text in texts for name in re.findall(r"DIRECTSUITE_[A-Z0-9_]*[A-Z0-9]\b", text)}
    assert len(found) > 20
    assert find_unknown_variables(found) == {}


async def test_errors_are_printed_below_settings(cli: CliRunner) -> None:
    configured(cli, "timeout = 0\n")
    result = await cli.run("config", "show")
    assert (result.status, "suite.toml, line 1" in result.out) == (2, True)
    assert result.err == "directsuite: suite.toml, line 1: timeout must be a finite number greater than 0\n"


@pytest.mark.parametrize("more", [(), ("--json",)])
async def test_password_in_a_url_is_not_shown(more: tuple[str, ...], cli: CliRunner) -> None:
    configured(cli, 'fax_url = "https://alice:Zaphod@127.0.0.1"\ntoken_url = "https://alice:Zaphod@127.0.0.1/token"\n')
    cli.monkeypatch.delenv("DIRECTSUITE_FAX_URL")
    result = await cli.run("config", "show", *more)
    assert result.status == 2
    assert "suite.toml, line 1" in result.out
    assert "Zaphod" not in result.out + result.err


async def test_profile_names_the_mailbox_and_the_file_of_its_password(cli: CliRunner) -> None:
    for name in ("MAILBOX", "MAILBOX_PASSWORD"):
        cli.monkeypatch.delenv(f"DIRECTSUITE_{name}")
    cli.write_private_file("bob.password", f"{PASSWORD}\n")
    configured(cli, f'[profiles.bob]\nmailbox = "{BOB}"\nmailbox_password_file = "bob.password"\n')
    await cli.deliver("For Alice")
    result = await cli.run("inbox", "list", "--profile", "bob")
    assert (result.status, "For Alice" in result.out) == (0, False)
    sent = await cli.run("send", "--profile=bob", "--to", BOB, "--subject", "To myself", "--body", "x")
    assert sent.status == 0
    assert "To myself" in (await cli.run("inbox", "list", "--profile", "bob")).out
    await cli.fail(2, "or mailbox in the settings file", "inbox", "list")


async def test_verbose_twice_reports_each_request(cli: CliRunner) -> None:
    result = await cli.run("inbox", "list", "-vv")
    assert result.status == 0
    assert re.match(r"directsuite: GetMessage\w+: HTTP 200, \d+ ms\n", result.err)
    cli.sandbox.inject_fault("GetMessageMetaData", "status", status=404, times=1)
    assert "directsuite: GetMessageMetaData: HTTP 404, " in (await cli.run("inbox", "list", "-vv")).err
    assert "HTTP" not in (await cli.run("inbox", "list", "-v")).err
    cli.sandbox.inject_fault("GetMessageMetaData", "reset_before", times=1)
    result = await cli.run("inbox", "list", "-vv")
    assert re.search(r"^directsuite: GetMessageMetaData: ConnectionLostError, \d+ ms$", result.err, re.MULTILINE)


@pytest.mark.parametrize("arguments", [[], ["-v"], ["--verbose"]])
async def test_verbose_quotes_the_service_where_stderr_may_be_a_log(cli: CliRunner, arguments: list[str]) -> None:
    result = await cli.run("fax", "show", "15550100199", "none", *arguments)
    assert result.status != 0
    assert ('("' in result.err) == bool(arguments)


async def test_configured_client_requests_the_tokens_of_commands(cli: CliRunner) -> None:
    cli.monkeypatch.delenv("DIRECTSUITE_TOKEN")
    cli.write_private_file("client.secret", DEMO_CLIENT[1])
    client = f'token_url = "{cli.sandbox.token_url}"\nclient_id = "{DEMO_CLIENT[0]}"\n'
    configured(cli, f'{client}client_secret_file = "client.secret"\n')
    assert (await cli.run("fax", "list", FAX_NUMBER)).status == 0
    shown = (await cli.run("config", "show")).out
    assert 'client_secret_file = "client.secret"  # suite.toml, line 3' in shown.splitlines()
    assert DEMO_CLIENT[1] not in shown
    cli.monkeypatch.setenv("DIRECTSUITE_CLIENT_SECRET", "wrong")
    result = await cli.run("fax", "list", FAX_NUMBER)
    assert (result.status, "client's id, secret" in result.err) == (3, True)
    assert "check the settings token_url and client_id, and client_secret" in result.err
    cli.monkeypatch.setenv("DIRECTSUITE_TOKEN_URL", f"{cli.sandbox.root_url}/elsewhere")
    assert "DIRECTSUITE_TOKEN_URL" in (await cli.run("fax", "list", FAX_NUMBER)).err
    cli.monkeypatch.delenv("DIRECTSUITE_TOKEN_URL")
    assert (await cli.run("fax", "list", FAX_NUMBER, "--token-file", "client.secret")).status == 3


@pytest.mark.wide
@pytest.mark.parametrize("command", ["fax list", "sign", "sign info", "doctor"])
async def test_help_of_a_token_names_the_oauth_client(offline: CommandRunner, command: str) -> None:
    assert "token_url" in (await offline.run(*command.split(), "--help")).out


async def test_doctor_checks_a_client_but_not_a_refresh_token(cli: CliRunner) -> None:
    cli.monkeypatch.delenv("DIRECTSUITE_TOKEN")
    client = {"TOKEN_URL": cli.sandbox.token_url, "CLIENT_ID": DEMO_CLIENT[0], "CLIENT_SECRET": DEMO_CLIENT[1]}
    for name, text in client.items():
        cli.monkeypatch.setenv(f"DIRECTSUITE_{name}", text)
    for refresh_token, result in (("", "ok"), ("refresh", "not checked")):
        cli.monkeypatch.setenv("DIRECTSUITE_REFRESH_TOKEN", refresh_token)
        checks = (await cli.run("doctor", "--json")).document["checks"]
        assert {each["result"] for each in checks if each["check"] == "token"} == {result}
