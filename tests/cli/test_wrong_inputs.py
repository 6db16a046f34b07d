"""Invalid input to each command: an exit status, no traceback, and advice."""

from __future__ import annotations

import pytest

from tests.cli.conftest import CliRunner
from tests.integration.scenario import BOB, FAX_NUMBER

DOMAIN = ("--domain", "direct.example.test")
COMMANDS = {
    "send": ("send", "--to", BOB, "--body", "x"),
    "inbox list": ("inbox", "list"),
    "inbox read": ("inbox", "read", "1"),
    "inbox save": ("inbox", "save", "1", "--into", "saved"),
    "status": ("status", "<one@direct.example.test>"),
    "fax list": ("fax", "list", FAX_NUMBER),
    "fax show": ("fax", "show", FAX_NUMBER, "handle"),
    "patient find": ("patient", "find", "ada.toml", *DOMAIN),
    "patient by-username": ("patient", "by-username", "ada", *DOMAIN),
    "patient add": ("patient", "add", "ada.toml", *DOMAIN, "--yes"),
    "patient passwords": ("patient", "passwords", "passwords.toml", *DOMAIN),
}
SERVICES = {"send": "MESSAGE", "inbox": "MESSAGE", "status": "MESSAGE", "fax": "FAX", "patient": "REGISTRATION"}
SECRETS = {
    "MESSAGE": "DIRECTSUITE_MAILBOX_PASSWORD",
    "FAX": "DIRECTSUITE_TOKEN",
    "REGISTRATION": "DIRECTSUITE_LOGIN_PASSWORD",
}

of_every_command = pytest.mark.parametrize("command", COMMANDS)


@pytest.fixture
def files(cli: CliRunner) -> None:
    cli.write_private_file("ada.toml", "id = 7")
    cli.write_private_file("passwords.toml", 'ada = "Correct-Horse-1"')


async def fails(runner: CliRunner, command: str, status: int, *named: str) -> None:
    """Assert that the command fails with this status and one line on stderr that contains the words and no data."""
    result = await runner.run(*COMMANDS[command])
    assert (result.status, result.out) == (status, "")
    assert result.err.startswith("directsuite: ")
    assert len(result.err.splitlines()) == 1
    assert [words for words in named if words not in result.err] == []
    assert not {"alice", "bob", "ada", "Correct"} & set(result.err.replace("@", " ").replace(".", " ").split())


@of_every_command
async def test_where_no_url_is_set_it_says_which(cli: CliRunner, files: None, command: str) -> None:
    variable = f"DIRECTSUITE_{SERVICES[command.split()[0]]}_URL"
    cli.monkeypatch.delenv(variable)
    await fails(cli, command, 2, f"Set {variable}", "the settings file")


@of_every_command
async def test_missing_secret_names_its_possible_sources(
    cli: CliRunner, files: None, no_keyring: None, command: str
) -> None:
    variable = SECRETS[SERVICES[command.split()[0]]]
    cli.monkeypatch.delenv(variable)
    await fails(cli, command, 2, f"Set {variable}", "-file FILE", "keyring")


@of_every_command
async def test_secret_that_is_not_a_text_is_reported_by_its_variable(cli: CliRunner, files: None, command: str) -> None:
    variable = SECRETS[SERVICES[command.split()[0]]]
    cli.set_env(variable, "hunter\udce9")
    await fails(cli, command, 2, f"{variable} is not text in this machine's encoding")


@of_every_command
async def test_wrong_secret_is_reported(cli: CliRunner, files: None, command: str) -> None:
    variable = SECRETS[SERVICES[command.split()[0]]]
    cli.set_env(variable, "hunter2")
    is_token = variable == "DIRECTSUITE_TOKEN"
    await fails(cli, command, 3, "the token is wrong or has expired" if is_token else "check that")


@of_every_command
async def test_where_nobody_listens_it_says_that_nothing_was_sent(cli: CliRunner, files: None, command: str) -> None:
    config = cli.write_private_file("directsuite.toml", "timeout = 5.0\nretry_attempts = 1\n")
    cli.set_env("DIRECTSUITE_CONFIG", config)
    cli.set_env(f"DIRECTSUITE_{SERVICES[command.split()[0]]}_URL", "http://127.0.0.1:9")
    await fails(cli, command, 6, "(Connection refused)", "nothing was sent", "`directsuite doctor`")


@of_every_command
async def test_url_below_which_there_is_nothing_is_reported_by_its_variable(
    cli: CliRunner, files: None, command: str
) -> None:
    variable = f"DIRECTSUITE_{SERVICES[command.split()[0]]}_URL"
    cli.set_env(variable, f"{cli.sandbox.root_url}/elsewhere")
    await fails(cli, command, 4, f"check {variable} (`directsuite config show`)")


@pytest.mark.parametrize("command", ["inbox list", "fax list", "patient by-username"])
async def test_page_that_is_not_a_response_points_to_the_url(cli: CliRunner, files: None, command: str) -> None:
    cli.set_env("DIRECTSUITE_CONFIG", cli.write_private_file("directsuite.toml", "retry_attempts = 1\n"))
    cli.sandbox.inject_fault("*", "status", status=200, body="<html>Ada</html>", times=None)
    variable = f"DIRECTSUITE_{SERVICES[command.split()[0]]}_URL"
    await fails(cli, command, 6, f"the service's URL ({variable}) is right")


@pytest.mark.parametrize("command", ["inbox list", "fax list", "patient by-username"])
async def test_service_that_fails_may_be_asked_again(cli: CliRunner, files: None, command: str) -> None:
    cli.set_env("DIRECTSUITE_CONFIG", cli.write_private_file("directsuite.toml", "retry_attempts = 1\n"))
    cli.sandbox.inject_fault("*", "status", status=500, times=None)
    await fails(cli, command, 6, "try again later")
    cli.sandbox.clear_faults()
    cli.sandbox.inject_fault("*", "status", status=429, retry_after=7, times=None)
    await fails(cli, command, 6, "wait 7 s and try again")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("inbox", "list", "--mailbox", "alice"), "--mailbox is not an e-mail address"),
        (("inbox", "list", "--limit", "0"), "--limit"),
        (("inbox", "list", "--since", "yesterday"), "--since"),
        (("inbox", "list", "--since", "2026-05-01", "--unread"), "--unread"),
        (("inbox", "list", "--since", "0001-01-01"), "--since"),
        (("inbox", "list", "--folder", ""), "--folder"),
        (("inbox", "list", "--folder", "INBOX.J\udce9"), "--folder: it contains half of a surrogate pair"),
        (("inbox", "list", "--mailbox", "j\udce9@x.test"), "--mailbox is not text in this machine's encoding"),
        (("fax", "list", "\udce9"), "the fax number: it contains half of a surrogate pair"),
        (("inbox", "read"), "UID"),
        (("inbox", "read", "one"), "UID"),
        (("inbox", "read", "-1"), "UID"),
        (("inbox", "read", "99999999999999999999"), "the number"),
        (("inbox", "save", "1"), "--into"),
        (("inbox", "save", "--into", "saved"), "UID"),
        (("inbox", "save", "1", "--into", ""), "--into"),
        (("inbox", "save", "1", "--into", "file"), "--into"),
        (("status",), "SMTP"),
        (("status", ""), "SMTP id"),
        (("fax", "list"), "NUMBER"),
        (("fax", "list", ""), "The fax number is empty"),
        (("fax", "show", FAX_NUMBER, ".."), "the handle"),
        (("sned",), "send"),
        (("inbox", "lsit"), "list"),
        (("send", "--recipient", "x"), "--recipient"),
    ],
)
async def test_invalid_argument_is_named_with_status_2(cli: CliRunner, arguments: tuple[str, ...], named: str) -> None:
    cli.write_private_file("file", "")
    err = await cli.fail(2, named, *arguments)
    assert "Traceback" not in err


@of_every_command
async def test_url_in_clear_is_rejected(cli: CliRunner, files: None, command: str) -> None:
    service = SERVICES[command.split()[0]]
    cli.set_env(f"DIRECTSUITE_{service}_URL", "http://mail.example.org")
    await fails(cli, command, 2, f"{service.lower()}_url", "set allow_insecure_http to true")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("sync", "run", "--store", "."), "--store"),
        (("sync", "status", "--store", ""), "--store"),
        (("sync", "audit", "--store", "."), "--store"),
        (("sync", "run", "--maildir", ""), "--maildir"),
        (("sync", "run", "--status-file", "."), "--status-file"),
        (("sync", "run", "--mailboxes", "."), "--mailboxes"),
        (("sandbox", "--data", ""), "--data"),
        (("demo", "--output", " "), "--output"),
    ],
)
async def test_empty_path_or_a_folder_for_a_file_is_rejected(
    cli: CliRunner, arguments: tuple[str, ...], told: str
) -> None:
    result = await cli.run(*arguments)
    assert result.status == 2
    assert told in result.err
    assert "this is a folder; name a file" in result.err or "the path is empty; name a file or a folder" in result.err


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("inbox", "list", "--limit", "0"), "--limit (0): give at least 1"),
        (("inbox", "list", "--since", "yesterday"), "--since (yesterday): give a date such as 2026-05-01"),
        (("inbox", "list", "--since", "0001-01-01"), "--since (0001-01-01): out of the supported range"),
        (("inbox", "list", "--folder", ".."), "--folder (..): "),
        (("inbox", "read", "Ada\x1b[2J"), "UID (Ada\ufffd[2J): give an integer"),
        (("inbox", "move", "1", "--to", ".."), "--to (..): "),
        (
            ("inbox", "save", "1", "--into", "letter.txt"),
            "Could not create the folder of --into (letter.txt): File exists",
        ),
        (("sync", "status", "--store", "none.db"), "--store (none.db): there is no store at this path"),
        (("sync", "audit", "--store", "none.db"), "--store (none.db): there is no store at this path"),
        (("sync", "run", "--store", "letter.txt"), "--store (letter.txt): the store's file is not an SQLite database"),
        (("sync", "run", "--mailbox", "ada"), "--mailbox number 1 (ada) is not an e-mail address"),
        (("sync", "run", "--folder", ".."), "--folder number 1 (..) is not a folder name"),
        (("patient", "by-username", "ada@x.test", *DOMAIN), "The username (ada@x.test) must be the part before the @"),
        (("patient", "by-username", "ada", "--domain", "a@b"), "--domain (a@b) must be the part behind the @"),
        (("demo", "stray", "x" * 300), f"2 arguments too many (stray {'x' * 93}…)"),
        (("sned",), "There is no command sned (did you mean send?)"),
        (("send", "--Ada Example=x"), "There is no option --Ada Example. "),
    ],
)
@pytest.mark.parametrize("is_asked", [True, False], ids=["verbose", "log"])
async def test_typed_value_is_shown_only_if_stderr_may_show_it(
    cli: CliRunner, arguments: tuple[str, ...], told: str, is_asked: bool
) -> None:
    cli.set_env("DIRECTSUITE_VERBOSE", "1" if is_asked else "")
    cli.write_private_file("letter.txt", "Dear Bob")
    await cli.deliver("Hello")
    result = await cli.run(*arguments)
    assert result.status == 2
    assert (told in result.err) is is_asked, result.err


@pytest.mark.parametrize(
    ("name", "value"), [("PROXY", "http://proxy.test:none"), ("FAX_URL", "https://ada:Correct@fax.test")]
)
async def test_setting_that_may_hold_a_password_is_named_without_its_value(
    cli: CliRunner, name: str, value: str
) -> None:
    cli.set_env(f"DIRECTSUITE_{name}", value)
    result = await cli.run("inbox", "list", "-v")
    assert (result.status, f"DIRECTSUITE_{name}: {name.lower()} " in result.err, value in result.err) == (
        2,
        True,
        False,
    )


async def test_number_that_the_service_does_not_take_is_named_in_the_advice(cli: CliRunner) -> None:
    result = await cli.run("fax", "list", "abc", "-v")
    assert result.status == 5
    assert result.err.endswith(": check the fax number (abc): it must be one of your own, such as 15550100100\n")
