"""The selection of tests in the default run, and fixtures of all tests.

The default run (`addopts` in pyproject.toml) shows each claim once, within two minutes; `pytest -m "not slow"` shows it
for every operation, with PostgreSQL and with killed processes. The marks `wide` and `postgres` are checked or set here,
and a test without the mark `process` fails if it starts a process.
"""

from __future__ import annotations

import faulthandler
import functools
import gc
import os
import shutil
import signal
import ssl
import subprocess
import sys
from collections import defaultdict, deque
from collections.abc import Callable, Generator, Hashable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import docstring_parser
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from hypothesis import settings

from directsuite.core import session
from directsuite.sandbox import credentials

if TYPE_CHECKING:
    from tests.sync.fleet.postgres_server import PostgresServer

collect_ignore = ["guides/code-blocks"]  # the blocks of the guides, for mypy and pyright

DEFAULT_OPERATIONS = frozenset(
    {
        "GetDocInfo",  # SAFE, a GET
        "GetMessageCount",  # SAFE, a POST
        "Delete",  # IDEMPOTENT
        "Save",  # REPEATABLE
        "Send",  # NON_IDEMPOTENT
        "Flatten",  # NON_IDEMPOTENT, without a body
        "ProvisionIDProofedPatient",  # in a session
    }
)
"""The operations that the default run tries in tests with a parameter `operation`."""

REQUIRED_MARKS = {"postgres": "postgres", "shaky_postgres": "postgres", "conninfo": "postgres", "project": "process"}
"""The mark that a test must have if it uses a fixture: a PostgreSQL server, or a project whose tests a process runs."""

PDF_TOOLS = frozenset({"pdfsig", "pdftoppm", "pdftotext"})
"""Programs that a test may start without the mark `process`."""

# A shell ignores SIGINT for background processes, and the tests' processes would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    """Choose the number of hypothesis's examples: fewer in a run without the wide tests.

    The settings of this machine's user are ignored. A worker collects the tests without garbage collection.
    """
    if hasattr(config, "workerinput"):
        gc.disable()
    for name in [each for each in os.environ if each.startswith("DIRECTSUITE_")]:
        del os.environ[name]
    os.environ["XDG_CONFIG_HOME"] = os.devnull
    if "not slow" in config.option.markexpr:
        _keep_files_in_memory()
    # An example's wall-clock time says how busy the machine is, not whether the code is right.
    settings.register_profile("fast", deadline=None, max_examples=25)
    settings.register_profile("thorough", deadline=None, max_examples=100)
    settings.load_profile("fast" if "not wide" in config.option.markexpr else "thorough")


def _keep_files_in_memory() -> None:
    """Let `tmp_path` be in memory, if there is room. Otherwise much of the time is spent waiting for the disk."""
    folder = Path("/dev/shm")
    if os.access(folder, os.W_OK) and shutil.disk_usage(folder).free > 2**30:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(folder))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int | None:
    """One process more than there are cores, because tests also wait for threads and other processes."""
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return cores + 1


@pytest.hookimpl(tryfirst=True)  # before the marks decide what runs
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Add the mark `wide` to the cases of exhaustive tests that the default run leaves out.

    Fail the collection if a test uses a PostgreSQL server or a project without the mark that its fixture requires.
    """
    tests: defaultdict[str, list[pytest.Function]] = defaultdict(list)
    for item in items:
        if not isinstance(item, pytest.Function):
            continue
        for fixture in REQUIRED_MARKS.keys() & set(item.fixturenames):
            if item.get_closest_marker(REQUIRED_MARKS[fixture]) is None:
                raise pytest.UsageError(f"{item.nodeid} uses {fixture}: add the mark {REQUIRED_MARKS[fixture]}")
        if hasattr(item, "callspec") and item.get_closest_marker("exhaustive") and not item.get_closest_marker("slow"):
            tests[item.nodeid.partition("[")[0]].append(item)
    for cases in tests.values():
        _mark_wide_cases(cases)


def _mark_wide_cases(cases: Sequence[pytest.Function]) -> None:
    mark = cases[0].get_closest_marker("exhaustive")
    assert mark is not None
    values: list[set[Hashable]] = [
        {(name, id(value)) for name, value in case.callspec.params.items()} for case in cases
    ]
    kept = select_cases(values, [get_operation_name(case) for case in cases], **mark.kwargs)
    for number in {*range(len(cases))} - {*kept}:
        cases[number].add_marker("wide")


def select_cases(
    cases: Sequence[set[Hashable]], operations: Sequence[str | None], *, limit: int | None = None
) -> list[int]:
    """Return the numbers of the cases of the default run: each that has a value which no earlier case has.

    If cases have one of DEFAULT_OPERATIONS, only these are considered.

    cases: the values of the parameters of each case. limit: maximum number of cases, spread evenly over the result.
    """
    candidates = [number for number, name in enumerate(operations) if name in DEFAULT_OPERATIONS] or range(len(cases))
    seen: set[Hashable] = set()
    kept: list[int] = []
    for number in candidates:
        if cases[number] - seen:
            kept.append(number)
            seen |= cases[number]
    return kept[:: -(-len(kept) // (limit or len(kept)))]


def pytest_collection_finish() -> None:
    gc.enable()
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 100)


def get_operation_name(case: pytest.Function) -> str | None:
    """Return the name of the operation that is a parameter of the case."""
    operation = case.callspec.params.get("operation")
    return operation if isinstance(operation, str) else getattr(operation, "name", None)


@pytest.fixture(scope="session", autouse=True)
def _share_costly_objects() -> Generator[None]:
    """Share objects that take a hundredth of a second or more to create between the tests of a process.

    These are eight RSA keys of the sandboxes, the machine's trust store, and cyclopts' parsed docstrings. Password
    hashes have the lowest cost.
    """
    make, made = rsa.generate_private_key, deque[rsa.RSAPrivateKey]()

    def return_cached_key(public_exponent: int, key_size: int) -> rsa.RSAPrivateKey:
        if len(made) < 8:
            made.append(make(public_exponent, key_size))
        else:
            made.rotate(-1)
        return made[-1]

    parse: Callable[[object], object] = functools.cache(docstring_parser.parse_from_object)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rsa, "generate_private_key", return_cached_key)
        patch.setattr(session, "ssl", SimpleNamespace(create_default_context=_get_shared_ssl_context))
        patch.setattr(docstring_parser, "parse_from_object", parse)
        patch.setattr(credentials, "_SCRYPT_COST", 2)  # a sandbox in a separate process cannot check these hashes
        yield


def _get_shared_ssl_context() -> ssl.SSLContext:
    return _make_ssl_context(*map(os.environ.get, ("SSL_CERT_FILE", "SSL_CERT_DIR")))


@functools.cache
def _make_ssl_context(*_: str | None) -> ssl.SSLContext:
    return ssl.create_default_context()


@pytest.fixture(scope="module")
def without_coverage() -> Generator[None]:
    """Leave the processes that the tests start out of the measurement of coverage, which they do not need."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("COVERAGE_PROCESS_CONFIG", raising=False)
        yield


def _start_postgres() -> Generator[PostgresServer]:
    from tests.sync.fleet.postgres_server import find_binaries, run_server

    where = find_binaries()
    if where is None:
        pytest.skip("PostgreSQL isn't installed: initdb was not found")
    with run_server(where) as server:
        yield server


@pytest.fixture(scope="session")
def postgres() -> Generator[PostgresServer]:
    """A PostgreSQL server that stays up, or the test is skipped."""
    yield from _start_postgres()


@pytest.fixture(scope="session")
def shaky_postgres() -> Generator[PostgresServer]:
    """Another PostgreSQL server, which tests stop and start. Each test leaves it running."""
    yield from _start_postgres()


@pytest.fixture
def conninfo(postgres: PostgresServer) -> Generator[str]:
    """An empty database."""
    with postgres.borrow_database() as conninfo:
        yield conninfo


@pytest.fixture(scope="session")
def shared_database(postgres: PostgresServer) -> str:
    """A database for tests that do not need an empty one."""
    return postgres.create_database()


_forbids_processes = False


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    global _forbids_processes
    _forbids_processes = not any(map(item.get_closest_marker, ("slow", "process", "postgres", "browser")))
    if item.get_closest_marker("slow") is not None:
        # Not after `faulthandler_timeout`: reporting the stacks of running threads may end the process.
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown() -> None:
    """Allow processes to the ends of fixtures: after the last test, one of them stops the PostgreSQL server."""
    global _forbids_processes
    _forbids_processes = False


def _forbid(start: Callable[..., Any], find_program: Callable[..., str]) -> Callable[..., Any]:
    """Return a function that starts a process, but raises RuntimeError in a test without the mark.

    An audit hook would do the same, but a hook in Python lets threads switch in the middle of `sys.settrace`. Coverage
    calls this in each new thread, and it fails if another thread calls it at the same time.
    """

    @functools.wraps(start)
    def guarded(*arguments: Any, **options: Any) -> Any:
        if _forbids_processes and Path(find_program(*arguments, **options)).name not in PDF_TOOLS:
            raise RuntimeError("a test that starts a process has to be marked: pytest.mark.process")
        return start(*arguments, **options)

    return guarded


def _find_program(_: object, args: Any, *__: object, **___: object) -> str:
    return str(args if isinstance(args, str | Path) else next(iter(args)))


setattr(subprocess.Popen, "__init__", _forbid(subprocess.Popen.__init__, _find_program))  # noqa: B010
for _name in ("fork", "posix_spawn"):
    setattr(os, _name, _forbid(getattr(os, _name), lambda *_, **__: ""))
