"""`directsuite fax`: a number's faxes, and one of them."""

from __future__ import annotations

import json
import signal

import pytest

from tests.cli.conftest import Typist, process_of
from tests.integration.world import FAX_NUMBER


async def test_faxes_are_listed_newest_first(typist: Typist) -> None:
    ended = await typist.run("fax", "list", FAX_NUMBER, "--limit", "2")
    assert (ended.status, ended.err) == (0, "")
    _, *rows = ended.out.splitlines()
    assert [row.rsplit("  ", 1)[-1] for row in rows] == ["Fax 2", "Fax 1"]


async def test_one_is_shown_by_its_handle(typist: Typist) -> None:
    newest = json.loads((await typist.run("fax", "list", FAX_NUMBER, "--json")).out)[0]
    ended = await typist.run("fax", "show", FAX_NUMBER, newest["message_handle"])
    assert ended.status == 0
    assert "Fax 2" in ended.out
    document = json.loads((await typist.run("fax", "show", FAX_NUMBER, newest["message_handle"], "--json")).out)
    assert document[0]["description"] == "Fax 2"


async def test_a_handle_that_is_not_there_says_where_handles_are(typist: Typist) -> None:
    ended = await typist.run("fax", "show", FAX_NUMBER, "nope")
    assert (ended.status, ended.out) == (5, "")
    assert "`directsuite fax list`" in ended.err


async def test_a_number_without_faxes_is_told(typist: Typist) -> None:
    ended = await typist.run("fax", "list", "15550199999")
    assert (ended.status, ended.out) == (0, "")
    assert "no faxes" in ended.err
    assert json.loads((await typist.run("fax", "list", "15550199999", "--json")).out) == []


async def test_the_token_from_a_file(typist: Typist, monkeypatch: pytest.MonkeyPatch) -> None:
    token = typist.sandbox.environment["DIRECTSUITE_TOKEN"]
    monkeypatch.setenv("DIRECTSUITE_TOKEN", "stale")
    assert (await typist.run("fax", "list", FAX_NUMBER)).status == 3
    ended = await typist.run("fax", "list", FAX_NUMBER, "--token-file", typist.private("token", f"{token}\n"))
    assert ended.status == 0


async def test_faxes_are_listed_by_status_and_time(typist: Typist) -> None:
    await typist.sandbox.add_fax(FAX_NUMBER, status="waiting", description="late")
    for options, count in (
        (("--status", "Waiting"), 1),
        (("--status", "waiting", "--since", "2199-01-01"), 0),
        (("--since", "2020-01-01"), 4),
        (("--since", "2020-01-01", "--limit", "2"), 2),
    ):
        assert len((await typist.run("fax", "list", FAX_NUMBER, *options, "--json")).document) == count
    ended = await typist.run("fax", "list", FAX_NUMBER, "--status", "lost")
    assert (ended.status, ended.err) == (0, "directsuite: this number has no such faxes\n")


@pytest.mark.process
@pytest.mark.parametrize("form", [(), ("--json",)])
async def test_faxes_are_watched_until_ctrl_c(form: tuple[str, ...], typist: Typist) -> None:
    handle = await typist.sandbox.add_fax(FAX_NUMBER, status="waiting", description="late")
    async with process_of("fax", "watch", FAX_NUMBER, "--status", "waiting", *form) as process:
        assert process.stdout is not None
        line = (await process.stdout.readline()).decode()
        assert (json.loads(line)["message_handle"] if form else line.split("  ")[1]) == handle
        process.send_signal(signal.SIGINT)
        _, told = await process.communicate()
    assert (process.returncode, b"--since goes on from that time" in told) == (130, True)
