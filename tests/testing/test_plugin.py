"""The pytest plugin in users' tests: in separate processes, each with only the plugins that a case names."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import attrs
import pytest

from directsuite.testing.loop_thread import LoopThread

from .project import Project

THREE_LINES = """
async def test_mine(directsuite_suite, directsuite_pdf):
    stored = await directsuite_suite.signing.save(directsuite_pdf)
    assert await directsuite_suite.signing.get_doc(stored) == directsuite_pdf
"""

IN_THE_LOOP = """
import asyncio, pytest

@pytest.fixture(params=[1, 2])
async def loop(request, directsuite_suite):
    await directsuite_suite.fax.get_multiple_message_info("15550100100")
    yield asyncio.get_running_loop()

async def test_mine(directsuite_suite, directsuite_sandbox, loop):
    assert asyncio.get_running_loop() is loop
    await directsuite_suite.fax.get_multiple_message_info("15550100100")
    await directsuite_sandbox.add_fax("15550100100")
"""

ISOLATED = """
from datetime import UTC, datetime, timedelta
import directsuite as ds, pytest

@pytest.mark.parametrize("turn", [1, 2])
async def test_mine(directsuite_suite, directsuite_sandbox, directsuite_clock, directsuite_pdf, turn):
    assert await directsuite_sandbox.ledger() == []
    assert directsuite_sandbox.faults() == []
    assert directsuite_sandbox.clock.now() - datetime.now(UTC) < timedelta(minutes=1)
    assert directsuite_sandbox.profile == "strict"
    stored = await directsuite_suite.signing.save(directsuite_pdf)
    directsuite_sandbox.inject_fault("Save", "status", status=500)
    directsuite_clock.advance(timedelta(hours=4))
    directsuite_sandbox.profile = "java"
    with pytest.raises(ds.BadRequestError):
        await directsuite_suite.signing.get_doc(stored)
"""

NOTHING_WAITS = """
import time
import directsuite as ds, pytest

async def test_faults(directsuite_suite, directsuite_sandbox, directsuite_pdf):
    began = time.monotonic()
    directsuite_sandbox.inject_fault("GetDoc", "status", status=503, retry_after=40)
    directsuite_sandbox.inject_fault("Sign", "reset_before")
    stored = await directsuite_suite.signing.save(directsuite_pdf)
    raw = await directsuite_suite.signing.with_raw_response.get_doc(stored)
    assert (raw.attempts, raw.elapsed > 30) == (2, True)
    with pytest.raises(ds.OutcomeUnknownError) as caught:
        await directsuite_suite.signing.sign(stored, ds.Signature(name="approval"))
    assert caught.value.looked
    assert time.monotonic() - began < 30

async def test_outage_longer_than_the_timeout(directsuite_suite, directsuite_sandbox):
    began = time.monotonic()
    directsuite_sandbox.inject_fault("GetDoc", "status", status=503, times=9)
    with pytest.raises(ds.ServerError) as caught:
        await directsuite_suite.signing.get_doc("none")
    assert caught.value.attempts >= 3
    assert 30 < caught.value.elapsed < 60
    assert time.monotonic() - began < 30
"""


SYNC = """
import asyncio
import directsuite as ds

def test_sandbox(directsuite_sandbox):
    asyncio.run(directsuite_sandbox.add_fax("15550100100"))

    async def program():
        async with ds.DirectSuite.from_env(directsuite_sandbox.environment) as suite:
            return await suite.fax.get_multiple_message_info("15550100100")

    assert len(asyncio.run(program()).message_detail) == 1

def test_suite(directsuite_suite):
    raise RuntimeError
"""

OWN_SETTINGS = """
import attrs, directsuite as ds, pytest

@pytest.fixture
def directsuite_settings(directsuite_settings):
    return attrs.evolve(directsuite_settings, retry=ds.RetryPolicy.none())

async def test_mine(directsuite_suite, directsuite_sandbox):
    directsuite_sandbox.inject_fault("GetDocInfo", "status", status=500)
    with pytest.raises(ds.ServerError) as caught:
        await directsuite_suite.signing.get_doc_info("none")
    assert caught.value.attempts == 1
"""

UNUSED = """
import sys

def test_mine():
    heavy = {"aiohttp", "attrs", "pikepdf", "directsuite.sandbox", "directsuite.suite", "directsuite.errors"}
    assert heavy & set(sys.modules) == set()
    assert "directsuite.testing.plugin" in sys.modules
"""

WITHOUT_PDF_LIBRARIES = """
import sys
sys.modules["pikepdf"] = None

async def test_mail(directsuite_suite, directsuite_sandbox):
    await directsuite_sandbox.add_account("alice@direct.example.test", "secret")
    assert await directsuite_suite.mailbox("alice@direct.example.test", "secret").get_message_count() == 0

async def test_signing(directsuite_suite):
    await directsuite_suite.signing.save(b"%PDF-1.7")

async def test_pdf(directsuite_pdf, directsuite_suite):
    raise RuntimeError
"""

MOCKED = """
import time
import attrs, directsuite as ds, pytest

@pytest.fixture
def directsuite_settings(directsuite_settings):
    return attrs.evolve(directsuite_settings, max_connections=2)

async def test_suite(directsuite_mocked, directsuite_suite, directsuite_clock):
    began, at = time.monotonic(), directsuite_clock.monotonic()
    directsuite_mocked.respond("GetDoc", identifier="d", status=503, headers={"Retry-After": "40"})
    directsuite_mocked.respond("GetDoc", identifier="d", pdf=b"%PDF-1.7")
    directsuite_mocked.respond("GetUIDs", folder="INBOX", uids=[1], repeat=True)
    assert await directsuite_suite.signing.get_doc("d") == b"%PDF-1.7"
    assert directsuite_clock.monotonic() - at > 30 > time.monotonic() - began

async def test_login(directsuite_mocked, directsuite_suite):
    directsuite_mocked.respond("login", session_id="s")
    await directsuite_suite.registration.login()
"""

MOCKED_SYNC = """
import asyncio, sys
import directsuite as ds, pytest

async def program():
    async with ds.DirectSuite.from_env() as suite:
        await suite.fax.get_multiple_message_info("15550100100")

def test_program(directsuite_mocked, monkeypatch):
    for variable in directsuite_mocked.environment.items():
        monkeypatch.setenv(*variable)
    directsuite_mocked.respond("getMultipleMessageInfo", fax_number="15550100100", offset=0, message_detail=[])
    asyncio.run(program())
    assert "directsuite.sandbox" not in sys.modules

def test_unused(directsuite_mocked):
    for _ in range(2):
        directsuite_mocked.respond("Send", smtp_id="<1>")

async def test_ignored_error(directsuite_mocked, directsuite_suite):
    directsuite_mocked.respond("GetDoc", identifier="d", pdf=b"%PDF-1.7")
    await asyncio.gather(directsuite_suite.signing.get_doc("e"), return_exceptions=True)

async def test_ignored_error_and_a_wrong_result(directsuite_mocked, directsuite_suite):
    [result] = await asyncio.gather(directsuite_suite.signing.get_doc("f"), return_exceptions=True)
    assert result == b"%PDF"

def test_that_fails(directsuite_mocked):
    directsuite_mocked.respond("Forward", folder="INBOX", smtp_id="<1>")
    pytest.fail("the cause")

def test_incomplete_responses(directsuite_mocked):
    with pytest.raises(TypeError, match="has no field uid"):
        directsuite_mocked.respond("GetUIDs", folder="INBOX", uid=1)
    directsuite_mocked.respond("SignAndPull", identifier="d")
"""

ANYIO = """
import pytest
pytestmark = pytest.mark.anyio

@pytest.fixture
def anyio_backend():
    return "{backend}"
"""


def mark_loop_scope(scope: str) -> str:
    """Return IN_THE_LOOP for pytest-asyncio's loop of this scope."""
    fixture = f'import pytest_asyncio\n@pytest_asyncio.fixture(loop_scope="{scope}", params'
    return IN_THE_LOOP.replace("@pytest.fixture(params", fixture) + (
        f'pytestmark = pytest.mark.asyncio(loop_scope="{scope}")\n'
    )


@attrs.frozen
class Case:
    """Tests, the plugins and options of their run, the number of tests by outcome, and texts in the output."""

    programs: list[str]
    counts: dict[str, int]
    plugins: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    missing_texts: tuple[str, ...] = ()


FUNCTION = "asyncio_default_fixture_loop_scope=function"
SESSION = ("asyncio_default_fixture_loop_scope=session", "asyncio_default_test_loop_scope=session")
SCOPES = ("function", "class", "module", "package", "session")
ALONE = 'async def test_sandbox(directsuite_sandbox):\n    await directsuite_sandbox.add_fax("15550100100")\n'
PASSED, TWO_PASSED = {"passed": 1}, {"passed": 2}
ON_ASYNCIO, ON_TRIO = ANYIO.format(backend="asyncio"), ANYIO.format(backend="trio") + THREE_LINES

CASES = {
    "no plugin for async tests": Case([THREE_LINES + ALONE], {"passed": 2}),
    "pytest-asyncio in auto mode": Case([THREE_LINES], PASSED, ("asyncio",), (FUNCTION, "asyncio_mode=auto")),
    "pytest-asyncio in strict mode": Case([THREE_LINES], PASSED, ("asyncio",), (FUNCTION, "asyncio_mode=strict")),
    "each loop of pytest-asyncio": Case(
        [mark_loop_scope(scope) for scope in SCOPES], {"passed": 2 * len(SCOPES)}, ("asyncio",), (FUNCTION,)
    ),
    "a default loop of pytest-asyncio": Case([IN_THE_LOOP], TWO_PASSED, ("asyncio",), ("asyncio_mode=auto", *SESSION)),
    "anyio": Case([IN_THE_LOOP + ON_ASYNCIO], TWO_PASSED, ("anyio",)),
    "anyio beside pytest-asyncio": Case([IN_THE_LOOP + ON_ASYNCIO], TWO_PASSED, ("asyncio", "anyio"), (FUNCTION,)),
    "another backend of anyio": Case(
        [ON_TRIO], {"error": 1}, ("anyio",), texts=("Define a fixture anyio_backend that returns 'asyncio'",)
    ),
    "sync tests": Case(
        [SYNC],
        {"passed": 1, "error": 1},
        texts=("The fixture directsuite_suite is for async tests. Use directsuite_sandbox or directsuite_mocked",),
    ),
    "each test begins again": Case([ISOLATED], {"passed": 2}),
    "nothing waits": Case([NOTHING_WAITS], {"passed": 2}),
    "own settings": Case([OWN_SETTINGS], PASSED),
    "mocked responses": Case([MOCKED], {"passed": 2}),
    "mocked responses with pytest-asyncio": Case([MOCKED], TWO_PASSED, ("asyncio",), (FUNCTION, "asyncio_mode=auto")),
    "mocked responses with anyio": Case([MOCKED + ON_ASYNCIO], TWO_PASSED, ("anyio",)),
    "mocked responses in sync tests": Case(
        [MOCKED_SYNC],
        {"passed": 1, "failed": 5},
        texts=(
            "These requests had no mocked response: GetDoc (identifier='f').",
            "These mocked responses were not requested: Send, Send. If a response need not",
            "These requests had no mocked response: GetDoc (identifier='e'). "
            "These mocked responses were not requested: GetDoc (identifier='d').\n",
            "Failed: the cause",
            "- Captured mocked responses call -",
            "These mocked responses were not requested: Forward (folder='INBOX').\n",
            '>       directsuite_mocked.respond("SignAndPull", identifier="d")\n',
        ),
        missing_texts=("responses.py:", "mocked.py:"),
    ),
    "a failing test": Case(
        ["async def test_mine(directsuite_suite):\n    assert directsuite_suite is None\n"], {"failed": 1}
    ),
    "nothing is imported before its use": Case([UNUSED], PASSED),
    "no PDF libraries": Case(
        [WITHOUT_PDF_LIBRARIES],
        {"passed": 1, "failed": 1, "error": 1},
        texts=(
            "The sandbox cannot sign without its PDF libraries. In a copy of the repository, run: pip install",
            "The fixture directsuite_pdf needs pikepdf. In a copy of the repository, run: pip install '.[sandbox]'",
        ),
    ),
}


@pytest.mark.process
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_users_tests_end_as_expected(case: Case, tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.write("__init__.py", "")
    for number, program in enumerate(case.programs):
        project.write(f"test_{number}.py", program)
    counts, written = project.run(*case.plugins, options=[part for option in case.options for part in ("-o", option)])
    assert counts == case.counts, written
    for text in case.texts:
        assert text in written
    for text in case.missing_texts:
        assert text not in written


def test_loop_that_cannot_be_made_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> asyncio.AbstractEventLoop:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(asyncio, "new_event_loop", refuse)
    monkeypatch.setattr(asyncio.events, "new_event_loop", refuse)
    with pytest.raises(OSError, match="Too many"), LoopThread():
        pass


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_loop_that_has_ended_rejects_what_comes_and_is_left() -> None:
    async def end() -> None:
        raise SystemExit(3)

    coroutine = asyncio.sleep(0)
    with LoopThread() as thread:
        with pytest.raises(SystemExit):
            thread.call(end())
        thread._thread.join(20)
        with pytest.raises(RuntimeError, match="closed"):
            thread.call(coroutine)
    coroutine.close()
