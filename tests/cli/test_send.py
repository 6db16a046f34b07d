"""`directsuite send`: which messages are sent, and that a message with a key is sent once."""

from __future__ import annotations

import errno
import os
import re
import shlex
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from directsuite.jobs.delivery import DeliveryJournal, DeliveryJournalError
from directsuite.messaging import arguments
from directsuite.messaging.models import Message, SendMessageResponse
from directsuite.messaging.service import Mailbox
from tests.cli.conftest import CliRunner, CommandRunner
from tests.integration.scenario import ALICE, BOB, PASSWORD, open_scenario
from tests.statements import query_file

TO_BOB = ("--to", BOB, "--subject", "Referral", "--body", "Please see her.")
KEYED = ("send", *TO_BOB, "--key", "referral-17")


async def sent(runner: CliRunner) -> int:
    return sum(effect["operation"] in ("Send", "SendWithHeader") for effect in await runner.sandbox.ledger())


async def test_it_prints_the_smtp_id_alone_on_stdout(cli: CliRunner) -> None:
    result = await cli.run("send", *TO_BOB)
    assert result.status == 0
    (smtp_id,) = result.out.splitlines()
    assert smtp_id.startswith("<")
    assert result.err.startswith("directsuite: The message was sent. `directsuite status`")
    assert BOB not in result.err
    assert (await cli.run("status", smtp_id)).status == 0


async def test_body_recipients_and_files_arrive(cli: CliRunner) -> None:
    cli.write_private_file("letter.txt", "\ufeffDear Bob,\nsee Ada.\n")
    cli.folder.joinpath("scan.pdf").write_bytes(b"%PDF-1.7" * 50_000)
    options = ("--cc", f"cc-{ALICE}", "--bcc", f"bcc-{ALICE}", "--attach", "scan.pdf", "--attach", "letter.txt")
    result = await cli.run("send", "--to", BOB, "--body-file", "letter.txt", *options, "--json")
    document = result.document
    assert (document["sent"], document["sent_before"]) == (True, False)
    async with open_scenario(cli.sandbox, cli.folder) as world:
        (message,) = await world.suite.mailbox(BOB, PASSWORD).get_messages()
    assert (message.body or "").replace("\r\n", "\n") == "Dear Bob,\nsee Ada.\n"
    assert [(each.filename, each.media_type, len(each.content)) for each in message.attachments] == [
        ("scan.pdf", "application/pdf", 400_000),
        ("letter.txt", "text/plain", len("\ufeffDear Bob,\nsee Ada.\n".encode())),
    ]
    assert [(each.email, each.type) for each in message.recipients] == [(BOB, "TO"), (f"cc-{ALICE}", "CC")]


async def test_recipients_have_names_and_stand_in_a_list(offline: CommandRunner) -> None:
    lists = (f'"Bob, of the clinic" <{BOB}>,{ALICE}', f"<{BOB}>, Alice <{ALICE}>", f"{BOB} , {ALICE}")
    for to in (("--to", f"Bob <{BOB}>", "--to", ALICE), *(("--to", each) for each in lists)):
        document = (await offline.run("send", *to, "--body", "x", "--dry-run", "--json")).document
        assert document["recipients"] == [{"email": BOB, "type": "TO"}, {"email": ALICE, "type": "TO"}]


@pytest.mark.parametrize("given", ["Bob <bob>", f"{BOB},", f"Bob <{BOB}", f"<{BOB}> Bob", "", f"{BOB};{ALICE}"])
async def test_file_without_addresses_is_rejected(given: str, offline: CommandRunner) -> None:
    await offline.fail(2, "--to number 1 is not an e-mail address", "send", "--to", given, "--body", "x")


@pytest.mark.parametrize(
    "to", [f'"Bob <{BOB}>,{ALICE}', f'"{BOB},{ALICE}', f'{BOB},"{ALICE}', f'"{BOB}', rf'"Bob \" <{BOB}>']
)
async def test_quotation_mark_that_is_not_closed_is_rejected(to: str, offline: CommandRunner) -> None:
    problem = f"--to number 1 ({to}) contains a quotation mark that is not closed"
    await offline.fail(2, problem, "send", "-v", "--to", to, "--body", "x")


@pytest.mark.parametrize("name", [r'"Dr. \"Bob\" Example"', r'"Bob, \" Bob"', r'"a \\"', r'"a\\\", <b@c.test>"'])
async def test_name_with_escaped_quotation_marks_is_accepted(name: str, offline: CommandRunner) -> None:
    result = await offline.run("send", "--to", f"{name} <{BOB}>, {ALICE}", "--body", "x", "--dry-run", "--json")
    assert [each["email"] for each in result.document["recipients"]] == [BOB, ALICE]


async def test_body_from_stdin(cli: CliRunner) -> None:
    result = await cli.run("send", "--to", BOB, "--html", "--body-file", "-", stdin="<p>Grüße</p>")
    assert result.status == 0
    async with open_scenario(cli.sandbox, cli.folder) as world:
        (message,) = await world.suite.mailbox(BOB, PASSWORD).get_messages()
    assert (message.html_body, (message.body or "").strip()) == (True, "<p>Grüße</p>")


async def test_dry_run_sends_nothing_and_needs_neither_service_nor_password(cli: CliRunner) -> None:
    cli.monkeypatch.delenv("DIRECTSUITE_MAILBOX_PASSWORD")
    cli.monkeypatch.delenv("DIRECTSUITE_MESSAGE_URL")
    cli.write_private_file("scan.pdf", "%PDF-1.7")
    result = await cli.run("send", *TO_BOB, "--attach", "scan.pdf", "--dry-run")
    assert result.status == 0
    assert "scan.pdf, application/pdf, 8 B" in result.out
    assert BOB in result.out
    assert "nothing was sent" in result.err
    document = (await cli.run("send", *TO_BOB, "--attach", "scan.pdf", "--dry-run", "--json")).document
    assert (document["sent"], document["subject"], document["characters"]) == (False, "Referral", 15)
    assert document["attachments"] == [{"filename": "scan.pdf", "media_type": "application/pdf", "size": 8}]
    assert await sent(cli) == 0


async def test_dry_run_says_what_became_of_its_key(cli: CliRunner) -> None:
    cli.monkeypatch.setenv("DIRECTSUITE_SETTLE", "0")
    before = await cli.run(*KEYED, "--dry-run", "--json")
    assert (before.document["sent_before"], cli.folder.joinpath("state").exists()) == (False, False)
    cli.sandbox.inject_fault("SendWithHeader", "reset_before", times=1)
    cli.sandbox.inject_fault("SearchMessagesMetadataByReceivedDate", "status", status=401, times=9)
    assert (await cli.run(*KEYED)).status == 7
    doubtful = await cli.run(*KEYED, "--dry-run")
    assert "An earlier command may have sent the message. It would be sent only if" in doubtful.err
    assert doubtful.out.split()[0] == "message"
    await cli.fail(2, "a different message, which may have been sent.", *KEYED, "--html", "--dry-run")
    cli.sandbox.clear_faults()
    await cli.run("send", *TO_BOB, "--key", "another")
    result = await cli.run("send", *TO_BOB, "--key", "another", "--dry-run")
    assert result.status == 0
    assert "The message was sent before with this --key. It would not be sent again." in result.err
    assert ("was sent before" in result.out, "would be sent" in result.out) == (True, False)
    assert (await cli.run("send", *TO_BOB, "--key", "another", "--dry-run", "--json")).document["sent_before"]
    other = ("send", *TO_BOB[:-1], "Other words.", "--key", "another", "--dry-run")
    await cli.fail(2, "used for a different message, which was sent.", *other)


@pytest.mark.exhaustive
@pytest.mark.parametrize("key", [(), ("--key", "referral-17")])
@pytest.mark.parametrize(("attempts", "status"), [("1", 6), ("2", 6), ("3", 0)])
async def test_max_attempts_limits_the_attempts(
    attempts: str, status: int, key: tuple[str, ...], cli: CliRunner
) -> None:
    operation = "SendWithHeader" if key else "Send"
    cli.sandbox.inject_fault(operation, "status", status=503, retry_after=0, times=2)
    assert (await cli.run("send", *TO_BOB, *key, "--max-attempts", attempts)).status == status
    assert await sent(cli) == (status == 0)


async def test_name_that_is_not_sent_is_reported(offline: CommandRunner) -> None:
    said = "Only the address of `Name <address>` is sent"
    for to, is_told in ((f"Dr. Bob <{BOB}>", True), (f'{ALICE}, "Bob" <{BOB}>', True), (f"{ALICE}, <{BOB}>", False)):
        result = await offline.run("send", "--to", to, "--body", "x", "--dry-run")
        assert (result.status, said in result.err) == (0, is_told)


async def test_lost_response_has_a_status_of_its_own_and_says_where_to_look(cli: CliRunner) -> None:
    cli.sandbox.inject_fault("Send", "reset_after")
    result = await cli.run("send", *TO_BOB)
    assert (result.status, result.out) == (7, "")
    assert result.err.count("may or may not have happened") == 1
    assert "`directsuite inbox list --folder INBOX.Sent`" in result.err
    assert "get_message" not in result.err  # the message must not name the API's parameters
    assert await sent(cli) == 1


async def test_message_that_is_too_large_is_reported_with_its_size(cli: CliRunner) -> None:
    (cli.folder / "scan.pdf").write_bytes(bytes(3_000_000))
    cli.sandbox.inject_fault("Send", "status", status=413)
    result = await cli.run("send", *TO_BOB, "--attach", "scan.pdf")
    assert result.status == 5
    assert result.err == (
        "directsuite: Send: the request is larger than the service accepts (HTTP 413): its files take 4.0 MB in the "
        "request; send less, or ask the service's provider for the limit\n"
    )


def find_journals(folder: Path) -> list[Path]:
    return [each for each in folder.iterdir() if each.suffix != ".lock"]


async def test_with_a_key_it_goes_once_however_often_it_is_given(cli: CliRunner) -> None:
    cli.sandbox.inject_fault("SendWithHeader", "reset_after")
    first, second = await cli.run(*KEYED), await cli.run(*KEYED, "--json")
    assert (first.status, second.status) == (0, 0)
    assert second.document == {"sent": True, "sent_before": True, "smtp_id": first.out.strip()}
    assert await sent(cli) == 1
    (record,) = find_journals(cli.folder / "state" / "sends")
    known = record.read_bytes().lower()
    assert [word for word in (b"referral", b"alice", b"bob", b"please") if word in known] == []


@pytest.mark.parametrize(
    "key", ["Ada's referral", *(pytest.param(key, marks=pytest.mark.wide) for key in ("referral-17", "-17"))]
)
async def test_command_for_the_status_of_a_key_works(cli: CliRunner, key: str) -> None:
    for sender in (ALICE, BOB):
        result = await cli.run("send", "--to", BOB, "--body", "x", f"--key={key}", "--mailbox", sender, "-v")
        hint = re.search(r"`directsuite (status --key.*)` shows its delivery", result.err)
        assert hint is not None
        assert hint[1].endswith(f" --mailbox {BOB}") == (sender == BOB)
        assert (await cli.run(*shlex.split(hint[1]))).status == 0


async def test_unused_invalid_mailbox_does_not_fail_after_sending(cli: CliRunner) -> None:
    cli.set_env("DIRECTSUITE_MAILBOX", f"{BOB}\n")
    result = await cli.run("send", "--to", BOB, "--body", "x", "--mailbox", ALICE, "-v")
    assert (result.status, await sent(cli)) == (0, 1)
    assert f" --mailbox {ALICE}`" in result.err


async def test_with_a_key_a_large_file_is_waited_for_as_long_as_it_may_take(cli: CliRunner) -> None:
    timeouts, send_once = list[float](), Mailbox.send_once

    async def seen(box: Mailbox, message: Message, *, timeout: float, **options: Any) -> SendMessageResponse:
        timeouts.append(timeout)
        return await send_once(box, message, timeout=timeout, **options)

    cli.monkeypatch.setattr(Mailbox, "send_once", seen)
    cli.monkeypatch.setenv("DIRECTSUITE_SETTLE", "0")
    cli.folder.joinpath("scan.pdf").write_bytes(bytes(3_000_000))
    assert (await cli.run(*KEYED, "--attach", "scan.pdf")).status == 0
    assert timeouts == [pytest.approx(60.0 + 40.0, abs=30.0)]  # base64 is a third larger


async def test_send_that_runs_out_of_time_says_which_setting_gives_it_more(cli: CliRunner) -> None:
    cli.set_env("DIRECTSUITE_CONFIG", cli.write_private_file("directsuite.toml", "timeout = 0.5\n"))
    cli.sandbox.inject_fault("Send", "hang")
    result = await cli.run("send", *TO_BOB)
    assert result.status == 7
    assert result.err.endswith("; raise the timeout (DIRECTSUITE_TIMEOUT, or timeout in the settings file)\n")


async def test_key_that_was_another_message_s_is_rejected(cli: CliRunner) -> None:
    await cli.run(*KEYED)
    cli.write_private_file("scan.pdf", "%PDF-1.7")
    others = (
        ("--to", BOB, "--subject", "Other", "--body", "Please see her."),
        ("--to", BOB, "--subject", "Referral", "--body", "Please see him."),
        ("--to", ALICE, "--subject", "Referral", "--body", "Please see her."),
        (*TO_BOB, "--cc", ALICE),
        (*TO_BOB, "--html"),
        (*TO_BOB, "--attach", "scan.pdf"),
    )
    for other in others:
        await cli.fail(2, "use a new --key for each message.", "send", *other, "--key", "referral-17")
    assert await sent(cli) == 1


async def test_rejected_attempt_leaves_no_doubt_behind(cli: CliRunner) -> None:
    cli.set_env("DIRECTSUITE_MAILBOX_PASSWORD", "wrong")
    assert (await cli.run(*KEYED)).status == 3
    cli.set_env("DIRECTSUITE_MAILBOX_PASSWORD", PASSWORD)
    assert (await cli.run(*KEYED)).status == 0
    assert await sent(cli) == 1


async def test_nothing_is_sent_if_journal_cannot_be_written(offline: CommandRunner) -> None:
    offline.set_env("DIRECTSUITE_STATE", str(offline.folder / offline.write_private_file("file", "")))
    await offline.fail(2, "DIRECTSUITE_STATE", *KEYED)


async def test_journal_on_a_read_only_file_system_is_reported(cli: CliRunner) -> None:
    assert (await cli.run(*KEYED)).status == 0

    def refuse(*_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    cli.monkeypatch.setattr(Path, "touch", refuse)
    for command in (KEYED, ("status", "--key", "referral-17")):
        err = await cli.fail(2, "(Read-only file system)", *command)
        assert "the other command" not in err
        assert err.endswith("INBOX.Sent` does not show it, name a different folder with DIRECTSUITE_STATE.\n")


async def test_full_disk_after_sending_is_reported_as_sent(cli: CliRunner) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(DeliveryJournal, "end_send", fill_disk)
        err = await cli.fail(1, "but the journal of --key could not record it. The disk is full. Then run", *KEYED)
    assert err.startswith("directsuite: The message was sent, but the journal")
    assert err.endswith("searches for the message, and does not send it again. With a new journal, it would.\n")
    assert (await cli.run(*KEYED)).status == 0
    assert await sent(cli) == 1


async def test_full_disk_before_sending_is_reported_as_an_unusable_journal(cli: CliRunner) -> None:
    cli.monkeypatch.setattr(DeliveryJournal, "begin_send", fill_disk)
    err = await cli.fail(2, "The journal of --key", *KEYED)
    assert "can't be used: The disk is full. An earlier command may have sent the message." in err
    assert await sent(cli) == 0


async def test_journal_of_an_earlier_version_does_not_lead_to_a_second_message(cli: CliRunner) -> None:
    assert (await cli.run(*KEYED)).status == 0
    (journal,) = find_journals(cli.folder / "state" / "sends")
    query_file(journal, "PRAGMA user_version = 5")
    err = await cli.fail(2, "written by an earlier directsuite", *KEYED)
    assert "An earlier command may have sent the message. If `directsuite inbox list --folder INBOX.Sent`" in err
    assert await sent(cli) == 1


async def test_full_disk_does_not_hide_why_nothing_was_sent(cli: CliRunner) -> None:
    cli.monkeypatch.setattr(DeliveryJournal, "withdraw_send", fill_disk)
    cli.set_env("DIRECTSUITE_MAILBOX_PASSWORD", "wrong")
    await cli.fail(3, "authentication failed", *KEYED)


async def fill_disk(*_: object, **__: object) -> None:
    raise DeliveryJournalError("The disk is full.")


NEEDS_DEV_ZERO = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no /dev/zero")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--body", "x"), "--to ADDRESS"),
        (("--to", BOB, "--cc", "a b@c", "--body", "x"), "--cc number 1 is not an e-mail address"),
        (("--to", BOB), "--body-file"),
        (("--to", BOB, "--body", "x", "--body-file", "y"), "--body-file"),
        (("--to", BOB, "--body-file", "ada-example.txt"), "The file of --body-file can't be read"),
        (("--to", BOB, "--body-file", "bytes"), "not text in UTF-8"),
        pytest.param(("--to", BOB, "--body-file", "/dev/zero"), "more than 67,108,864 bytes", marks=NEEDS_DEV_ZERO),
        (("--to", BOB, "--body", "x", "--attach", "bytes", "--attach", "ada-example.pdf"), "--attach number 2"),
        (("--to", BOB, "--body", "x", "--attach", "."), "--attach number 1"),
        (("--to", BOB, "--body", "x", "--attach", "pipe"), "--attach number 1 is not a file. Save it as a file first."),
        (("--to", BOB, "--to", f"j\udce9{BOB}", "--body", "x"), "--to number 2 is not text in this machine's encoding"),
        (("--to", BOB, "--body", "x", "--from", "j\udce9@x.test"), "--mailbox is not text in this machine's encoding"),
        (("--to", BOB, "--body", "x", "--key", ""), "--key is empty"),
        (("--to", BOB, "--body", "x", "--from", "alice"), "--mailbox"),
        (("--to", BOB, "--body", "x", "--key", "\udcff"), "--key is not text"),
        (("--to", BOB, "--body", "\udcff"), "--body is not text"),
        (("--to", BOB, "--body", ""), "The text of the message is empty"),
        (("--to", BOB, "--body-file", "blank"), "The text of the message is empty"),
        (("--to", BOB, "--body", "x", "--subject", "a\nBcc: b@c"), "--subject contains a line break"),
        (("--to", BOB, "--body", "x", "--subject", "\x1b[2J"), "--subject contains a line break or another control"),
        (("--to", BOB, "--body", "x", "--subject", "\udcff"), "--subject is not text"),
        (("--to", BOB, "--body", "x", "--password-file", "bytes"), "--password-file is accessible to other users"),
        (("--to", BOB, "--body", "x", "--password-file", "none"), "--password-file can't be read"),
    ],
)
async def test_invalid_arguments_are_rejected_before_sending(
    offline: CommandRunner, options: tuple[str, ...], named: str
) -> None:
    offline.folder.joinpath("bytes").write_bytes(b"\xff\xfe")
    offline.folder.joinpath("bytes").chmod(0o644)
    offline.folder.joinpath("blank").write_bytes(b" \n")
    if sys.platform != "win32":
        os.mkfifo(offline.folder / "pipe")
    err = await offline.fail(2, named, "send", *options)
    assert "ada-example" not in err  # the name of a file may be a patient's
    assert BOB not in err


async def test_send_needs_a_mailbox(offline: CommandRunner) -> None:
    offline.monkeypatch.delenv("DIRECTSUITE_MAILBOX")
    await offline.fail(2, "--mailbox ADDRESS", "send", *TO_BOB)


@pytest.mark.skipif(sys.platform == "win32", reason="it keeps state elsewhere")
async def test_send_journal_is_in_users_state_folder(cli: CliRunner) -> None:
    cli.monkeypatch.delenv("DIRECTSUITE_STATE")
    for variable, folder in (("HOME", "home/.local/state"), ("XDG_STATE_HOME", "xdg")):
        cli.monkeypatch.delenv("XDG_STATE_HOME", raising=False)
        cli.set_env(variable, str(cli.folder / folder.split("/")[0]))
        assert (await cli.run(*KEYED)).status == 0
        (record,) = find_journals(cli.folder / folder / "directsuite" / "sends")
        assert stat.S_IMODE(record.stat().st_mode) == 0o600
        assert stat.S_IMODE(record.parent.stat().st_mode) == 0o700


async def test_key_without_a_home_folder_needs_a_state_folder(offline: CommandRunner) -> None:
    def fail() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("DIRECTSUITE_STATE", "XDG_STATE_HOME", "LOCALAPPDATA"):
        offline.monkeypatch.delenv(name, raising=False)
    offline.monkeypatch.setattr(Path, "home", fail)
    await offline.fail(2, "this user has no home folder. Set DIRECTSUITE_STATE.", *KEYED)


async def lose_request(runner: CliRunner) -> None:
    """Send with a key and lose the request, so that the outcome is unknown."""
    runner.set_env("DIRECTSUITE_SETTLE", "0")
    runner.sandbox.inject_fault("SendWithHeader", "reset_before")
    await runner.fail(7, "run the same command again with the same --key", *KEYED)


async def test_attachments_are_read_once_to_recognize_the_message(cli: CliRunner) -> None:
    digests, compute = list[str](), arguments.compute_message_digest

    async def count(message: Message) -> str:
        digests.append(await compute(message))
        return digests[-1]

    await lose_request(cli)
    cli.monkeypatch.setattr(arguments, "compute_message_digest", count)
    await cli.fail(2, "a different message, which may have been sent. The message of this", *KEYED, "--html")
    assert len(digests) == 1
    for _ in range(2):
        assert (await cli.run(*KEYED)).status == 0
    assert len(digests) == 3
    assert await sent(cli) == 1


async def test_absent_message_is_sent_by_next_command(cli: CliRunner) -> None:
    await lose_request(cli)
    result = await cli.run(*KEYED)
    assert (result.status, "may have sent the message. INBOX.Sent is searched" in result.err) == (0, True)
    assert await sent(cli) == 1


async def test_unverifiable_outcome_asks_user_to_check(cli: CliRunner) -> None:
    await cli.run("send", *TO_BOB)  # without a request id: this server may show none
    await lose_request(cli)
    for _ in range(2):
        await cli.fail(7, "only if it does not, run the command again with a new --key", *KEYED)
    assert await sent(cli) == 1
