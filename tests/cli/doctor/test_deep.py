"""`directsuite doctor --deep`: it reports additions to the specification, without their values."""

from __future__ import annotations

import functools
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeGuard

import aiohttp
import attrs
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

import directsuite as ds
from directsuite.cli.deep import Specification
from directsuite.core.operation import Operation, Semantics
from directsuite.core.session import BufferedResponse as Response
from directsuite.fax import operations as fax
from directsuite.messaging import operations as messaging
from directsuite.messaging.operations import GET_MESSAGE_COUNT
from directsuite.registration import operations as registration
from directsuite.sandbox.quirks import Difference
from directsuite.sandbox.server import Sandbox, load_openapi_document
from directsuite.signing import operations as signing
from directsuite.wire.codec import Codec
from tests.cli.conftest import serve
from tests.cli.doctor.conftest import DoctorReport, DoctorRunner
from tests.integration.scenario import ALICE, PASSWORD, open_populated_sandbox
from tests.sandbox.signing.documents import make_plain_pages

pytestmark = pytest.mark.wide

NUMBER = "15550100100"
SECRET = "JaneDoe1980"
"""A secret that looks like the name of a member."""


@attrs.define
class ServerResponse:
    """A response that a test changes."""

    operation: str
    status: int
    headers: dict[str, str]
    body: Any
    """A JSON value, or text."""


def is_array(value: object) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def is_object(value: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


ResponseChange = Callable[[ServerResponse], object]


@functools.cache
def make_specification() -> Specification:
    return Specification(load_openapi_document(), Codec())


@asynccontextmanager
async def serve_changed(sandbox: Sandbox, change: ResponseChange) -> AsyncGenerator[str]:
    """Serve the sandbox's responses, changed. Yield the root URL."""

    async def forward(request: web.Request) -> web.Response:
        url, headers = f"{sandbox.root_url}{request.raw_path}", dict(request.headers)
        headers.pop("Host")
        async with http.request(request.method, url, data=await request.read(), headers=headers) as got:
            text = await got.text()
            kept = {name: got.headers[name] for name in ("Content-Type",) if name in got.headers}
            is_json = bool(text) and "json" in kept.get("Content-Type", "")
            answer = ServerResponse(
                _find_operation(request.path), got.status, kept, json.loads(text) if is_json else text
            )
        change(answer)
        body = json.dumps(answer.body) if is_json and not isinstance(answer.body, str) else answer.body
        return web.Response(status=answer.status, body=body.encode(), headers=answer.headers)

    async with aiohttp.ClientSession() as http, serve(forward) as root:
        yield root


def _find_operation(path: str) -> str:
    """Return the name of the operation with this path, if a test needs it."""
    _, _, below = path.partition("/api/message/")
    if below:
        return "GetMessageStatusMany" if below == "GetMessageStatus/" else below.partition("/")[0]
    return {"info": "GetDocInfo"}.get(path.rpartition("/")[2], "getMultipleMessageInfo" if "List" in path else path)


@pytest.fixture
async def deep(cli: DoctorRunner, sandbox: Sandbox) -> DeepRunner:
    runner = DeepRunner(**attrs.asdict(cli, recurse=False), sandbox=sandbox, options=[])
    runner.options.extend(await populate(runner, sandbox))
    return runner


async def populate(machine: DoctorRunner, sandbox: Sandbox) -> list[str]:
    """Return the options that request everything, and add content to the services."""
    await sandbox.add_fax(NUMBER)
    await sandbox.deliver(ALICE, b"From: dr@elsewhere.test\r\nSubject: Lab\r\nMessage-ID: <a@b>\r\n\r\nfine\r\n")
    async with ds.DirectSuite.from_env(sandbox.environment) as suite:
        await suite.mailbox(ALICE, PASSWORD).send(ds.Message(subject="x", recipients=[ds.Recipient(ALICE)]))
        stored = await suite.signing.save(make_plain_pages())
        person = ds.IDProofedIndividualRESTful(id=7, direct_username="ada", direct_password="a long password")
        await suite.registration.provision_id_proofed_patient("direct.example.test", person)
    options = ["--deep", "--mailbox", ALICE, "--fax-number", NUMBER, "--document", stored.identifier]
    options += ["--patient", "ada@direct.example.test", "--proofing-id", "7"]
    (machine.folder / "tuser").write_text(PASSWORD)
    (machine.folder / "tuser").chmod(0o600)
    options += ["--tuser", "front-desk", "--tuser-password-file", "tuser"]
    machine.set_env("DIRECTSUITE_MAILBOX_PASSWORD", PASSWORD)
    return options


def set_service_urls(machine: DoctorRunner, sandbox: Sandbox, root: str | None = None) -> None:
    for name, value in sandbox.environment.items():
        machine.set_env(name, value if root is None else value.replace(sandbox.root_url, root))


@attrs.frozen(kw_only=True)
class DeepRunner(DoctorRunner):
    """options: those that request everything."""

    sandbox: Sandbox
    options: list[str]

    async def examine(self, change: ResponseChange = lambda _: None) -> DoctorReport:
        """Run the command with the sandbox's responses, changed. Write the report into report.json."""
        (self.folder / "report.json").unlink(missing_ok=True)
        async with serve_changed(self.sandbox, change) as root:
            set_service_urls(self, self.sandbox, root)
            return await self.run_json(*self.options, "--report", "report.json")

    async def examine_imitation(self) -> DoctorReport:
        """Run the command with a sandbox that imitates the server of the report."""
        async with open_populated_sandbox(imitate=self.folder / "report.json") as imitation:
            options = await populate(self, imitation)
            set_service_urls(self, imitation)
            return await self.run_json(*options)


def list_differences(document: Mapping[str, Any]) -> set[tuple[str, str, str]]:
    return {
        (each["operation"], one["path"], one["what"]) for each in document["operations"] for one in each["differences"]
    }


async def test_sandbox_has_no_difference(deep: DeepRunner) -> None:
    told = await deep.examine()
    assert list_differences(told.document) == set()
    assert told.status == 0
    reports = told.document["operations"]
    values = [value for table in (signing, fax, messaging, registration) for value in vars(table).values()]
    operations: list[Operation[Any]] = [value for value in values if isinstance(value, Operation)]
    reading = {each.name for each in operations if each.semantics is Semantics.SAFE}
    assert {each["operation"] for each in reports} == reading
    assert {(each["skipped"], each["status"]) for each in reports} == {(None, 200)}


def put(**members: object) -> ResponseChange:
    return lambda answer: answer.body.update(members)


def put_into(name: str, **members: object) -> ResponseChange:
    """Change the first element of an array."""
    return lambda answer: answer.body[name][0].update(members)


def put_header(name: str, value: str) -> ResponseChange:
    return lambda answer: answer.headers.update({name: value})


NOT_LISTED, SECRET_NAME = "has a value that is not listed", f"<a name of {len(SECRET)} characters>"
MESSAGES, LOGS = "$.messages[]", "$.messageLogs[]"
QUIRKS: list[tuple[str, str, str, ResponseChange]] = [
    ("GetMessageCount", "$.<a name of 5 characters>", "is not described: string", put(total=SECRET)),
    ("GetUnreadMessageCount", "$.code", "is missing", lambda a: a.body.pop("code")),
    ("GetDeletedMessageCount", "$.count", "is string, not integer or null", put(count="1")),
    ("GetUIDs", "$.code", NOT_LISTED, put(code=77)),
    ("GetFolders", "$.folders[]", "is integer, not string", lambda a: a.body["folders"].append(5)),
    (
        "GetMessageMetaData",
        f"{MESSAGES}.receivedDate",
        "has another form: 9999-99-99 99:99:99",
        put_into("messages", receivedDate="2026-05-01 12:00:00"),
    ),
    ("GetMessages", f"{MESSAGES}.{SECRET_NAME}", "is not described: integer", put_into("messages", **{SECRET: 1})),
    ("GetUnreadMessages", f"{MESSAGES}.size", "is beyond int32", put_into("messages", size=2**40)),
    ("GetMessagesByUIDs", f"{MESSAGES}.recipients", "is missing", lambda a: a.body["messages"][0].pop("recipients")),
    ("GetRawMessagesByUIDs", f"{MESSAGES}.data", "is no base64 text", put_into("messages", data="***")),
    ("GetMessagesBySender", f"{MESSAGES}.htmlBody", "is string, not boolean", put_into("messages", htmlBody="no")),
    ("GetMessagesBySubject", f"{MESSAGES}.folder", "is integer, not string or null", put_into("messages", folder=5)),
    (
        "GetMessagesByReceivedDate",
        "header Content-Type",
        "is another media type",
        put_header("Content-Type", "text/json"),
    ),
    ("GetMessagesByReceivedDateUTC", "header Set-Cookie", "is not described", put_header("Set-Cookie", SECRET)),
    ("SearchMessagesMetadataByReceivedDate", "status", "is 206", lambda a: setattr(a, "status", 206)),
    (
        "SearchMessagesMetadataByReceivedDateUTC",
        "header Content-Type",
        "has another charset than UTF-8",
        put_header("Content-Type", "application/json; charset=iso-8859-1"),
    ),
    ("GetMessageStatus", f"{LOGS}.status", NOT_LISTED, put_into("messageLogs", status=SECRET)),
    ("GetMessageStatusMany", f"{LOGS}.ts", "has another form: 99.99.9999", put_into("messageLogs", ts="01.05.2026")),
    ("GetDocInfo", "$.<a name of 5 characters>", "is not described: object", put(about={"a": SECRET})),
    ("getMultipleMessageInfo", "$.<a name of 5 characters>", "is not described: array", put(Extra=[SECRET])),
]


async def test_each_of_twenty_quirks_is_found_and_imitated(deep: DeepRunner) -> None:
    def apply_quirks(answer: ServerResponse) -> None:
        for operation, _, _, quirk in QUIRKS:
            if operation == answer.operation:
                quirk(answer)

    told = await deep.examine(apply_quirks)
    differences = list_differences(told.document)
    for operation, path, what, _ in QUIRKS:
        assert [each for each in differences if each[:2] == (operation, path) and each[2].startswith(what)], path
    assert (told.status, len(QUIRKS)) == (1, 20)
    assert json.loads((deep.folder / "report.json").read_text())["operations"] == told.document["operations"]
    again = await deep.examine_imitation()
    assert {each for each in list_differences(again.document) if "SDK" not in each[2]} == {
        each for each in differences if "SDK" not in each[2]
    }


async def test_no_report_shows_what_a_server_says(deep: DeepRunner) -> None:
    def plant(value: Any, depth: int = 0) -> Any:
        """Replace every text and number by a secret, except those that a client must understand."""
        if is_object(value):
            kept = {"success", "code", "uids", "uid", "folders", "msgID", "receivedDate", "MessageHandle"}
            return {name: each if name in kept else plant(each, depth + 1) for name, each in value.items()} | {
                f"{SECRET}{depth}": SECRET
            }
        if is_array(value):
            return [plant(each, depth) for each in value]
        return 918273645 if isinstance(value, int) and not isinstance(value, bool) else SECRET

    def change(answer: ServerResponse) -> None:
        answer.body = plant(answer.body) if not isinstance(answer.body, str) else SECRET
        answer.headers["X-Patient"] = SECRET

    told = await deep.examine(change)
    async with serve_changed(deep.sandbox, change) as root:
        set_service_urls(deep, deep.sandbox, root)
        table = await deep.run(*deep.options)
    assert len(list_differences(told.document)) > 20
    for text in (told.out, told.err, table.out, table.err, (deep.folder / "report.json").read_text()):
        assert SECRET not in text
        assert "918273645" not in text


async def test_headers_that_are_not_described_are_named(deep: DeepRunner) -> None:
    def change(answer: ServerResponse) -> None:
        answer.headers |= {"X-Lab-Site": SECRET, "Deprecation": SECRET, SECRET: SECRET, "Cache-Control": SECRET}

    told = await deep.examine(change)
    headers = {f"header {name}" for name in ("X-Lab-Site", "Deprecation", f"<a name of {len(SECRET)} characters>")}
    assert {each[1:] for each in list_differences(told.document)} == {
        (header, "is not described") for header in headers
    }
    assert SECRET not in told.out + told.err


@pytest.mark.parametrize("date", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999Z"])
async def test_first_and_last_date_are_not_searched_for(date: str, deep: DeepRunner) -> None:
    def change(answer: ServerResponse) -> None:
        if answer.operation == "GetMessageMetaData":
            for message in answer.body["messages"]:
                message.update(receivedDate=date)

    told = await deep.examine(change)
    assert told.status == 0
    skipped = {each["operation"]: each["skipped"] for each in told.document["operations"] if each["skipped"]}
    assert skipped["GetMessagesByReceivedDate"] == "It needs a message with a date in INBOX."
    assert len(skipped) == 4


async def test_operation_without_a_complete_response_is_a_difference(deep: DeepRunner) -> None:
    deep.sandbox.inject_fault("GetFolders", "truncate")
    deep.sandbox.inject_fault("GetUIDs", "reset_before")
    set_service_urls(deep, deep.sandbox)
    told = await deep.run_json(*deep.options)
    assert list_differences(told.document) == {
        (operation, "response", "is missing or incomplete") for operation in ("GetFolders", "GetUIDs")
    }
    assert told.status == 1


async def test_rejected_operation_has_no_result(deep: DeepRunner) -> None:
    deep.options[deep.options.index("--document") + 1] = "nowhere"
    told = await deep.examine()
    skipped = {each["operation"]: each["skipped"] for each in told.document["operations"] if each["skipped"]}
    assert skipped == dict.fromkeys(("GetDocInfo", "GetDoc"), "The service rejected the request.")
    assert told.status == 0


async def test_wrong_password_is_sent_three_times_at_most(deep: DeepRunner) -> None:
    requests = list[str]()
    async with serve_changed(deep.sandbox, lambda answer: requests.append(answer.operation)) as root:
        set_service_urls(deep, deep.sandbox, root)
        deep.set_env("DIRECTSUITE_MAILBOX_PASSWORD", "wrong")
        await deep.run_json(*deep.options)
    assert [each for each in requests if each.startswith("Get") and each != "GetDocInfo"] == [
        "GetMessageCount",  # the check of the mailbox
        "GetMessageCount",  # of sent messages
        "GetFolders",
    ]


def test_all_responses_of_a_call_are_compared() -> None:
    specification, headers = make_specification(), {"Date": "x", "Content-Type": "application/json"}
    bodies = [b'{"success": true, "count": 1}', b'{"success": true, "code": 0, "count": 1}']
    responses = [Response(200, headers, body) for body in bodies]
    report = specification.report(GET_MESSAGE_COUNT, responses)
    assert report.differences == [Difference("$.code", "is missing")]


def test_too_large_response_is_not_compared() -> None:
    specification, response = make_specification(), Response(200, {}, b'{"success": tr', True)
    report = specification.report(GET_MESSAGE_COUNT, [response])
    found = {each.what for each in report.differences}
    assert found == {"is larger than max_response_bytes", "cannot be read by the SDK"}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--report", "report.json"], "need --deep"),
        (["--proofing-id", "0"], "need --deep"),
        (["--deep", "--tuser", "front-desk"], "given together"),
    ],
)
async def test_dependent_options_are_rejected_alone(options: list[str], text: str, cli: DoctorRunner) -> None:
    await cli.fail(2, text, *options)


async def test_report_replaces_no_file(deep: DeepRunner) -> None:
    set_service_urls(deep, deep.sandbox)
    calls = deep.sandbox.calls.count
    (deep.folder / "report.json").write_text("kept")
    await deep.fail(2, "--report exists already. Name a new file.", *deep.options, "--report", "report.json")
    assert deep.sandbox.calls.count == calls
    assert (deep.folder / "report.json").read_text() == "kept"


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(SECRET),
    lambda each: (
        st.lists(each, max_size=3)
        | st.dictionaries(st.sampled_from(["success", "messages", "uid", "receivedDate", SECRET]), each, max_size=4)
    ),
)


@given(value=_JSON, operation=st.sampled_from(["GetMessages", "GetDocInfo", "getMultipleMessageInfo", "GetFolders"]))
def test_any_response_is_described_without_values(value: Any, operation: str) -> None:
    specification = make_specification()
    body = json.dumps(value).encode()
    differences = specification.compare(operation, 200, {"Content-Type": "application/json"}, body)
    assert ("header Date", "is missing") in [(each.path, each.what) for each in differences]
    assert SECRET not in str(differences)


@pytest.mark.parametrize("body", [b"<html>", b"", b"[]", b"null", b"\xff", b"[" * 200_000, b"[" * 900 + b"]" * 900])
def test_members_of_undecodable_response_are_not_compared(body: bytes) -> None:
    specification, headers = make_specification(), {"Date": "x", "Content-Type": "application/json"}
    differences = specification.compare("GetMessageCount", 200, headers, body)
    assert {each.path for each in differences} == {"$"}


def test_text_in_another_encoding_is_compared() -> None:
    body = '{"success": true, "code": "0", "message": "José"}'.encode("latin-1")
    headers = {"Date": "x", "Content-Type": "application/json"}
    assert make_specification().compare("GetMessageCount", 200, headers, body) == {
        Difference("$", "is no UTF-8 text"),
        Difference("$.code", "is string, not integer"),
    }
