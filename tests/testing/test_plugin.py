"""The pytest plugin in users' tests: in separate processes, each with only the plugins that it names."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from directsuite.testing.loop_thread import LoopThread

from .project import Project

ASYNCIO = ("-o", "asyncio_default_fixture_loop_scope=function")

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

async def test_mine(directsuite_suite, directsuite_sandbox, directsuite_pdf):
    began = time.monotonic()
    directsuite_sandbox.inject_fault("GetDoc", "status", status=503)
    directsuite_sandbox.inject_fault("Sign", "reset_before")
    stored = await directsuite_suite.signing.save(directsuite_pdf)
    raw = await directsuite_suite.signing.with_raw_response.get_doc(stored)
    assert (raw.attempts, raw.elapsed > 30) == (2, True)
    with pytest.raises(ds.OutcomeUnknownError) as caught:
        await directsuite_suite.signing.sign(stored, ds.Signature(name="approval"))
    assert caught.value.looked
    assert time.monotonic() - began < 30
"""

LONG_OUTAGE = """
import time
import directsuite as ds, pytest

async def test_mine(directsuite_suite, directsuite_sandbox):
    began = time.monotonic()
    directsuite_sandbox.inject_fault("GetDoc", "status", status=503, times=3)  # 30 to 60 s until each next attempt
    with pytest.raises(ds.ServerError) as caught:
        await directsuite_suite.signing.get_doc("none")
    assert caught.value.attempts == 2
    assert 30 < caught.value.elapsed < 60
    assert time.monotonic() - began < 30
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@pytest.mark.process
def test_three_lines_do_without_any_plugin_for_async_tests(project: Project) -> None:
    alone = 'async def test_sandbox(directsuite_sandbox):\n    await directsuite_sandbox.add_fax("15550100100")\n'
    project.write("test_mine.py", THREE_LINES + alone)
    counts, written = project.run()
    assert counts == {"passed": 2}, written


@pytest.mark.process
@pytest.mark.parametrize("mode", ["auto", "strict"])
def test_three_lines_do_with_pytest_asyncio(project: Project, mode: str) -> None:
    project.write("test_mine.py", THREE_LINES)
    counts, written = project.run("asyncio", options=[*ASYNCIO, "-o", f"asyncio_mode={mode}"])
    assert counts == {"passed": 1}, written


@pytest.mark.process
def test_suite_opens_in_each_loop_of_pytest_asyncio(project: Project) -> None:
    project.write("__init__.py", "")
    for scope in ("function", "class", "module", "package", "session"):
        marked = f'pytestmark = pytest.mark.asyncio(loop_scope="{scope}")\n'
        fixture = IN_THE_LOOP.replace(
            "@pytest.fixture(params", f'import pytest_asyncio\n@pytest_asyncio.fixture(loop_scope="{scope}", params'
        )
        project.write(f"test_{scope}.py", fixture + marked)
    counts, written = project.run("asyncio", options=ASYNCIO)
    assert counts == {"passed": 10}, written


@pytest.mark.process
def test_suite_opens_in_the_loop_that_auto_mode_makes_the_default(project: Project) -> None:
    project.write("test_mine.py", IN_THE_LOOP)
    scopes = [f"asyncio_default_{kind}_loop_scope=session" for kind in ("fixture", "test")]
    counts, written = project.run("asyncio", options=["-o", "asyncio_mode=auto", "-o", scopes[0], "-o", scopes[1]])
    assert counts == {"passed": 2}, written


@pytest.mark.process
@pytest.mark.parametrize("also", [[], ["asyncio"]], ids=["alone", "beside pytest-asyncio"])
def test_suite_opens_in_the_loop_of_anyio(project: Project, also: list[str]) -> None:
    project.write("conftest.py", 'import pytest\n@pytest.fixture\ndef anyio_backend():\n    return "asyncio"\n')
    project.write("test_mine.py", IN_THE_LOOP + "pytestmark = pytest.mark.anyio\n")
    counts, written = project.run(*also, "anyio", options=ASYNCIO if also else [])
    assert counts == {"passed": 2}, written


@pytest.mark.process
def test_other_backends_of_anyio_are_rejected(project: Project) -> None:
    project.write("conftest.py", 'import pytest\n@pytest.fixture\ndef anyio_backend():\n    return "trio"\n')
    project.write("test_mine.py", "import pytest\npytestmark = pytest.mark.anyio\n" + THREE_LINES)
    counts, written = project.run("anyio")
    assert counts == {"error": 1}
    assert "Define a fixture anyio_backend that returns 'asyncio'" in written


@pytest.mark.process
def test_sync_test_has_the_sandbox_and_is_reported_that_it_has_no_suite(project: Project) -> None:
    project.write(
        "test_mine.py",
        """
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
""",
    )
    counts, written = project.run()
    assert counts == {"passed": 1, "error": 1}
    assert "The fixture directsuite_suite is for async tests. Use directsuite_sandbox in a sync test." in written


@pytest.mark.process
def test_each_test_begins_again(project: Project) -> None:
    project.write("test_mine.py", ISOLATED)
    counts, written = project.run()
    assert counts == {"passed": 2}, written


@pytest.mark.process
def test_nothing_waits(project: Project) -> None:
    project.write("test_mine.py", NOTHING_WAITS)
    counts, written = project.run()
    assert counts == {"passed": 1}, written


@pytest.mark.process
def test_outage_longer_than_timeout_fails_as_in_production(project: Project) -> None:
    project.write("test_mine.py", LONG_OUTAGE)
    counts, written = project.run()
    assert counts == {"passed": 1}, written


@pytest.mark.process
def test_settings_are_those_of_the_user(project: Project) -> None:
    project.write(
        "test_mine.py",
        """
import attrs, directsuite as ds, pytest

@pytest.fixture
def directsuite_settings(directsuite_settings):
    return attrs.evolve(directsuite_settings, retry=ds.RetryPolicy.none())

async def test_mine(directsuite_suite, directsuite_sandbox):
    directsuite_sandbox.inject_fault("GetDocInfo", "status", status=500)
    with pytest.raises(ds.ServerError) as caught:
        await directsuite_suite.signing.get_doc_info("none")
    assert caught.value.attempts == 1
""",
    )
    counts, written = project.run()
    assert counts == {"passed": 1}, written


@pytest.mark.process
def test_failing_test_fails(project: Project) -> None:
    project.write("test_mine.py", "async def test_mine(directsuite_suite):\n    assert directsuite_suite is None\n")
    counts, written = project.run()
    assert counts == {"failed": 1}, written


@pytest.mark.process
def test_nothing_is_imported_before_a_fixture_is_used(project: Project) -> None:
    project.write(
        "test_mine.py",
        """
import sys

def test_mine():
    heavy = {"aiohttp", "attrs", "pikepdf", "directsuite.sandbox", "directsuite.suite", "directsuite.errors"}
    assert heavy & set(sys.modules) == set()
    assert "directsuite.testing.plugin" in sys.modules
""",
    )
    counts, written = project.run()
    assert counts == {"passed": 1}, written


@pytest.mark.process
def test_missing_pdf_libraries_are_named(project: Project) -> None:
    project.write("conftest.py", 'import sys\nsys.modules["pikepdf"] = None\n')
    project.write(
        "test_mine.py",
        """
async def test_mail(directsuite_suite, directsuite_sandbox):
    await directsuite_sandbox.add_account("alice@direct.example.test", "secret")
    assert await directsuite_suite.mailbox("alice@direct.example.test", "secret").get_message_count() == 0

async def test_signing(directsuite_suite):
    await directsuite_suite.signing.save(b"%PDF-1.7")

async def test_pdf(directsuite_pdf, directsuite_suite):
    raise RuntimeError
""",
    )
    counts, written = project.run()
    assert counts == {"passed": 1, "failed": 1, "error": 1}, written
    assert "The sandbox cannot sign without its PDF libraries. Run: pip install 'directsuite[sandbox]'" in written
    assert "The fixture directsuite_pdf needs pikepdf. Run: pip install 'directsuite[sandbox]'" in written


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
