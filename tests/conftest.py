"""What holds for all tests: which of them the default run leaves out, and how many examples hypothesis tries.

The default run (`addopts` in pyproject.toml) shows each claim once, within two minutes; `pytest -m "not slow"` shows it
for every operation, with PostgreSQL and with processes that are killed. Of the marks that part the two, `wide` and
`postgres` are set here, so that no test can lack them, and a test that lacks `process` fails where it starts one.
"""

from __future__ import annotations

import functools
import gc
import os
import signal
import ssl
import sys
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Generator, Hashable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import docstring_parser
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from hypothesis import settings

from directsuite.core import session
from directsuite.sandbox import credentials

if TYPE_CHECKING:
    from tests.sync.fleet.postgres_server import PostgresServer

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
"""The operations that the default run tries where a test has a parameter `operation`."""

MARKS_BY_FIXTURE = {
    "postgres": "postgres",
    "shaky_postgres": "postgres",
    "conninfo": "postgres",
    "project": "process",
}
"""What marks a test that uses a fixture: a PostgreSQL server, and a project whose tests a process runs."""

PDF_TOOLS = frozenset({"pdfsig", "pdftoppm", "pdftotext"})
"""Small programs, which a test may start without the mark `process`."""

# A shell ignores it for what runs in the background, and the processes that tests start would do so, too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    """Choose the number of hypothesis's examples: a run without the wide tests is a fast one.

    What this machine's user has configured is left out. In a worker the garbage collector rests during the collection.
    """
    if hasattr(config, "workerinput"):
        gc.disable()
    for name in [each for each in os.environ if each.startswith("DIRECTSUITE_")]:
        del os.environ[name]
    os.environ["XDG_CONFIG_HOME"] = os.devnull
    # An example's wall-clock time says how busy the machine is, not whether the code is right.
    settings.register_profile("fast", deadline=None, max_examples=25)
    settings.register_profile("thorough", deadline=None, max_examples=100)
    settings.load_profile("fast" if "not wide" in config.option.markexpr else "thorough")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int | None:
    """One process more than there are cores: a fifth of the time is spent waiting for the disk."""
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return cores + 1


@pytest.hookimpl(tryfirst=True)  # before the marks decide what runs
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what uses PostgreSQL, and the cases that multiply a claim."""
    tests: defaultdict[str, list[pytest.Function]] = defaultdict(list)
    for item in items:
        if isinstance(item, pytest.Function):
            for fixture in MARKS_BY_FIXTURE.keys() & set(item.fixturenames):
                item.add_marker(MARKS_BY_FIXTURE[fixture])
            if hasattr(item, "callspec") and not _is_left_out(item):
                tests[item.nodeid.partition("[")[0]].append(item)
    for cases in tests.values():
        kept = select_cases([list_parameter_rows(case) for case in cases], [get_operation_name(case) for case in cases])
        limit = cases[0].get_closest_marker("by_default")
        kept = kept[:: -(-len(kept) // limit.args[0])] if limit else kept
        for number, case in enumerate(cases):
            if number not in kept:
                case.add_marker("wide")


def pytest_collection_finish() -> None:
    """Have the garbage collector pass over modules and tests, and look seldom; else it takes a tenth of the time."""
    gc.enable()
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 100)


def _is_left_out(item: pytest.Item) -> bool:
    return any(map(item.get_closest_marker, ("slow", "process", "postgres", "browser", "wide")))


def select_cases(cases: Sequence[Collection[Hashable]], operations: Sequence[str | None]) -> list[int]:
    """Which cases of a test the default run keeps, by their numbers. A case is the rows that make it up.

    Of the operations, one of each kind is kept (or all, where a test has none of these); and of those cases so many
    that each row of each parametrization is there once: nine codes with seven operations are nine cases, not 63.
    """
    of_a_kind = [number for number, operation in enumerate(operations) if operation in DEFAULT_OPERATIONS]
    candidates = of_a_kind or range(len(cases))
    in_cases = Counter(row for number in candidates for row in cases[number])
    kept = {number for number in candidates if any(in_cases[row] == 1 for row in cases[number])}
    uses = Counter(row for number in kept for row in cases[number])

    def score_case(number: int) -> tuple[int, int]:
        """How many rows a case would add; or else, how rare its rows are among the kept."""
        return sum(not uses[row] for row in cases[number]), -sum(uses[row] for row in cases[number])

    while not uses.keys() >= in_cases.keys():
        best = max(candidates, key=score_case)
        kept.add(best)
        uses.update(cases[best])
    return sorted(kept)


def list_parameter_rows(case: pytest.Function) -> list[Hashable]:
    """A key for each parametrization's row that makes up a case: the parameters' names, and which objects they are."""
    parameters = dict(case.callspec.params)
    rows: list[Hashable] = []
    for mark in case.iter_markers("parametrize"):
        names = mark.args[0] if mark.args else mark.kwargs["argnames"]
        together = [name.strip() for name in names.split(",")] if isinstance(names, str) else names
        rows.append(tuple((name, id(parameters.pop(name))) for name in together))
    return [*rows, *((name, id(value)) for name, value in parameters.items())]  # those of fixtures


def get_operation_name(case: pytest.Function) -> str | None:
    """The name of the operation that is a parameter of the case."""
    operation = case.callspec.params.get("operation")
    return operation if isinstance(operation, str) else getattr(operation, "name", None)


@pytest.fixture(scope="session", autouse=True)
def _share_costly_objects() -> Generator[None]:
    """Have the tests of a process share what takes a hundredth of a second or more to make.

    These are eight RSA keys of the sandboxes, the machine's trust store, and what cyclopts reads out of the source of
    the options' classes. The hashes of passwords are made with the least work.
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
        patch.setattr(credentials, "_SCRYPT_COST", 2)  # a sandbox in a process of its own can't check these hashes
        yield


def _get_shared_ssl_context() -> ssl.SSLContext:
    """Give the context of the machine's trust store that was made where the same variables were set."""
    return _make_ssl_context(*map(os.environ.get, ("SSL_CERT_FILE", "SSL_CERT_DIR")))


@functools.cache
def _make_ssl_context(*_: str | None) -> ssl.SSLContext:
    return ssl.create_default_context()


def _start_postgres() -> Generator[PostgresServer]:
    pytest.importorskip("psycopg", reason="psycopg isn't installed: the extra 'fleet' brings it")
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
    """Another one, which tests stop and start; each leaves it running."""
    yield from _start_postgres()


@pytest.fixture
def conninfo(postgres: PostgresServer) -> Generator[str]:
    """A database in which nothing is."""
    with postgres.borrow_database() as conninfo:
        yield conninfo


@pytest.fixture(scope="session")
def shared_database(postgres: PostgresServer) -> str:
    """A database for tests that only need room."""
    return postgres.create_database()


_forbids_processes = False


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let a test start processes only where a mark says so."""
    global _forbids_processes
    _forbids_processes = not any(map(item.get_closest_marker, ("slow", "process", "postgres", "browser")))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown() -> None:
    """Let fixtures of other tests end: a process stops the PostgreSQL server, after whichever test comes last."""
    global _forbids_processes
    _forbids_processes = False


def _forbid_processes(event: str, arguments: Sequence[object]) -> None:
    if not _forbids_processes or event not in {"subprocess.Popen", "os.fork", "os.posix_spawn"}:
        return
    if event == "subprocess.Popen" and Path(str(arguments[0])).name in PDF_TOOLS:
        return
    raise RuntimeError("a test that starts a process has to be marked: pytest.mark.process")


sys.addaudithook(_forbid_processes)
