"""The pytest plugin of directsuite: fixtures for the sandbox or mocked responses, a suite that uses them, and a clock.

    directsuite_suite       an open DirectSuite for async tests, connected to the sandbox or the mocked responses
    directsuite_sandbox     the empty sandbox, running in a separate thread, also for sync tests
    directsuite_mocked      mocked responses instead of the sandbox, also for sync tests
    directsuite_clock       the LeapingClock of the suite and the sandbox, and of trackers and signing jobs
    directsuite_settings    the suite's Settings; override this fixture to change them
    directsuite_pdf         a PDF of one page, for signing

Installing directsuite registers the plugin; `-p no:directsuite` disables it. An async test that uses a fixture runs in
the event loop of pytest-asyncio or anyio if it is marked for that, otherwise in one of this plugin. Nothing else is
imported before a fixture is used.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Generator, Iterator, Mapping
from http import HTTPStatus
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, get_args

import pytest

if TYPE_CHECKING:
    import asyncio

    from directsuite.sandbox import Sandbox
    from directsuite.settings import Settings
    from directsuite.suite import DirectSuite
    from directsuite.testing.clock import LeapingClock
    from directsuite.testing.loop_thread import LoopThread
    from directsuite.testing.mocked import MockedServices

_ADVICE = "In a copy of the repository, run: pip install '.[sandbox]'"
_LoopScope = Literal["function", "class", "module", "package", "session"]
_RUNNER_KEY = pytest.StashKey["asyncio.Runner"]()


def pytest_configure(config: pytest.Config) -> None:
    """Register a suite fixture for each loop scope, if pytest-asyncio is used."""
    if _uses_pytest_asyncio(config):
        fixtures = ModuleType("directsuite_asyncio_fixtures")  # pytest reads fixtures only from modules and classes
        vars(fixtures).update({f"in_{scope}_loop": _make_suite_fixture(scope) for scope in get_args(_LoopScope)})
        config.pluginmanager.register(fixtures, fixtures.__name__)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an async test that uses these fixtures, and return True. Return None if another plugin runs it."""
    if not _uses_fixtures(pyfuncitem) or _find_loop(pyfuncitem) != "own":
        return None
    import asyncio

    named = [name for name in inspect.signature(pyfuncitem.obj).parameters if name in pyfuncitem.funcargs]
    test = pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in named})
    if _RUNNER_KEY in pyfuncitem.stash:
        pyfuncitem.stash[_RUNNER_KEY].run(test)
    else:
        asyncio.run(test)
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Fail a test that has passed if a request had no response, or a response was not requested.

    If the test fails itself, add a section to its report that names these requests and responses.
    """
    mocked: MockedServices | None = getattr(item, "funcargs", {}).get("directsuite_mocked")
    try:
        result = yield
    except BaseException:  # pytest.fail raises no Exception
        if mocked is not None and (differences := _describe_differences(mocked)):
            item.add_report_section("call", "mocked responses", differences)
        raise
    if mocked is not None and (differences := _describe_differences(mocked)):
        hint = "" if mocked.unexpected else " If a response need not be requested, define it with repeat=True."
        pytest.fail(f"{differences}{hint}", pytrace=False)
    return result


def _describe_differences(mocked: MockedServices) -> str:
    lists = {
        "These requests had no mocked response": mocked.unexpected,
        "These mocked responses were not requested": mocked.unused,
    }
    return " ".join(f"{title}: {', '.join(each)}." for title, each in lists.items() if each)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Add a note to the error if the sandbox lacks its PDF libraries."""
    if call.excinfo is not None and _uses_fixtures(item) and not _is_mocked(item):
        from directsuite.errors import ServerError
        from directsuite.sandbox.server import has_pdf_libraries

        error = call.excinfo.value
        lacking = isinstance(error, ServerError) and error.status == HTTPStatus.NOT_IMPLEMENTED
        if lacking and not has_pdf_libraries():
            error.add_note(f"The sandbox cannot sign without its PDF libraries. {_ADVICE}")
    return (yield)


@pytest.fixture(scope="session")
def _directsuite_loop() -> Iterator[LoopThread]:
    from directsuite.testing.loop_thread import LoopThread

    with LoopThread() as thread:
        yield thread


@pytest.fixture
def directsuite_sandbox(_directsuite_loop: LoopThread) -> Iterator[Sandbox]:
    """The four services on loopback, in memory, with only a demo account. Each test gets a new sandbox.

    Set `profile` to `"attachment-list"`, `"java"` or a list of both to imitate servers that respond differently. The
    async methods may be awaited in any event loop. `environment` contains the variables for `DirectSuite.from_env`.
    """
    from directsuite.sandbox import Sandbox

    sandbox = Sandbox()
    _directsuite_loop.call(sandbox.__aenter__())
    yield sandbox
    _directsuite_loop.call(sandbox.__aexit__(None, None, None))


@pytest.fixture
def directsuite_mocked() -> Iterator[MockedServices]:
    """Mocked responses to all requests of aiohttp. `respond` adds one.

    The test fails if a request has no response, even if the program ignores the AssertionError. It also fails if a
    response is not requested, unless it was defined with `repeat=True`.
    """
    from directsuite.testing.mocked import mocked_services

    with mocked_services() as mocked:
        yield mocked


@pytest.fixture
def directsuite_clock(request: pytest.FixtureRequest) -> LeapingClock:
    """The clock of the sandbox and the suite, which skips waits of at most a minute."""
    from directsuite.testing.clock import LeapingClock

    if _is_mocked(request.node):
        return LeapingClock()
    return LeapingClock(request.getfixturevalue("directsuite_sandbox").clock)


@pytest.fixture
def directsuite_settings(_directsuite_environment: Mapping[str, str]) -> Settings:
    """The suite's settings: the URLs of the sandbox or the mocked responses, and defaults."""
    from directsuite.settings import Settings

    return Settings.from_env(_directsuite_environment)


@pytest.fixture
def directsuite_suite(request: pytest.FixtureRequest, _directsuite_unopened: DirectSuite) -> DirectSuite:
    """A DirectSuite, open in the test's event loop, with a constant token and login.

    It is connected to the sandbox, or to the mocked responses if the test also uses `directsuite_mocked`.
    """
    loop = _find_loop(request.node)
    if loop == "no":
        pytest.fail(
            "The fixture directsuite_suite is for async tests. Use directsuite_sandbox or directsuite_mocked in a sync "
            "test.",
            pytrace=False,
        )
    if loop == "anyio":
        backend = request.getfixturevalue("anyio_backend")
        if (backend if isinstance(backend, str) else backend[0]) != "asyncio":
            pytest.fail(
                "directsuite requires asyncio. Define a fixture anyio_backend that returns 'asyncio'.", pytrace=False
            )
    suite: DirectSuite = request.getfixturevalue(f"_directsuite_suite_in_{loop}_loop")
    return suite


@pytest.fixture(scope="session")
def directsuite_pdf() -> bytes:
    """A PDF of one blank page."""
    try:
        import pikepdf
    except ModuleNotFoundError:
        pytest.fail(f"The fixture directsuite_pdf needs pikepdf. {_ADVICE}", pytrace=False)
    import io

    written = io.BytesIO()
    with pikepdf.new() as document:
        document.add_blank_page()
        document.save(written)
    return written.getvalue()


@pytest.fixture
def _directsuite_environment(request: pytest.FixtureRequest) -> Mapping[str, str]:
    services = "directsuite_mocked" if _is_mocked(request.node) else "directsuite_sandbox"
    environment: Mapping[str, str] = request.getfixturevalue(services).environment
    return environment


@pytest.fixture
def _directsuite_unopened(
    _directsuite_environment: Mapping[str, str], directsuite_settings: Settings, directsuite_clock: LeapingClock
) -> DirectSuite:
    from directsuite.registration.models import Login
    from directsuite.suite import DirectSuite

    demo = _directsuite_environment
    login = Login(demo["DIRECTSUITE_LOGIN_USERNAME"], demo["DIRECTSUITE_LOGIN_PASSWORD"])
    return DirectSuite(directsuite_settings, demo["DIRECTSUITE_TOKEN"], login, clock=directsuite_clock)


@pytest.fixture
async def _directsuite_suite_in_anyio_loop(_directsuite_unopened: DirectSuite) -> AsyncIterator[DirectSuite]:
    async with _directsuite_unopened as suite:
        yield suite


def _make_suite_fixture(scope: _LoopScope) -> Any:
    import pytest_asyncio

    @pytest_asyncio.fixture(loop_scope=scope, name=f"_directsuite_suite_in_{scope}_loop")
    async def suite_in_loop(_directsuite_unopened: DirectSuite) -> AsyncIterator[DirectSuite]:
        async with _directsuite_unopened as suite:
            yield suite

    return suite_in_loop


@pytest.fixture
def _directsuite_runner(request: pytest.FixtureRequest) -> Iterator[asyncio.Runner]:
    import asyncio

    with asyncio.Runner() as runner:
        request.node.stash[_RUNNER_KEY] = runner
        yield runner


@pytest.fixture
def _directsuite_suite_in_own_loop(
    _directsuite_runner: asyncio.Runner, _directsuite_unopened: DirectSuite
) -> Iterator[DirectSuite]:
    yield _directsuite_runner.run(_directsuite_unopened.__aenter__())
    _directsuite_runner.run(_directsuite_unopened.__aexit__(None, None, None))


def _uses_fixtures(item: Any) -> bool:
    return any(name.startswith("directsuite_") for name in getattr(item, "fixturenames", ()))


def _is_mocked(item: Any) -> bool:
    return "directsuite_mocked" in item.fixturenames


def _find_loop(item: Any) -> str:
    """Return `no` for a sync test. For an async one: `own`, `anyio` or a scope of pytest-asyncio."""
    marker = item.get_closest_marker("asyncio")  # in auto mode, pytest-asyncio marks every async test
    if marker is not None and _uses_pytest_asyncio(item.config):
        scope: str = marker.kwargs.get("loop_scope") or item.config.getini("asyncio_default_test_loop_scope")
        return scope
    if "anyio_backend" in item.fixturenames:
        return "anyio"
    return "own" if inspect.iscoroutinefunction(getattr(item, "obj", None)) else "no"


def _uses_pytest_asyncio(config: pytest.Config) -> bool:
    return any(config.pluginmanager.hasplugin(name) for name in ("asyncio", "pytest_asyncio", "pytest_asyncio.plugin"))
