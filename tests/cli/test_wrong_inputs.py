"""Invalid input to each command: an exit status, no traceback, and advice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.conftest import CliRunner, CommandRunner
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


def set_one_attempt(cli: CliRunner) -> None:
    cli.set_env("DIRECTSUITE_CONFIG", cli.write_private_file("directsuite.toml", "timeout = 5.0\nretry_attempts = 1\n"))


def refuse_connections(cli: CliRunner, url: str, _: str) -> None:
    set_one_attempt(cli)
    cli.set_env(url, "http://127.0.0.1:9")


CONDITIONS: dict[str, tuple[Callable[[CliRunner, str, str], None], int, tuple[str, ...]]] = {
    "no URL": (lambda cli, url, _: cli.monkeypatch.delenv(url), 2, ("Set {url}", "the settings file")),
    "no secret": (lambda cli, _, secret: cli.monkeypatch.delenv(secret), 2, ("Set {secret}", "-file FILE", "keyring")),
    "secret in another encoding": (
        lambda cli, _, secret: cli.set_env(secret, "hunter\udce9"),
        2,
        ("{secret} is not text in this machine's encoding",),
    ),
    "wrong secret": (lambda cli, _, secret: cli.set_env(secret, "hunter2"), 3, ("{advice}",)),
    "no server": (refuse_connections, 6, ("(Connection refused)", "{unsent}", "`directsuite doctor`")),
    "wrong path": (
        lambda cli, url, _: cli.set_env(url, f"{cli.sandbox.root_url}/elsewhere"),
        4,
        ("check {url} (`directsuite config show`)",),
    ),
    "URL without TLS": (
        lambda cli, url, _: cli.set_env(url, "http://mail.example.org"),
        2,
        ("_url", "set allow_insecure_http to true"),
    ),
}
"""Sets up a condition, given the variables of the service's URL and of the secret; the exit status, and the message."""


@pytest.mark.exhaustive
@pytest.mark.usefixtures("files", "no_keyring")
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("condition", CONDITIONS)
async def test_command_that_cannot_use_its_service_says_why(condition: str, command: str, cli: CliRunner) -> None:
    set_up, status, words = CONDITIONS[condition]
    service = SERVICES[command.split()[0]]
    url, secret = f"DIRECTSUITE_{service}_URL", SECRETS[service]
    advice = "the token is wrong or has expired" if secret == "DIRECTSUITE_TOKEN" else "check that"
    values = {
        "url": url,
        "secret": secret,
        "advice": advice,
        "unsent": " was not sent" if service == "REGISTRATION" else "nothing was sent",  # only the login failed
    }
    set_up(cli, url, secret)
    await fails(cli, command, status, *(each.format(**values) for each in words))


@pytest.mark.exhaustive
@pytest.mark.parametrize("command", ["inbox list", "fax list", "patient by-username"])
@pytest.mark.parametrize(
    ("fault", "advice"),
    [
        ({"status": 200, "body": "<html>Ada</html>"}, "the service's URL (DIRECTSUITE_{}_URL) is right"),
        ({"status": 500}, "try again later"),
        ({"status": 429, "retry_after": 7}, "wait 7 s and try again"),
    ],
)
async def test_failure_of_the_service_has_advice(
    cli: CliRunner, fault: dict[str, Any], advice: str, command: str
) -> None:
    set_one_attempt(cli)
    cli.sandbox.inject_fault("*", "status", **fault, times=None)
    await fails(cli, command, 6, advice.format(SERVICES[command.split()[0]]))


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("inbox", "list", "--mailbox", "alice"), "--mailbox is not an e-mail address"),
        (("inbox", "list", "--since", "7 days"), "--since"),
        (("inbox", "list", "--since", "2026-05-01", "--unread"), "--unread"),
        (("inbox", "list", "--since", "2026-05-02", "--until", "2026-05-01"), "--until is before --since. Correct"),
        (
            ("send", "--to", BOB, "--body-file", "none"),
            "(No such file or directory). Check its path and permissions.\n",
        ),
        (("inbox", "list", "--folder", ""), "--folder"),
        (("inbox", "list", "--all-folders", "--folder", "INBOX"), "--folder"),
        (("inbox", "list", "--folder", "INBOX.J\udce9"), "--folder: it contains half of a surrogate pair"),
        (("inbox", "list", "--mailbox", "j\udce9@x.test"), "--mailbox is not text in this machine's encoding"),
        (("fax", "list", "\udce9"), "the fax number: it contains half of a surrogate pair"),
        (("inbox", "read", "-1"), "UID"),
        (("inbox", "read", "99999999999999999999"), "the number"),
        (("inbox", "save", "1"), "--into"),
        (("inbox", "save", "--into", "saved"), "UID"),
        (("inbox", "save", "1", "--into", ""), "--into"),
        (("status",), "SMTP"),
        (("status", "<a@x.test>", "--key", "k"), "--key can't be combined with SMTP ids"),
        (("status", "--key", ""), "--key is empty"),
        (("fax", "list"), "NUMBER"),
        (("fax", "list", ""), "The fax number is empty"),
        (("fax", "show", FAX_NUMBER, ".."), "the handle"),
        (("inbox", "list", "--profile", "tset"), "directsuite: --profile: there is no profile 'tset', because there"),
        (("sign", "inof", "consent.pdf"), "There is no such command (did you mean info?). The commands are flatten,"),
        (("sign", "flaten", "file", "--output", "o.pdf"), "There is no such command (did you mean flatten?)."),
        (("sandbox", "acount", "x@y.test"), "There is no such command (did you mean account?)."),
        (("sandbox", "env", "--at", "nonsense"), "--at: give a URL such as http://127.0.0.1:8025"),
        (("sandbox", "fault", "Send", "latency", "--seconds", "100"), "--seconds: give at most 60"),
        (("sandbox", "account", "carol"), "ADDRESS is not an e-mail address"),
        (("sandbox", "fault", "Send", "latency", "--status", "500"), "--status has no effect with the kind latency"),
        (("sign", "file", "--output", "none/o.pdf"), "--output: its folder does not exist. Name a file in a different"),
        (("doctor", "--deep", "--report", "none/r.json"), "--report: its folder does not exist. Name a file in a diff"),
    ],
)
async def test_invalid_argument_is_named_with_status_2(
    offline: CommandRunner, arguments: tuple[str, ...], named: str
) -> None:
    offline.write_private_file("file", "")
    await offline.fail(2, named, *arguments)


@pytest.mark.parametrize(
    ("variable", "arguments", "sentence"),
    [
        ("DIRECTSUITE_MAILBOX", ("inbox", "list"), "DIRECTSUITE_MAILBOX (alice) is not an e-mail address."),
        ("DIRECTSUITE_MAILBOX", ("sync", "run", "--once"), "DIRECTSUITE_MAILBOX (alice) is not an e-mail address."),
        ("DIRECTSUITE_SANDBOX", ("sandbox", "env"), "DIRECTSUITE_SANDBOX (alice): give a URL such as"),
        ("DIRECTSUITE_PROFILE", ("inbox", "list"), "DIRECTSUITE_PROFILE: there is no profile 'alice', because"),
    ],
)
async def test_variable_is_named_instead_of_the_option(
    offline: CommandRunner, variable: str, arguments: tuple[str, ...], sentence: str
) -> None:
    offline.set_env(variable, "alice")
    offline.set_env("DIRECTSUITE_VERBOSE", "1")
    await offline.fail(2, f"directsuite: {sentence}", *arguments)


async def test_line_of_the_settings_file_is_named_instead_of_the_option(offline: CommandRunner) -> None:
    offline.monkeypatch.delenv("DIRECTSUITE_MAILBOX")
    offline.set_env("DIRECTSUITE_CONFIG", offline.write_private_file("config.toml", 'mailbox = "alice"'))
    await offline.fail(2, "mailbox in config.toml, line 1 (alice) is not an e-mail address", "inbox", "list", "-v")


async def test_token_with_a_line_break_is_reported_with_its_source(offline: CommandRunner) -> None:
    offline.set_env("DIRECTSUITE_TOKEN", "Correct\nHorse")
    words = "The access token from DIRECTSUITE_TOKEN contains a line break: remove it."
    err = await offline.fail(2, words, "fax", "list", FAX_NUMBER)
    assert "Horse" not in err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("sync", "run", "--store", "."), "--store"),
        (("sync", "status", "--store", ""), "--store"),
        (("sync", "audit", "--store", "."), "--store"),
        (("sync", "run", "--maildir", ""), "--maildir"),
        (("sync", "run", "--status-file", "."), "--status-file"),
        (("sync", "run", "--mailboxes", "."), "--mailboxes"),
        (("send", "--to", BOB, "--body", "x", "--attach", ""), "--attach: the path is empty"),
        (("inbox", "list", "--password-file", ""), "--password-file: the path is empty"),
        (("patient", "find", "", *DOMAIN), "INDIVIDUAL: the path is empty"),
        (("sandbox", "--data", ""), "--data"),
        (("demo", "--output", " "), "--output"),
    ],
)
async def test_empty_path_or_a_folder_for_a_file_is_rejected(
    offline: CommandRunner, arguments: tuple[str, ...], told: str
) -> None:
    err = await offline.fail(2, told, *arguments)
    assert "this is a folder; name a file" in err or "the path is empty; name a file or a folder" in err


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("inbox", "list", "--limit", "0"), "--limit (0): give at least 1"),
        (("inbox", "list", "--since", "99999999w"), "--since (99999999w): give a date such as 2026-05-01"),
        (("inbox", "list", "--since", "0001-01-01"), "--since (0001-01-01): out of the supported range"),
        (("inbox", "list", "--folder", ".."), "--folder (..): "),
        (("inbox", "read", "Ada\x1b[2J"), "UID (Ada\ufffd[2J): give an integer"),
        (("inbox", "save", "1", "--into", "letter.txt"), "--into (letter.txt) is a file. Name a folder."),
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
    offline: CommandRunner, arguments: tuple[str, ...], told: str, is_asked: bool
) -> None:
    offline.set_env("DIRECTSUITE_VERBOSE", "1" if is_asked else "")
    offline.write_private_file("letter.txt", "Dear Bob")
    result = await offline.run(*arguments)
    assert result.status == 2
    assert (told in result.err) is is_asked, result.err


@pytest.mark.parametrize(
    ("name", "value"), [("PROXY", "http://proxy.test:none"), ("FAX_URL", "https://ada:Correct@fax.test")]
)
async def test_setting_that_may_hold_a_password_is_named_without_its_value(
    offline: CommandRunner, name: str, value: str
) -> None:
    offline.set_env(f"DIRECTSUITE_{name}", value)
    assert value not in await offline.fail(2, f"DIRECTSUITE_{name}: {name.lower()} ", "inbox", "list", "-v")


async def test_number_that_the_service_does_not_take_is_named_in_the_advice(cli: CliRunner) -> None:
    result = await cli.run("fax", "list", "abc", "-v")
    assert result.status == 5
    assert result.err.endswith(": check the fax number (abc): it must be one of your own, such as 15550100100\n")
