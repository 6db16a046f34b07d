"""`directsuite fax`: the faxes of a number, and a single fax."""

from __future__ import annotations

import json
import signal

import pytest

from tests.cli.conftest import CliRunner, start_process
from tests.integration.scenario import FAX_NUMBER


async def test_faxes_are_listed_newest_first(cli: CliRunner) -> None:
    result = await cli.run("fax", "list", FAX_NUMBER, "--limit", "2")
    assert result.status == 0
    _, *rows = result.out.splitlines()
    assert [row.rsplit("  ", 1)[-1] for row in rows] == ["Fax 2", "Fax 1"]


async def test_list_that_is_cut_says_so(cli: CliRunner) -> None:
    for form in ((), ("--json",)):
        result = await cli.run("fax", "list", FAX_NUMBER, "--limit", "2", *form)
        assert result.status == 0
        assert result.err == (
            "directsuite: Only the newest 2 are shown. To see more, give a higher --limit, or --all.\n"
        )
        for enough in (("--limit", "3"), ("--limit", "2", "--all"), ("--limit", "2", "--since", "2199-01-01")):
            assert "more" not in (await cli.run("fax", "list", FAX_NUMBER, *enough, *form)).err
    assert len((await cli.run("fax", "list", FAX_NUMBER, "--limit", "2", "--all", "--json")).document) == 3


async def test_one_is_shown_by_its_handle(cli: CliRunner) -> None:
    newest = (await cli.run("fax", "list", FAX_NUMBER, "--json")).document[0]
    result = await cli.run("fax", "show", FAX_NUMBER, newest["message_handle"])
    assert result.status == 0
    assert "Fax 2" in result.out
    document = (await cli.run("fax", "show", FAX_NUMBER, newest["message_handle"], "--json")).document
    assert document[0]["description"] == "Fax 2"


async def test_handle_that_is_not_there_says_where_handles_are(cli: CliRunner) -> None:
    err = await cli.fail(4, "There is no such fax", "fax", "show", FAX_NUMBER, "nope")
    assert "`directsuite fax list`" in err
    cli.sandbox.inject_fault("getSingleMessageInfo", "status", status=405)
    await cli.fail(5, "another server responded", "fax", "show", FAX_NUMBER, "nope")


async def test_number_without_faxes_is_reported(cli: CliRunner) -> None:
    result = await cli.run("fax", "list", "15550199999")
    assert (result.status, result.out) == (0, "")
    assert "no faxes" in result.err
    assert (await cli.run("fax", "list", "15550199999", "--json")).document == []


async def test_faxes_are_listed_by_status_and_time(cli: CliRunner) -> None:
    await cli.sandbox.add_fax(FAX_NUMBER, status="waiting", description="late")
    for options, count in (
        (("--status", "Waiting"), 1),
        (("--status", "waiting", "--since", "2199-01-01"), 0),
        (("--since", "2020-01-01"), 4),
        (("--since", "2020-01-01", "--limit", "2"), 2),
    ):
        assert len((await cli.run("fax", "list", FAX_NUMBER, *options, "--json")).document) == count
    result = await cli.run("fax", "list", FAX_NUMBER, "--status", "waiting", "--since", "2199-01-01")
    assert (result.status, result.err) == (0, "directsuite: No fax of this number matches.\n")


async def test_unknown_status_is_reported_and_can_be_filtered(cli: CliRunner) -> None:
    record = {"message_handle": "h", "status": "failed"}
    cli.sandbox.inject_fault("getMultipleMessageInfo", "status", status=200, body={"MessageDetail": [record]})
    result = await cli.run("fax", "list", FAX_NUMBER, "--status", "failed", "--json")
    assert [each["message_handle"] for each in result.document] == ["h"]
    assert "--status is neither waiting nor complete" in result.err
    assert {"waiting,", "complete,"} <= set((await cli.run("fax", "list", "--help")).out.split())


@pytest.mark.process
async def test_watch_reports_failing_polls_once_and_recovery_once(cli: CliRunner) -> None:
    cli.sandbox.inject_fault("getMultipleMessageInfo", "status", status=405, times=2)  # it is not retried
    async with start_process("fax", "watch", FAX_NUMBER, "--interval", "0.01") as process:
        assert process.stderr is not None
        lines = [(await process.stderr.readline()).decode() for _ in range(2)]
        process.send_signal(signal.SIGINT)
        await process.communicate()
    assert lines[0].startswith("directsuite: A poll failed (getMultipleMessageInfo: ")
    assert lines[0].endswith("Run `directsuite doctor` to see what is wrong.\n")
    assert lines[1] == "directsuite: The service responds again.\n"


@pytest.mark.process
@pytest.mark.parametrize("form", [(), ("--json",)])
async def test_faxes_are_watched_until_ctrl_c(form: tuple[str, ...], cli: CliRunner) -> None:
    handle = await cli.sandbox.add_fax(FAX_NUMBER, status="waiting", description="late")
    async with start_process("fax", "watch", FAX_NUMBER, "--status", "waiting", *form) as process:
        assert process.stdout is not None
        line = (await process.stdout.readline()).decode()
        assert (json.loads(line)["message_handle"] if form else line.split("  ")[1]) == handle
        process.send_signal(signal.SIGINT)
        _, told = await process.communicate()
    assert process.returncode == 130
    since = told.decode().partition("--since ")[2].split()[0]  # the value that continues after the last record
    assert len((await cli.run("fax", "list", FAX_NUMBER, "--since", since, "--status", "waiting")).out) > 0
