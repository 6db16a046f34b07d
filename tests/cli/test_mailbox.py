"""The commands of `directsuite inbox` that change a mailbox, and incomplete lists."""

from __future__ import annotations

import re
from typing import Any

import pytest

import directsuite as ds
from tests.cli.conftest import CliResult, CliRunner, CommandRunner
from tests.integration.scenario import ALICE, BOB, PASSWORD, open_scenario


async def three(runner: CliRunner) -> None:
    for subject in ("one", "two", "three"):
        await runner.deliver(subject)


async def uids(runner: CliRunner, folder: str = "INBOX") -> list[int]:
    async with open_scenario(runner.sandbox, runner.folder) as world:
        return await world.suite.mailbox(ALICE, PASSWORD).get_uids(folder)


def listed(result: CliResult) -> list[str]:
    return [row.split()[0] for row in result.out.splitlines()[1:]]


async def test_list_says_how_many_more_there_are_and_how_to_see_them(cli: CliRunner) -> None:
    await three(cli)
    result = await cli.run("inbox", "list", "--limit", "2")
    assert listed(result) == ["3", "2"]
    assert result.err == "directsuite: 1 more. To see them, give --limit 3 or --all.\n"
    assert listed(await cli.run("inbox", "list", "--limit", "1", "--all"))[-1] == "1"
    assert (await cli.run("inbox", "list", "--limit", "1", "--all")).err == ""


async def test_list_is_searched_by_sender_and_subject(cli: CliRunner) -> None:
    await three(cli)
    assert listed(await cli.run("inbox", "list", "--subject", "T")) == ["3", "2"]
    assert listed(await cli.run("inbox", "list", "--subject", "t", "--from", "nobody")) == []
    sender = (await cli.run("inbox", "list", "--json")).document[0]["sender"]
    assert listed(await cli.run("inbox", "list", "--from", sender[:4].upper())) == ["3", "2", "1"]


async def test_folders_are_listed_with_their_messages(cli: CliRunner) -> None:
    await three(cli)
    await cli.run("inbox", "mark", "1")
    counted = {each["folder"]: each for each in (await cli.run("inbox", "folders", "--json")).document}
    assert counted["INBOX"] == {"folder": "INBOX", "messages": 3, "unread": 2}
    assert (await cli.run("inbox", "folders")).out.splitlines()[1].split() == ["INBOX", "3", "2"]


async def test_messages_are_moved_and_copied(cli: CliRunner) -> None:
    await three(cli)
    await cli.run("inbox", "folder", "create", "INBOX.Archive")
    result = await cli.run("inbox", "move", "1", "2", "--to", "INBOX.Archive")
    words = "Messages get new numbers in the destination folder, which `directsuite inbox list --folder FOLDER` shows."
    assert (result.status, result.err) == (0, f"directsuite: 2 messages moved. {words}\n")
    result = await cli.run("inbox", "copy", "3", "--to", "INBOX.Archive", "-v")
    assert "`directsuite inbox list --folder INBOX.Archive` shows" in result.err
    await cli.run("inbox", "delete", "3", "--folder", "INBOX.Archive", "--yes")
    result = await cli.run("inbox", "copy", "3", "--to", "INBOX.Archive", "--json")
    assert (result.status, result.document) == (0, {"uids": [3], "missing": []})
    assert (await uids(cli), len(await uids(cli, "INBOX.Archive"))) == ([3], 3)


@pytest.mark.parametrize("command", ["move", pytest.param("copy", marks=pytest.mark.wide)])
async def test_missing_destination_is_suggested_or_can_be_created(cli: CliRunner, command: str) -> None:
    await three(cli)
    move = ("inbox", command, "1", "--to")
    for to, create in (("INBOX.My cases", "'INBOX.My cases'"), ("Cases", "INBOX.Cases")):
        words = f"Run `directsuite inbox folders` to see the folders, or `directsuite inbox folder create {create}` to"
        await cli.fail(4, f"--to ({to}): the mailbox has no such folder. {words}", *move, to, "-v")
        await cli.fail(4, "`directsuite inbox folder create FOLDER` to create one.", *move, to)
    await cli.fail(4, "Did you mean INBOX.Spam? Run ", *move, "INBOX.Spma", "-v")
    await cli.fail(2, "--to (..): ", *move, "..", "-v")
    await cli.fail(2, "--to: ", *move, "..")
    await cli.run("inbox", "folder", "create", "INBOX.My cases")
    words = "Did you mean INBOX.My cases? Run `directsuite inbox folders` to see the folders.\n"
    await cli.fail(4, words, *move, "my cases", "-v")
    await cli.fail(4, "Run `directsuite inbox folders` to see the folders.\n", *move, "My cases")
    assert (await cli.run(*move, "INBOX.My cases")).status == 0


async def test_lost_response_points_to_the_folder_that_changes(cli: CliRunner) -> None:
    await three(cli)
    await cli.run("inbox", "folder", "create", "INBOX.My cases")
    await cli.run("inbox", "copy", "1", "2", "--to", "INBOX.My cases")
    hints = {
        ("mark", "1", "--folder", "INBOX.My cases"): " --folder 'INBOX.My cases'",
        ("copy", "1", "--to", "INBOX.My cases"): " --folder 'INBOX.My cases'",
        ("copy", "1", "--folder", "INBOX.My cases", "--to", "INBOX"): "",
        ("delete", "1", "--yes"): "",
    }
    for method in ("copy_messages_by_uids", "mark_messages_as_read_by_uids", "delete_messages_by_uids"):
        cli.monkeypatch.setattr(ds.Mailbox, method, lose_response)
    for command, options in hints.items():
        await cli.fail(7, f"check the folder with `directsuite inbox list{options}` before", "inbox", *command, "-v")


async def lose_response(*_: Any, **__: Any) -> None:
    raise ds.OutcomeUnknownError("the connection was lost", how_to_find_out="look")


async def test_missing_messages_are_reported_and_the_others_processed(cli: CliRunner) -> None:
    await three(cli)
    words = "1 of 2 messages do not exist (9). Run `directsuite inbox list` to see the numbers."
    await cli.fail(4, words, "inbox", "mark", "2", "9")
    await cli.run("inbox", "copy", "1", "--to", "INBOX.Spam")
    words = words.replace("list`", "list --folder INBOX.Spam`")
    await cli.fail(4, words, "inbox", "mark", "1", "9", "--folder", "INBOX.Spam", "-v")
    await cli.fail(4, "no message with this number", "inbox", "mark", "9")
    for command in (("read",), ("save", "--into", "saved"), ("mark",)):
        words = "INBOX has no message with this number (9). Run"
        await cli.fail(4, words, "inbox", command[0], "9", *command[1:], "-v")
    await cli.fail(4, "INBOX has no message with these numbers (8, 9). Run", "inbox", "mark", "8", "9", "-v")


@pytest.mark.parametrize(("typed", "status"), [("y\n", 0), ("\n", 2)])
async def test_messages_are_deleted_only_after_a_yes(typed: str, status: int, cli: CliRunner) -> None:
    await three(cli)
    result = await cli.run("inbox", "delete", "1", "2", stdin=typed, is_terminal=True)
    assert result.status == status
    assert await uids(cli) == ([3] if status == 0 else [1, 2, 3])
    assert len(await uids(cli, "INBOX.Trash")) == (2 if status == 0 else 0)


@pytest.mark.parametrize("arguments", [("delete", "1"), ("folder", "delete", "INBOX.Archive")], ids=" ".join)
async def test_deletion_without_a_terminal_sends_no_request(offline: CommandRunner, arguments: tuple[str, ...]) -> None:
    words = "There is no terminal to ask for confirmation. Give --yes to confirm."
    await offline.fail(2, words, "inbox", *arguments, stdin="y\n")


async def test_question_before_a_deletion_shows_what_it_is_about(cli: CliRunner) -> None:
    await three(cli)
    result = await cli.run("inbox", "delete", "1", "3", "9", "-v", stdin="n\n", is_terminal=True)
    assert result.status == 2
    assert result.err.splitlines()[:2] == ["1  carol@elsewhere.test  one", "3  carol@elsewhere.test  three"]
    assert "\n2 messages of INBOX will be moved to INBOX.Trash. Continue? [y/N] " in result.err
    result = await cli.run("inbox", "delete", "1", stdin="n\n", is_terminal=True)
    assert "carol" not in result.err  # it may be a log


async def test_what_is_in_the_trash_is_deleted_only_forever(cli: CliRunner) -> None:
    await three(cli)
    await cli.run("inbox", "delete", "1", "--yes")
    words = "Messages in INBOX.Trash are deleted already. Give --forever to remove them."
    await cli.fail(2, words, "inbox", "delete", "1", "--folder", "inbox.Trash", "--yes")
    result = await cli.run("inbox", "delete", "1", "--folder", "INBOX.Trash", "--forever", "--yes")
    assert (result.status, await uids(cli, "INBOX.Trash")) == (0, [])


async def test_message_is_marked_as_read_and_as_unread(cli: CliRunner) -> None:
    await three(cli)
    for options, unread in (((), 2), (("--unread",), 3)):
        assert (await cli.run("inbox", "mark", "1", *options)).status == 0
        assert len((await cli.run("inbox", "list", "--unread", "--json")).document) == unread


async def test_messages_are_forwarded(cli: CliRunner) -> None:
    await three(cli)
    result = await cli.run("inbox", "forward", "1", "2", "--to", BOB)
    assert (result.status, result.err) == (0, "directsuite: 2 messages forwarded.\n")
    assert len(await cli.sandbox.ledger("Forward")) == 1
    assert (await cli.run("status", result.out.strip())).status == 0
    document = (await cli.run("inbox", "forward", "1", "9", "--to", BOB, "--json")).document
    assert (document["uids"], document["missing"]) == ([1], [9])
    assert (await cli.run("status", document["smtp_id"])).status == 0
    await cli.fail(2, "--to number 1 is not an e-mail address", "inbox", "forward", "1", "--to", "bob")


@pytest.mark.parametrize("others", [(), pytest.param(("2",), marks=pytest.mark.wide)], ids=["alone", "with another"])
async def test_message_with_a_bcc_is_forwarded_only_where_that_is_meant(
    others: tuple[str, ...], cli: CliRunner
) -> None:
    await sent_with_bcc(cli)
    await cli.run("send", "--to", BOB, "--body", "x")
    command = ("inbox", "forward", "1", *others, "--folder", "INBOX.Sent", "--to", BOB)
    await cli.fail(2, "1 message (1) may be forwarded with the Bcc header, which names hidden recipients.", *command)
    assert not await cli.sandbox.ledger("Forward")
    assert (await cli.run(*command, "--with-bcc")).status == 0
    assert (await cli.run("inbox", "forward", "2", "--folder", "INBOX.Sent", "--to", BOB)).status == 0
    assert len(await cli.sandbox.ledger("Forward")) == 2


@pytest.mark.parametrize(
    ("operation", "what", "options"),
    [("Forward", "forward", ("--to", BOB)), ("SendWithHeader", "reply", ("--body", "Thanks"))],
)
async def test_lost_response_to_forward_or_reply_has_its_own_status(
    operation: str, what: str, options: tuple[str, ...], cli: CliRunner
) -> None:
    await three(cli)
    cli.sandbox.inject_fault(operation, "reset_after")
    err = await cli.fail(7, "INBOX.Sent", "inbox", what, "1", *options)
    assert re.search(rf"an earlier {what} has the same subject, but a time before \d{{4}}-\d\d-\d\d", err)
    assert len(await cli.sandbox.ledger(operation)) == 1


async def deliver_lab(runner: CliRunner, *headers: str, to: str = ALICE) -> None:
    """Deliver a message from Bob with these headers in addition to its sender, recipient and subject."""
    head = "\r\n".join((f"From: Bob <{BOB}>", f"To: {to}", "Subject: Lab", *headers))
    await runner.deliver("", f"{head}\r\n\r\nSee.".encode())


async def test_message_is_responded(cli: CliRunner) -> None:
    cc = "carol@elsewhere.example.test"
    await deliver_lab(cli, f"Cc: {cc}", "Message-ID: <lab@x>")
    result = await cli.run("inbox", "reply", "1", "--body", "Thank you")
    assert (result.status, result.err) == (0, "directsuite: The reply was sent to 1 recipient.\n")
    assert (await cli.run("status", result.out.strip())).status == 0
    assert (await cli.run("inbox", "reply", "1", "--body", "Thanks", "--all", "--yes", "--json")).document["sent"]
    async with open_scenario(cli.sandbox, cli.folder) as world:
        answers = await world.suite.mailbox(BOB, PASSWORD).get_messages()
    assert [each.subject for each in answers] == ["Re: Lab"] * 2
    assert [[recipient.email for recipient in each.recipients] for each in answers] == [[BOB], [BOB, cc]]
    headers = {header.name: header.value for header in answers[0].headers}
    assert (headers["In-Reply-To"], headers["References"]) == ("<lab@x>", "<lab@x>")


async def test_reply_with_a_key_is_sent_once(cli: CliRunner) -> None:
    for message_id in ("<1@x.test>", "<2@x.test>"):
        await deliver_lab(cli, f"Message-ID: {message_id}")
    reply = ("inbox", "reply", "1", "--body", "Thanks", "--key", "thanks-1")
    cli.sandbox.inject_fault("SendWithHeader", "reset_after")
    first, second = await cli.run(*reply), await cli.run(*reply, "--json")
    hint = "`directsuite status` with this --key shows its delivery."
    assert (first.status, first.err) == (0, f"directsuite: The reply was sent to 1 recipient. {hint}\n")
    assert (second.document["sent_before"], second.document["smtp_id"]) == (True, first.out.strip())
    assert second.err == "directsuite: The reply was sent before with this --key to 1 recipient.\n"
    hint = ". `directsuite status --key thanks-1` shows its delivery."
    assert hint in (await cli.run(*reply, "-v")).err
    for other in (("2", "--body", "Thanks"), ("1", "--body", "No")):
        await cli.fail(2, "use a new --key for each message.", "inbox", "reply", *other, "--key", "thanks-1")
    await cli.fail(2, "--key is empty", "inbox", "reply", "1", "--body", "Thanks", "--key", "")
    assert len(await cli.sandbox.ledger("SendWithHeader")) == 1


async def test_dry_run_of_a_reply_shows_it_and_sends_nothing(cli: CliRunner) -> None:
    cc = "carol@elsewhere.example.test"
    await deliver_lab(cli, f"Cc: {cc}", "Message-ID: <lab@x>")
    cli.write_private_file("scan.pdf", "%PDF-1.7")
    reply = ("inbox", "reply", "1", "--body", "Thanks", "--attach", "scan.pdf", "--all", "--key", "thanks-1")
    result = await cli.run(*reply, "--dry-run")
    assert (result.status, result.err) == (0, "directsuite: Dry run: nothing was sent.\n")
    assert [line.split(maxsplit=1) for line in result.out.splitlines()[1:]] == [
        ["From", ALICE],
        ["To", BOB],
        ["Cc", cc],
        ["Subject", "Re: Lab"],
        ["Body", "text, 6 characters"],
        ["File", "scan.pdf, application/pdf, 8 B"],
    ]
    document = (await cli.run(*reply, "--dry-run", "--json")).document
    assert (document["sent"], document["sent_before"], document["subject"]) == (False, False, "Re: Lab")
    assert not await cli.sandbox.ledger("SendWithHeader")
    assert (await cli.run(*reply, "--yes")).status == 0
    result = await cli.run(*reply, "--dry-run")
    assert ("was sent before" in result.out, "It would not be sent again." in result.err) == (True, True)
    await cli.fail(2, "a different message, which was sent.", *reply, "--html", "--dry-run")
    assert len(await cli.sandbox.ledger("SendWithHeader")) == 1


async def sent_with_bcc(runner: CliRunner) -> None:
    """Store a message of Alice's with a Bcc recipient as number 1 of INBOX.Sent."""
    to = ("--to", BOB, "--to", ALICE, "--cc", "nurse@elsewhere.test", "--bcc", "lawyer@elsewhere.test")
    assert (await runner.run("send", *to, "--subject", "Lab", "--body", "x")).status == 0


@pytest.mark.parametrize(
    ("options", "recipients"),
    [((), [(BOB, "TO")]), (("--all",), [(BOB, "TO"), ("nurse@elsewhere.test", "CC")])],
    ids=["sender", "all"],
)
async def test_reply_to_own_message_goes_to_its_to_and_cc_recipients(
    options: tuple[str, ...], recipients: list[tuple[str, str]], cli: CliRunner
) -> None:
    await sent_with_bcc(cli)
    result = await cli.run("inbox", "reply", "1", "--folder", "INBOX.Sent", "--body", "y", "--yes", "--json", *options)
    assert [(each["email"], each["type"]) for each in result.document["recipients"]] == recipients
    async with open_scenario(cli.sandbox, cli.folder) as world:
        *_, answer = await world.suite.mailbox(BOB, PASSWORD).get_messages()
    assert answer.subject == "Re: Lab"
    assert [(each.email, each.type) for each in answer.recipients] == recipients


async def test_response_to_all_of_a_message_that_names_a_bcc_leaves_it_out(cli: CliRunner) -> None:
    await deliver_lab(cli, "Bcc: lawyer@x.test", to=f"{ALICE.upper()}, Carol <carol@x.test>")
    result = await cli.run("inbox", "reply", "1", "--body", "y", "--all", "--yes", "--json")
    assert [(each["email"], each["type"]) for each in result.document["recipients"]] == [
        (BOB, "TO"),
        ("carol@x.test", "CC"),
    ]


async def test_reply_without_recipient_is_rejected(cli: CliRunner) -> None:
    await cli.run("send", "--to", ALICE, "--bcc", BOB, "--body", "x")
    reply = ("inbox", "reply", "1", "--folder", "INBOX.Sent", "--body", "y", "--all")
    await cli.fail(2, "no other recipients than you and those of a Bcc", *reply)
    assert not await cli.sandbox.ledger("SendWithHeader")


@pytest.mark.parametrize(
    ("typed", "options", "status"),
    [("y\n", (), 0), ("\n", (), 2), pytest.param("", ("--yes",), 0, marks=pytest.mark.wide)],
    ids=["yes", "no", "--yes"],
)
async def test_response_to_several_names_them_and_is_sent_after_a_yes(
    typed: str, options: tuple[str, ...], status: int, cli: CliRunner
) -> None:
    await sent_with_bcc(cli)
    command = ("inbox", "reply", "1", "--folder", "INBOX.Sent", "--body", "y", "--all", "-v", *options)
    result = await cli.run(*command, stdin=typed, is_terminal=True)
    assert result.status == status
    named = f"2 recipients (To {BOB}, Cc nurse@elsewhere.test)"
    assert (f"The reply will be sent to {named}. Continue? [y/N] " in result.err) is not bool(options)
    assert (f"The reply was sent to {named}" in result.err) is (status == 0)
    assert len(await cli.sandbox.ledger("SendWithHeader")) == (status == 0)


async def test_line_breaks_of_the_sender_do_not_prevent_a_reply(cli: CliRunner) -> None:
    async def fetch_message(*_: object) -> ds.MessageDetail:
        recipients = [ds.Recipient(ALICE, ds.RecipientType.TO)]
        return ds.MessageDetail(subject="Lab\r\n\tresults\0", msg_id="<lab@x>\r\n", sender=BOB, recipients=recipients)

    cli.monkeypatch.setattr("directsuite.cli.inbox.fetch_message", fetch_message)
    assert (await cli.run("inbox", "reply", "1", "--body", "Thank you")).status == 0
    async with open_scenario(cli.sandbox, cli.folder) as world:
        [answer] = await world.suite.mailbox(BOB, PASSWORD).get_messages()
    assert answer.subject == "Re: Lab results"
    assert ("References", "<lab@x>") in [(header.name, header.value) for header in answer.headers]


async def test_dry_run_of_a_reply_rejects_what_sending_would_reject(cli: CliRunner) -> None:
    async def fetch_message(*_: object) -> ds.MessageDetail:
        return ds.MessageDetail(sender=BOB, recipients=[ds.Recipient("a@b@c.test", ds.RecipientType.CC)])

    cli.monkeypatch.setattr("directsuite.cli.inbox.fetch_message", fetch_message)
    reply = ("inbox", "reply", "1", "--body", "y", "--all", "--yes")
    for more in ((), ("--dry-run",)):
        await cli.fail(2, "recipients", *reply, *more)


async def test_bcc_recipient_is_warned_before_reply_to_all(cli: CliRunner) -> None:
    await deliver_lab(cli, to="carol@x.test")
    result = await cli.run("inbox", "reply", "1", "--body", "y", "--all", stdin="\n", is_terminal=True)
    assert (result.status, "You are neither in To nor in Cc of the message" in result.err) == (2, True)
    result = await cli.run("inbox", "reply", "1", "--body", "y", "--all", "--dry-run")
    assert result.err.startswith("directsuite: You are neither in To nor in Cc of the message, so the others would")
    assert result.err.endswith(" Dry run: nothing was sent.\n")
