"""The clients that are measured: they do the same work, and are prepared as far as the machine allows."""

from __future__ import annotations

import asyncio
import inspect
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.peers import GENERATED, NAMES, environment, get_client, prepare, rehearsal, work
from benchmarks.peers.bare import Client as Bare
from benchmarks.peers.document import make_document
from benchmarks.peers.folder import read_in_order
from benchmarks.server import make_scenario_url, responses, run_server
from directsuite.sandbox.server import load_openapi_document

ROOT = Path(__file__).resolve().parents[2]
WORKS = [name for name, member in vars(work.Client).items() if inspect.isfunction(member) and not name.startswith("_")]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with run_server() as running:
        yield running


@pytest.mark.process
@pytest.mark.parametrize("name", ["ours", "bare"])
async def test_every_work_is_done(name: str, url: str, tmp_path: Path) -> None:
    given = await rehearsal.rehearse(name, url, tmp_path)
    assert re.fullmatch(r"<\.\d+@direct\.example\.test>", str(given.pop("send")))
    content = responses.compute_base64_length(len(rehearsal.PDF))
    downloaded = given.pop("downloaded")
    assert given == {
        "message_count": rehearsal.MESSAGES,
        "metadata": rehearsal.MESSAGES,
        "messages": rehearsal.MESSAGES,
        "upload": content,
        "download": rehearsal.DOCUMENT,
        "read_messages": rehearsal.MESSAGES,
        "batches": rehearsal.BATCHES * rehearsal.MESSAGES_PER_BATCH,
        "sign": downloaded,
    }


@pytest.mark.process
async def test_the_floors_move_as_many_bytes_as_the_work_does(url: str, tmp_path: Path) -> None:
    async with Bare(make_scenario_url(url, messages=3, attachment=1000, document=300_000)) as bare:
        assert await bare.floor_upload(300_000) == 300_000
        assert await bare.floor_download(tmp_path / "fetched") == responses.compute_base64_length(300_000)
        assert (tmp_path / "fetched").stat().st_size == pytest.approx(300_000, abs=1000)  # each piece is rounded down
        assert await bare.floor_read_messages() == len(responses.make_messages(3, 1000))


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("method", ["__init__", *WORKS])
def test_clients_differ_in_nothing_but_how(name: str, method: str) -> None:
    assert inspect.signature(getattr(get_client(name), method)) == inspect.signature(getattr(work.Client, method))


@pytest.mark.process
def test_measuring_bare_aiohttp_loads_nothing_of_directsuite() -> None:
    program = "import sys, benchmarks.peers.bare; sys.exit('directsuite' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)


async def test_a_folder_is_read_in_order_by_a_window_of_requests() -> None:
    under_way: list[int] = []
    most: list[int] = []
    fetched: list[list[int]] = []

    async def fetch(uids: list[int]) -> list[int]:
        under_way.append(uids[0])
        most.append(len(under_way))
        await asyncio.sleep(0)
        under_way.remove(uids[0])
        fetched.append(uids)
        return uids

    assert await read_in_order(range(1, 24), 5, fetch, window=3) == 23
    assert fetched == [[1, 2, 3, 4, 5], [6, 7, 8, 9, 10], [11, 12, 13, 14, 15], [16, 17, 18, 19, 20], [21, 22, 23]]
    assert max(most) == 3


async def test_a_failed_request_ends_those_beside_it() -> None:
    async def fetch(uids: list[int]) -> list[int]:
        if uids == [1]:
            raise OSError("broken")
        return await asyncio.Future[list[int]]()

    with pytest.raises(OSError, match="broken"):
        await read_in_order([1, 2, 3], 1, fetch, window=3)
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) == 1


def test_peers_get_our_document_with_plain_dates() -> None:
    theirs, own = make_document(), load_openapi_document()
    for name in ("Timestamp", "Date"):
        schema = theirs["components"]["schemas"].pop(name)
        own["components"]["schemas"].pop(name)
        assert (schema["type"], schema["format"]) == ("string", "date-time")
    assert theirs == own


class Steps:
    """The programs that preparing would run, none of which is run. failing: words of steps that can't be taken."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *failing: str) -> None:
        self.taken: list[str] = []
        self.failing = failing
        monkeypatch.setattr(environment._Environment, "_run", self._run)
        monkeypatch.setattr(environment, "_read_versions", _none)
        monkeypatch.setattr(shutil, "which", str)

    def _run(self, failure: str, _command: Sequence[str]) -> None:
        self.taken.append(failure)
        if failure.startswith(self.failing or ("nothing",)):
            raise environment._StepError(failure)


def _none(_python: Path) -> dict[str, str]:
    return {}


def _not_found(_program: str) -> None:
    return None


def test_what_stands_in_the_folder_is_taken_as_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    steps = Steps(monkeypatch)
    first = prepare(tmp_path)
    assert first.available == dict.fromkeys(NAMES)
    assert steps.taken
    steps.taken.clear()
    assert prepare(tmp_path) == first
    assert not steps.taken


def test_another_document_makes_everything_anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    steps = Steps(monkeypatch)
    prepare(tmp_path)
    before, steps.taken = steps.taken, []
    other: dict[str, Any] = {**make_document(), "info": {"title": "other", "version": "1"}}
    monkeypatch.setattr(environment, "make_document", lambda: other)
    prepare(tmp_path)
    assert steps.taken == before


def test_without_a_package_index_the_rest_is_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    Steps(monkeypatch, "directsuite's own requirements")
    prepared = prepare(tmp_path)
    assert prepared.python == Path(sys.executable)
    reason = "directsuite's own requirements could not be installed"
    assert prepared.available == {**dict.fromkeys(NAMES), **dict.fromkeys(GENERATED, reason)}


def test_without_java_its_generator_is_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    Steps(monkeypatch)
    monkeypatch.setattr(shutil, "which", _not_found)
    reason = "its generator needs java, which is not installed"
    assert prepare(tmp_path).available == {**dict.fromkeys(NAMES), "openapi-generator": reason}


def test_a_step_that_failed_is_taken_again_next_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    steps = Steps(monkeypatch, "its generator failed")
    assert prepare(tmp_path).available == {
        **dict.fromkeys(NAMES),
        **dict.fromkeys(GENERATED, "its generator failed"),
    }
    steps.failing, steps.taken = (), []
    assert prepare(tmp_path).available == dict.fromkeys(NAMES)
    assert steps.taken.count("its generator failed") == len(GENERATED)


@pytest.mark.process
def test_what_a_program_that_fails_prints_is_kept(tmp_path: Path) -> None:
    with (tmp_path / "prepare.log").open("w") as log:
        step = environment._Environment(tmp_path, log)
        with pytest.raises(environment._StepError, match="its generator failed"):
            step._run("its generator failed", [sys.executable, "-c", "import sys; sys.exit('no such ' + 'schema')"])
    assert "no such schema" in (tmp_path / "prepare.log").read_text()


@pytest.mark.process
def test_the_versions_of_what_is_measured_are_told() -> None:
    versions = environment._read_versions(Path(sys.executable))
    assert versions["python"] == ".".join(str(part) for part in sys.version_info[:3])
    assert {"aiohttp", "attrs", "msgspec", "pybase64"} <= versions.keys()


def test_the_environment_has_what_directsuite_needs_as_it_is_here() -> None:
    installed = environment._list_installed()
    assert {"aiohttp", "attrs", "cattrs", "msgspec", "pybase64", "tenacity", "yarl", "multidict"} <= installed.keys()
    assert "pytest" not in installed
