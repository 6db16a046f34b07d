"""`directsuite sandbox env`, `account` and others, and the client of the control API."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import directsuite as ds
from directsuite.cli import sandbox as sandbox_command
from directsuite.sandbox import Control, ControlError, Sandbox
from tests.cli.conftest import CliRunner, CommandRunner
from tests.integration.scenario import ALICE, make_raw_message

ADDRESS = "carol@direct.example.test"


@pytest.fixture
async def cli(parts: dict[str, Any]) -> AsyncIterator[CliRunner]:
    async with Sandbox() as sandbox:
        runner = CliRunner(**parts, prefix=("sandbox",), sandbox=sandbox)
        runner.set_env("DIRECTSUITE_SANDBOX", sandbox.root_url)
        yield runner


async def test_environment_is_printed_for_a_shell(cli: CliRunner) -> None:
    result = await cli.run("env")
    assert (result.status, result.err) == (0, "")
    expected = cli.sandbox.environment | {"DIRECTSUITE_SANDBOX": cli.sandbox.root_url}
    assert result.out.splitlines() == [f"export {name}={value}" for name, value in expected.items()]


async def test_account_can_be_used_immediately(cli: CliRunner) -> None:
    assert (await cli.run("account", ADDRESS)).err == "directsuite: The mailbox was added. Its password is sandbox.\n"
    async with ds.DirectSuite.from_env(cli.sandbox.environment) as suite:
        assert await suite.mailbox(ADDRESS, "sandbox").get_message_count() == 0
    await cli.fail(2, "directsuite: ", "account", ADDRESS)


async def test_unknown_fax_is_reported_with_the_command_that_lists_them(cli: CliRunner) -> None:
    words = "there is no fax with the handle 'gone': `directsuite fax list NUMBER` shows the handles of a number"
    await cli.fail(4, words, "fax", "15550100100", "--handle", "gone")


async def test_body_that_is_nested_too_deeply_is_rejected(offline: CommandRunner) -> None:
    await offline.fail(2, "nested too deeply", "sandbox", "fault", "Send", "status", "--body", "[" * 100_000)


async def test_patient_can_be_provisioned(cli: CliRunner) -> None:
    result = await cli.run("individual", "Ada", "Example", "1234", "1980-02-29")
    assert result.status == 0
    assert int(result.out) > 0
    await cli.fail(2, "", "individual", "Ada", "Example", "12", "1980-02-29")


async def test_fax_is_added_and_changed(cli: CliRunner) -> None:
    result = await cli.run("fax", "15550100100", "--status", "waiting", "--description", "Results")
    handle = result.out.strip()
    async with ds.DirectSuite.from_env(cli.sandbox.environment) as suite:
        for status in ("waiting", "complete"):
            (fax,) = (await suite.fax.get_single_message_info("15550100100", handle)).message_detail
            assert (str(fax.status), fax.description) == (status, "Results")
            await cli.run("fax", "15550100100", "--handle", handle, "--status", "complete")


async def test_clock_is_shown_and_changed(cli: CliRunner) -> None:
    assert (await cli.run("clock", "--set", "2026-05-01T09:00+00:00")).out.startswith("2026-05-01 ")
    await cli.run("clock", "--freeze")
    for text, seconds in (("31m", 31 * 60), ("2h30m", 9000), ("600", 600), ("1.5", 1.5), ("100y", 3_153_600_000)):
        before = cli.sandbox.clock.now()
        await cli.run("clock", "--advance", text)
        assert cli.sandbox.clock.now() - before == timedelta(seconds=seconds)
    assert (await cli.run("clock", "--resume")).status == 0
    assert cli.sandbox.clock.frozen is False
    assert (await cli.run("clock", "--freeze", "--resume")).status == 2


@pytest.mark.parametrize("text", ["soon", "", "nan", "31x", "-5m", "-600", "0m", "1e-9", "101y", "1e300"])
async def test_clock_is_advanced_only_by_a_duration_within_the_limits(offline: CommandRunner, text: str) -> None:
    message = "--advance: give a duration such as 31m or 2h30m: more than 0, and at most 100 years"
    await offline.fail(2, message, "sandbox", "clock", f"--advance={text}")


@pytest.mark.parametrize("text", ["0001-01-01", "0001-01-01T00:00+00:00", "9999-12-31T23:59", "9999-12-31T23:59-14:00"])
async def test_clock_rejects_a_time_at_an_end_of_the_calendar(cli: CliRunner, text: str) -> None:
    assert "at fault" not in await cli.fail(2, "", "clock", "--set", text)


async def test_faults_are_added_listed_and_removed(cli: CliRunner) -> None:
    assert (await cli.run("fault")).err == "directsuite: There are no faults.\n"
    result = await cli.run("fault", "Send", "status", "--status", "429", "--retry-after", "3", "--always")
    assert result.out.splitlines()[1].split() == ["1", "Send", "status", "429", "0", "always"]
    (rule,) = (await cli.run("fault", "--json")).document
    assert (rule["status"], rule["retry_after"], rule["times"]) == (429, 3, None)
    assert (await cli.run("fault", "--clear")).err == "directsuite: 1 fault removed.\n"
    assert (await cli.run("fault", "--clear")).err == "directsuite: 0 faults removed.\n"
    await cli.run("fault", "Send", "hang", "--processed", "--skip", "2")
    await cli.run("fault", "Send", "latency", "--seconds", "1.5")
    assert "latency 1.5 s" in (await cli.run("fault")).out
    hang, latency = (await cli.run("fault", "--json")).document
    assert (hang["processed"], hang["skip"], latency["seconds"]) == (True, 2, 1.5)
    assert (await cli.run("fault", "--clear")).err == "directsuite: 2 faults removed.\n"
    assert "The kind of the fault is missing" in (await cli.run("fault", "Send")).err
    words = "the kind 'gone' of the fault is unknown: use one of status, latency"
    await cli.fail(2, words, "fault", "Send", "gone")


async def test_fault_has_the_body_that_is_given(cli: CliRunner) -> None:
    refusal = '{"success": false, "code": "021"}'
    cli.write_private_file("refusal.json", refusal)
    for body, expected in (
        (refusal, json.loads(refusal)),
        ("@refusal.json", json.loads(refusal)),
        ("<h1>Bad gateway</h1>", "<h1>Bad gateway</h1>"),
    ):
        await cli.run("fault", "ProvisionIDProofedPatient", "status", "--status", "200", "--body", body)
        (rule,) = (await cli.run("fault", "--json")).document
        assert (rule["status"], rule["body"]) == (200, expected)
        await cli.run("fault", "--clear")
    await cli.fail(2, "The file of --body can't be read", "fault", "Send", "status", "--body", "@none.json")


async def test_ledger_tells_what_happened_and_reset_forgets_it(cli: CliRunner) -> None:
    assert (await cli.run("ledger")).err == "directsuite: There are no effects.\n"
    await cli.sandbox.add_account(ALICE, "secret")
    async with ds.DirectSuite.from_env(cli.sandbox.environment) as suite:
        await suite.mailbox(ALICE, "secret").send(ds.Message(subject="x", recipients=[ds.Recipient(ALICE)]))
    assert (await cli.run("ledger")).out.splitlines()[1].split()[2] == "Send"
    assert [each["operation"] for each in (await cli.run("ledger", "Send", "--json")).document] == ["Send"]
    assert (await cli.run("reset")).err == "directsuite: The sandbox was reset to its initial state.\n"
    assert (await cli.run("ledger")).err == "directsuite: There are no effects.\n"


async def test_missing_sandbox_names_command_that_starts_one(cli: CliRunner) -> None:
    advice = "start one with `directsuite sandbox`, or set the URL of another one with --at or DIRECTSUITE_SANDBOX"
    words = f"directsuite: no sandbox responds at http://127.0.0.1:9: {advice}"
    await cli.fail(4, words, "env", "--at", "http://127.0.0.1:9")


async def test_client_does_what_the_commands_do_not(cli: CliRunner) -> None:
    sandbox = cli.sandbox
    await sandbox.add_account(ALICE, "secret")
    async with Control(sandbox.root_url) as control, ds.DirectSuite.from_env(sandbox.environment) as suite:
        await control.add_tuser("runner", "secret", [ALICE])
        await control.add_reseller("other", "secret", ["elsewhere.example.test"])
        assert await control.deliver(ALICE, make_raw_message("Results"), "INBOX") == 1
        box = suite.mailbox(ALICE, "secret")
        sent = await box.send(ds.Message(subject="x", recipients=[ds.Recipient("slow+30m@elsewhere.test")]))
        await control.set_message_status(sent.smtp_id, "slow+30m@elsewhere.test", "Delivered")
        (record,) = (await box.get_message_status(sent.smtp_id)).records
        assert str(record.status) == "Delivered"
        at = datetime(2026, 5, 1, 9, tzinfo=UTC)
        assert await control.clock.set(at) - at < timedelta(minutes=1)
        with pytest.raises(ControlError, match="no patient") as caught:
            await control.set_patient_state("nobody@x.test", "activated")
        assert caught.value.status == 404
    with pytest.raises(ControlError, match="async with"):
        await Control(sandbox.root_url).clock.now()


async def test_each_call_is_a_line_without_what_it_carried(cli: CliRunner) -> None:
    sandbox = cli.sandbox
    sandbox.calls.listeners.append(sandbox_command._show_call)
    sandbox.inject_fault("GetFolders", "reset_before")
    await sandbox.add_account(ALICE, "secret")
    async with ds.DirectSuite.from_env(sandbox.environment) as suite:
        box = suite.mailbox(ALICE, "secret").with_options(retry=ds.RetryPolicy.none())
        await box.get_message_count()
        with pytest.raises(ds.ConnectionLostError):
            await box.get_folders()
    lines = [line.split()[2:-2] for line in cli.capsys.readouterr().out.splitlines()]
    assert lines == [["GetMessageCount", "200"], ["GetFolders", "no", "response", "(fault:", "reset_before)"]]
    assert [each.operation for each in sandbox.calls.records] == ["GetMessageCount", "GetFolders"]
