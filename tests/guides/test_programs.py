"""The programs of the short guides, unchanged."""

from __future__ import annotations

import contextlib
import json
import logging
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import attrs
import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer

import directsuite as ds
from directsuite.sandbox import Sandbox
from directsuite.sandbox.server import DEMO_CLIENT
from directsuite.testing import LeapingClock, mocked_services
from tests.consent_form import build_consent_form
from tests.guides.documents import ALICE, execute_programs, find_code_blocks
from tests.integration.documents import make_consent_form
from tests.integration.scenario import FAX_NUMBER
from tests.jobs.delivery.clinic import open_clinic

ADDRESS, PASSWORD = ALICE
LETTER = ds.Message(recipients=[ds.Recipient(ADDRESS)], sender=ADDRESS, subject="Referral", body="See you on Monday.")
LOGIN_URL = "https://login.example.org"


async def test_delivery_sends_a_batch_and_reports_missing_deliveries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    send_all = execute_programs(*find_code_blocks("delivery"))["send_all"]
    messages = {
        f"referral {number}": ds.Message(subject="Referral", recipients=[ds.Recipient(f"{name}@hospital.example.test")])
        for number, name in enumerate(("deliver", "bounce", "deliver"))
    }
    async with open_clinic() as clinic:
        await send_all(clinic.box, messages)
        assert clinic.request_counts["GetMessageStatusMany"] == 1
        assert capsys.readouterr().out == "call them: bounce@hospital.example.test Remotely Failed\n"
        await send_all(clinic.box, messages)  # the program runs again
        assert capsys.readouterr().out == ""
        assert len(await clinic.sandbox.ledger("SendWithHeader")) == 3


async def test_report_is_sent_to_two_recipients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "report.pdf").write_bytes(b"%PDF-1.7")
    async with open_clinic() as clinic:
        delivery = await execute_programs(*find_code_blocks("delivery"))["send_report"](clinic.box)
    recipients = {str(record.to) for record in delivery.records}
    assert recipients == {"nurse@hospital.example.test", "records@hospital.example.test"}


async def test_faxes_are_watched(capsys: pytest.CaptureFixture[str]) -> None:
    programs = execute_programs(*find_code_blocks("faxes"))
    async with open_clinic() as clinic:
        handle = await clinic.sandbox.add_fax(FAX_NUMBER)
        assert await programs["read_status"](clinic.suite, FAX_NUMBER, handle) is ds.FaxStatus.COMPLETE
        sleep = clinic.time.sleep

        async def sleep_and_close(seconds: float) -> None:
            await sleep(seconds)
            await clinic.suite.aclose()

        clinic.time.sleep = sleep_and_close  # type: ignore[method-assign]
        await programs["watch"](clinic.suite, FAX_NUMBER, None)
    assert capsys.readouterr().out == f"{handle} complete\n"


async def test_patient_is_provisioned_once_and_found(sandbox: Sandbox) -> None:
    programs = execute_programs(*find_code_blocks("patients"))
    domain = "direct.example.test"
    await sandbox.add_reseller("clinic", "secret", [domain])
    await sandbox.add_individual("Ada", "Example", "1234", "1980-02-29")
    settings = ds.Settings(registration_url=sandbox.registration_url)
    async with ds.DirectSuite(settings, login=ds.Login("clinic", "secret")) as suite:
        for _ in range(2):
            assert await programs["provision"](suite, domain) == f"ada@{domain}"
        assert await programs["find"](suite, domain) == [f"ada@{domain}"]
    assert len(await sandbox.ledger("ProvisionIDProofedPatient")) == 1


async def test_patient_is_provisioned_if_the_service_returns_an_empty_list() -> None:
    settings = ds.Settings(registration_url="https://registration.example.test")
    domain = "direct.example.test"
    with mocked_services() as mocked:
        mocked.respond("login", session_id="session")
        mocked.respond("GetPatientAddressByMeta", session_id="session", direct_domain=domain, patient=[])
        users = [{"username": "ada"}]
        mocked.respond("ProvisionIDProofedPatient", session_id="session", direct_domain=domain, users=users)
        async with ds.DirectSuite(settings, login=ds.Login("clinic", "secret")) as suite:
            provision = execute_programs(*find_code_blocks("patients"))["provision"]
            assert await provision(suite, domain) == f"ada@{domain}"


async def test_streams_pass_a_pdf_on_and_back_signed(suite: ds.DirectSuite) -> None:
    program = execute_programs(find_code_blocks("streams")[0])["sign"]

    async def sign(request: web.Request) -> web.StreamResponse:
        response: web.StreamResponse = await program(request, suite)
        return response

    app = web.Application()
    app.router.add_post("/sign", sign)
    async with TestServer(app) as server, ClientSession() as browser:
        async with browser.post(server.make_url("/sign"), data=build_consent_form(1)) as response:
            signed = await response.read()
        assert response.status == 200
    signatures = (await suite.signing.get_doc_info(await suite.signing.save(signed))).signatures
    assert "approval" in [signature.name for signature in signatures]


async def test_streams_store_attachments(suite: ds.DirectSuite, tmp_path: Path) -> None:
    box = suite.mailbox(*ALICE)
    attached = ds.Attachment(content=b"kept", filename="note.txt", content_type="text/plain")
    await box.send(ds.Message(recipients=[ds.Recipient(ADDRESS)], attachment_list=[attached]))
    await execute_programs(find_code_blocks("streams")[0])["save_attachments"](box, tmp_path)
    assert (tmp_path / "1-0").read_bytes() == b"kept"


async def test_newest_messages_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    programs = execute_programs(find_code_blocks("streams")[1])
    async with Sandbox() as sandbox, ds.DirectSuite.from_env(sandbox.environment) as suite:
        await sandbox.add_account(*ALICE)
        box = suite.mailbox(*ALICE)
        for subject in ("one", "two", "three"):
            await box.send(to=ALICE[0], subject=subject)
            sandbox.clock.advance(timedelta(hours=1))
        await programs["show_recent"](box, sandbox.clock.now() - timedelta(hours=2.5))
        assert capsys.readouterr().out == "3 three\n2 two\n"
        assert [message.uid for message in await programs["fetch"](box, [1, 9])] == [1]
    assert capsys.readouterr().out == "not in INBOX, or unreadable: [9]\n"


@pytest.fixture
def signing_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    for name in ("one.pdf", "two.pdf"):
        (tmp_path / "in" / name).write_bytes(make_consent_form())
    (tmp_path / "in" / "three.pdf").write_text("no PDF")
    return execute_programs(*find_code_blocks("signing-jobs"))


def assert_signed(folder: Path, printed: str) -> None:
    assert sorted(file.name for file in (folder / "out").iterdir() if file.is_file()) == ["one.pdf", "two.pdf"]
    assert "done=2, failed=1" in printed


async def test_folder_is_signed_and_failures_are_reported(
    signing_jobs: dict[str, Any], suite: ds.DirectSuite, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await signing_jobs["sign_all"](suite)
    printed = capsys.readouterr().out
    assert_signed(tmp_path, printed)
    assert "three.pdf it is not a PDF" in printed


async def test_results_and_progress_are_printed(
    signing_jobs: dict[str, Any], suite: ds.DirectSuite, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await signing_jobs["sign_and_report"](suite)
    printed = capsys.readouterr().out.splitlines()
    assert {f"{name} {tmp_path}/out/{name}" for name in ("one.pdf", "two.pdf")} < set(printed)
    assert any(line.startswith("three.pdf it is not a PDF") for line in printed)
    assert printed[0] == "0 signed, 0 failed"
    assert "2 signed, 1 failed" in printed


async def test_single_pdfs_are_signed(signing_jobs: dict[str, Any], suite: ds.DirectSuite, tmp_path: Path) -> None:
    await signing_jobs["sign_one"](suite, tmp_path / "in" / "one.pdf", tmp_path / "signed.pdf")
    signed = [
        (tmp_path / "signed.pdf").read_bytes(),
        await signing_jobs["flatten_and_sign"](suite, make_consent_form()),
    ]
    infos = [await suite.signing.get_doc_info(await suite.signing.save(pdf)) for pdf in signed]
    names = [{each.name for each in info.signatures if each.is_signed} for info in infos]
    assert names == [{"PatientSig", "WitnessSig"}, {"Approval"}]


async def test_storage_is_signed_into_another(
    signing_jobs: dict[str, Any], suite: ds.DirectSuite, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await signing_jobs["sign_in_storage"](suite, f"file://{tmp_path}/in", f"file://{tmp_path}/out")
    assert_signed(tmp_path, capsys.readouterr().out)


@pytest.mark.postgres
async def test_fleet_signs_the_names_that_it_gets(
    conninfo: str,
    signing_jobs: dict[str, Any],
    suite: ds.DirectSuite,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    await signing_jobs["sign_in_many_processes"](suite, conninfo, ["one.pdf", "two.pdf", "three.pdf"])
    assert_signed(tmp_path, capsys.readouterr().out)


@pytest.mark.parametrize(
    ("password", "fault", "words"),
    [
        (PASSWORD, None, "sent as <"),
        (PASSWORD, {"kind": "reset_after"}, "it may have been sent: look in INBOX.Sent"),
        (PASSWORD, {"kind": "status", "status": 200, "body": {"success": False, "code": 2}}, "the service knows no"),
        ("wrong", None, "the password is wrong"),
        (PASSWORD, {"kind": "status", "status": 200, "body": {"success": False, "code": 3}}, "the service refuses it"),
    ],
)
async def test_each_error_is_reported_separately(
    sandbox: Sandbox, password: str, fault: dict[str, Any] | None, words: str
) -> None:
    if fault is not None:
        sandbox.inject_fault("Send", **fault)
    settings = ds.Settings(message_url=sandbox.message_url, retry=ds.RetryPolicy.none())
    async with ds.DirectSuite(settings) as suite:
        send = execute_programs(*find_code_blocks("errors"))["send"]
        result: str = await send(suite.mailbox(ADDRESS, password), LETTER)
    assert result.startswith(words)


async def test_hook_policy_and_listener_extend_a_suite(sandbox: Sandbox, capsys: pytest.CaptureFixture[str]) -> None:
    conversion, retries, _, _, events, _ = find_code_blocks("extending")
    converter = execute_programs(conversion)["settings"].converter
    assert converter.structure(" cc ", ds.RecipientType) is ds.RecipientType.CC
    settings = attrs.evolve(execute_programs(retries)["settings"], fax_url=None, message_url=sandbox.message_url)
    assert settings.retry.attempts == 6
    sandbox.inject_fault("Send", "reset_after")
    async with execute_programs(events)["make_suite"](settings) as suite:
        with pytest.raises(ds.OutcomeUnknownError):
            await suite.mailbox(*ALICE).send(LETTER)
    assert capsys.readouterr().out.startswith("Send: it may have happened: look in INBOX.Sent")


async def test_listener_counts_calls_and_failures(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DIRECTSUITE_MESSAGE_URL", sandbox.message_url)
    program = execute_programs(find_code_blocks("extending")[-1])
    await program["main"](*ALICE)
    assert program["calls"] == {"GetMessageCount": 1}
    assert program["retries"] == {"GetMessageCount": 0}
    assert program["failures"] == {("GetMessageCount", "ServiceError", 200, 3): 1}
    assert "GetMessageCount: " in capsys.readouterr().out


async def test_calls_are_logged_as_json_lines(sandbox: Sandbox, capsys: pytest.CaptureFixture[str]) -> None:
    loggers = [logging.getLogger(name) for name in (None, "directsuite", "directsuite.calls")]
    before = [(each, each.level, [*each.handlers]) for each in loggers]
    [program] = [block for block in find_code_blocks("extending") if "dictConfig" in block]
    execute_programs(program)["configure_logs"]()
    try:
        async with ds.DirectSuite(ds.Settings(message_url=sandbox.message_url)) as suite:
            await suite.mailbox(*ALICE).get_message_count("INBOX")
    finally:
        for logger, level, handlers in before:
            logger.setLevel(level)
            logger.handlers[:] = handlers
    [line] = map(json.loads, capsys.readouterr().err.splitlines())
    assert (line["level"], line["event"], line["operation"]) == ("INFO", "CallFinished", "GetMessageCount")
    assert line["text"].startswith(f"GetMessageCount: succeeded (call {line['call']}, HTTP 200, 1 attempt, ")
    assert line["run"].endswith(f" {os.getpid()}")
    assert "error" not in line


async def test_caught_error_is_logged_with_the_group_of_its_calls(
    sandbox: Sandbox, suite: ds.DirectSuite, caplog: pytest.LogCaptureFixture
) -> None:
    [program] = [block for block in find_code_blocks("extending") if "group_calls" in block]
    sign_form = execute_programs(program)["sign_form"]
    assert await sign_form(suite, make_consent_form()) is not None
    caplog.set_level(logging.INFO, "directsuite.calls")
    sandbox.inject_fault("Flatten", "status", status=400)
    assert await sign_form(suite, make_consent_form()) is None
    save, flatten, error = [vars(each)["directsuite"] for each in caplog.records if each.levelno != logging.WARNING]
    assert (save["operation"], flatten["operation"]) == ("Save", "Flatten")
    assert error == {"group": save["group"]} == {"group": flatten["group"]}


async def test_sandbox_shows_what_really_happened() -> None:
    programs = execute_programs(*find_code_blocks("sandbox"))
    assert await programs["rehearse"]() == "sent 1 time"
    assert await programs["count_renewals"]() == 2


async def test_any_client_can_send_to_the_sandbox(sandbox: Sandbox) -> None:
    [command] = [block for block in find_code_blocks("sandbox", "sh") if "curl" in block]
    body = command.partition("-d '")[2].partition("'")[0].replace("bob@", "alice@")
    async with aiohttp.ClientSession(headers={"Content-Type": "application/json"}) as http:
        for password, success in (("sandbox", False), (PASSWORD, True)):
            content = body.replace('"sandbox"', f'"{password}"')
            async with http.put(f"{sandbox.message_url}/Send", data=content) as response:
                assert (response.status, (await response.json())["success"]) == (200, success)
    assert [(call.operation, call.is_rejected) for call in sandbox.calls.records] == [("Send", True), ("Send", False)]


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        ([], contextlib.nullcontext()),
        ([503], contextlib.nullcontext()),
        ([403], pytest.raises(ds.ConfigurationError, match=r"the vault rejected VAULT_TOKEN \(HTTP 403\): renew it")),
    ],
)
async def test_token_of_the_guide_settings_is_read_from_a_vault(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, statuses: list[int], expected: Any
) -> None:
    failures = iter(statuses)

    async def show_secret(request: web.Request) -> web.Response:
        assert request.headers["X-Vault-Token"] == "of the vault"
        if (status := next(failures, None)) is not None:
            return web.Response(status=status)
        return web.json_response({"data": {"token": await sandbox.issue_token()}, "lease_duration": 600})

    monkeypatch.setattr("directsuite.suite.SystemClock", lambda: LeapingClock(sandbox.clock))
    monkeypatch.setenv("VAULT_TOKEN", "of the vault")
    monkeypatch.setenv("DIRECTSUITE_FAX_URL", sandbox.fax_url)
    app = web.Application()
    app.router.add_get("/v1/directsuite/token", show_secret)
    async with TestServer(app) as vault:
        block = next(each for each in find_code_blocks("settings") if "VAULT_URL" in each)
        program = block.replace("https://vault.example.org", str(vault.make_url("")).rstrip("/"))
        async with execute_programs(program)["suite"] as suite:
            with expected:
                await suite.fax.get_multiple_message_info(FAX_NUMBER)


async def test_grants_of_the_guide_settings_get_tokens(sandbox: Sandbox) -> None:
    await sandbox.add_client(*DEMO_CLIENT)
    programs = execute_programs(
        *(block.replace(LOGIN_URL, sandbox.token_url.removesuffix("/token")) for block in find_code_blocks("settings"))
    )

    async def use(token: Any) -> None:
        async with ds.DirectSuite(ds.Settings(fax_url=sandbox.fax_url), token=token) as suite:
            await suite.fax.get_multiple_message_info(FAX_NUMBER)

    await use(programs["make_grant"](*DEMO_CLIENT))
    request = programs["request_consent"](DEMO_CLIENT[0], "https://app.example.test/back")
    async with aiohttp.ClientSession() as http, http.get(request.url, allow_redirects=False) as response:
        redirected_url = response.headers["Location"]
    await use(programs["redeem_consent"](request, redirected_url, DEMO_CLIENT[1]))
