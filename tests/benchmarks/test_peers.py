"""The clients do the same work, and the generated ones are prepared as far as the machine permits."""

from __future__ import annotations

import asyncio
import inspect
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from benchmarks.peers import GENERATED, NAMES, environment, get_client, work
from benchmarks.peers.environment import make_document, prepare
from benchmarks.peers.floor import Client as Floor
from benchmarks.peers.ours import Client as Ours
from benchmarks.server import make_scenario_url, responses, run_server
from directsuite.sandbox.server import load_openapi_document

from . import rehearsal

ROOT = Path(__file__).resolve().parents[2]
WORKS = [
    name
    for name, member in vars(Ours).items()
    if inspect.isfunction(member) and name not in ("synchronise", "sign_folder")
]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with run_server() as running:
        yield running


@pytest.mark.process
@pytest.mark.parametrize("name", ["ours", "bare"])
async def test_client_does_every_work(name: str, url: str, tmp_path: Path) -> None:
    results = await rehearsal.rehearse(name, url, tmp_path)
    assert re.fullmatch(r"<\.\d+@direct\.example\.test>", str(results.pop("send")))
    downloaded = results.pop("downloaded")
    assert results == {
        "message_count": rehearsal.MESSAGES,
        "metadata": rehearsal.MESSAGES,
        "get_messages": rehearsal.MESSAGES,
        "upload": responses.compute_base64_length(len(rehearsal.PDF)),
        "download": rehearsal.DOCUMENT,
        "read_messages": rehearsal.MESSAGES,
        "batches": rehearsal.BATCHES * rehearsal.PER_BATCH,
        "sign": downloaded,
    }


@pytest.mark.process
async def test_floors_do_the_same_work(url: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(bytes(300_000))
    async with Floor(make_scenario_url(url, messages=3, attachment=1000, document=300_000)) as floor:
        assert await floor.upload(source) == 400_000
        assert await floor.download(tmp_path / "fetched") == pytest.approx(300_000, abs=1000)  # pieces are rounded down
        assert await floor.read_messages() == 3


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("method", WORKS)
def test_clients_have_the_same_methods(name: str, method: str) -> None:
    assert inspect.signature(getattr(get_client(name), method)) == inspect.signature(getattr(Ours, method))


@pytest.mark.process
def test_bare_aiohttp_does_not_import_directsuite() -> None:
    program = "import sys, benchmarks.peers.bare; sys.exit('directsuite' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)


async def test_folder_is_read_in_order_with_a_limited_number_of_requests() -> None:
    active, maximum, fetched = list[int](), list[int](), list[list[int]]()

    async def fetch(uids: list[int]) -> list[int]:
        active.append(uids[0])
        maximum.append(len(active))
        await asyncio.sleep(0)
        active.remove(uids[0])
        fetched.append(uids)
        return uids

    assert await work.read_in_order(range(1, 24), 5, fetch, window=3) == 23
    assert fetched == [[1, 2, 3, 4, 5], [6, 7, 8, 9, 10], [11, 12, 13, 14, 15], [16, 17, 18, 19, 20], [21, 22, 23]]
    assert max(maximum) == 3


def test_peers_get_our_document_with_plain_dates() -> None:
    theirs, ours = make_document(), load_openapi_document()
    for name in ("Timestamp", "Date"):
        schema = theirs["components"]["schemas"].pop(name)
        ours["components"]["schemas"].pop(name)
        assert (schema["type"], schema["format"]) == ("string", "date-time")
    assert theirs == ours


def _return_no_versions(_: Sequence[str]) -> bytes:
    return b"{}"


class Steps:
    """Replaces the programs that prepare the environment. failing: texts of steps that fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *failing: str) -> None:
        self.taken: list[str] = []
        self.failing = failing
        monkeypatch.setattr(environment, "run_step", self._run)
        monkeypatch.setattr(environment, "make_document", lambda: {"openapi": "3.0.3"})
        monkeypatch.setattr(subprocess, "check_output", _return_no_versions)
        monkeypatch.setattr(shutil, "which", str)

    def _run(self, _folder: Path, failure: str, *_command: str) -> None:
        self.taken.append(failure)
        if failure in self.failing:
            raise environment._StepError(failure)


def test_complete_environment_is_used_again_for_the_same_document(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    steps = Steps(monkeypatch)
    first = prepare(tmp_path)
    assert (first.missing, len(steps.taken)) == ({}, 10)
    assert prepare(tmp_path) == first
    assert len(steps.taken) == 10
    monkeypatch.setattr(environment, "make_document", dict)
    prepare(tmp_path)
    assert len(steps.taken) == 20


def test_without_a_package_index_other_clients_are_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    reason = "The requirements could not be installed."
    Steps(monkeypatch, reason)
    prepared = prepare(tmp_path)
    assert (prepared.python, prepared.missing) == (sys.executable, dict.fromkeys(GENERATED, reason))


def test_without_java_its_generator_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    steps = Steps(monkeypatch)
    monkeypatch.setattr(shutil, "which", dict[str, str]().get)
    assert prepare(tmp_path).missing == {"openapi-generator": "Its generator needs Java, which is not installed."}
    monkeypatch.setattr(shutil, "which", str)
    assert prepare(tmp_path).missing == {}
    assert steps.taken.count("Its generator failed.") == 3


@pytest.mark.process
def test_output_of_a_failed_program_is_kept(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import sys; sys.exit('no such ' + 'schema')"]
    with pytest.raises(environment._StepError, match="Its generator failed"):
        environment.run_step(tmp_path, "Its generator failed.", *command)
    assert "no such schema" in (tmp_path / "prepare.log").read_text()
