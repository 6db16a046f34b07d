"""`directsuite inbox folder`: creating, renaming, deleting and subscribing to folders."""

from __future__ import annotations

from tests.cli.conftest import CliRunner
from tests.integration.scenario import ALICE, PASSWORD, open_scenario


async def list_folders(runner: CliRunner, *, subscribed_only: bool = False) -> list[str]:
    async with open_scenario(runner.sandbox, runner.folder) as world:
        return await world.suite.mailbox(ALICE, PASSWORD).get_folders(subscribed_only=subscribed_only)


async def test_folder_is_created_renamed_and_deleted_with_its_contents(cli: CliRunner) -> None:
    await cli.deliver("one")
    for name in ("INBOX.Archive", "INBOX.Archive.2026"):
        result = await cli.run("inbox", "folder", "create", name)
        assert (result.status, result.out, result.err) == (0, "", "directsuite: The folder was created.\n")
    assert (await cli.run("inbox", "copy", "1", "--to", "INBOX.Archive.2026")).status == 0
    result = await cli.run("inbox", "folder", "rename", "INBOX.Archive", "INBOX.Cases", "--json")
    assert result.document == {"folder": "INBOX.Archive", "new_folder": "INBOX.Cases"}
    assert {"INBOX.Cases", "INBOX.Cases.2026"} <= set(await list_folders(cli))
    delete = ("inbox", "folder", "delete", "inbox.cases")
    result = await cli.run(*delete, stdin="\n", is_terminal=True)
    assert (result.status, "with 1 subfolder and 1 message. Continue? [y/N]" in result.err) == (2, True)
    assert "INBOX.Cases" in await list_folders(cli)
    assert (await cli.run(*delete)).status == 2
    assert (await cli.run(*delete, stdin="y\n", is_terminal=True)).status == 0
    assert not [name for name in await list_folders(cli) if "Cases" in name]


async def test_folders_are_unsubscribed_and_subscribed(cli: CliRunner) -> None:
    names = ("INBOX.Spam", "INBOX.Drafts")
    result = await cli.run("inbox", "folder", "subscribe", *names, "--unsubscribe")
    assert (result.status, result.err) == (0, "directsuite: Unsubscribed from 2 folders.\n")
    assert not {*names} & {*await list_folders(cli, subscribed_only=True)}
    result = await cli.run("inbox", "folder", "subscribe", *names, "--json")
    assert result.document == {"folders": [*names], "subscribed": True}
    assert {*names} <= {*await list_folders(cli, subscribed_only=True)}


UNUSABLE: list[tuple[tuple[str, ...], int, str]] = [
    (("create", "Archive"), 2, "FOLDER (Archive): the name of a new folder must start with 'INBOX.'"),
    (("create", "INBOX.Sent"), 2, "FOLDER (INBOX.Sent): this folder is reserved"),
    (("create", "INBOX.Trash"), 2, "directsuite: The folder (INBOX.Trash) exists already. Choose another name; "),
    (("rename", "INBOX.Trash", "INBOX.Trash"), 2, "(INBOX.Trash) exists already. Choose another name; "),
    (("rename", "INBOX.None", "INBOX.Other"), 4, "FOLDER (INBOX.None): the mailbox has no such folder."),
    (("rename", "INBOX.Trash", "Other"), 2, "NEW_FOLDER (Other): the name of a new folder must start with"),
    (("delete", "INBOX.None", "--yes"), 4, "FOLDER (INBOX.None): the mailbox has no such folder."),
    (("delete", "INBOX", "--yes"), 2, "FOLDER (INBOX): this folder is reserved"),
    (("subscribe", "INBOX.Spam", "INBOX.None"), 4, "FOLDER (INBOX.None): the mailbox has no such folder."),
    (("subscribe",), 2, "FOLDER is missing"),
    (("subscribe", ""), 2, "FOLDER"),
]


async def test_unusable_folder_is_reported(cli: CliRunner) -> None:
    before = await list_folders(cli)
    for arguments, status, words in UNUSABLE:
        await cli.fail(status, words, "inbox", "folder", *arguments, *(["-v"] if arguments[1:] else []))
        err = await cli.fail(status, "", "inbox", "folder", *arguments)
        assert "(INBOX" not in err  # the name of a folder may be a patient's
    assert await list_folders(cli) == before


async def test_missing_folder_is_reported_before_asking(cli: CliRunner) -> None:
    result = await cli.run("inbox", "folder", "delete", "INBOX.None", is_terminal=True)
    assert (result.status, "has no such folder" in result.err, "Continue?" in result.err) == (4, True, False)


async def test_lost_response_is_verified(cli: CliRunner) -> None:
    cli.sandbox.inject_fault("CreateFolder", "reset_after")
    assert (await cli.run("inbox", "folder", "create", "INBOX.Archive")).status == 0
    assert "INBOX.Archive" in await list_folders(cli)
