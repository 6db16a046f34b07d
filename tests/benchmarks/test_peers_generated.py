"""The generated clients do the same work. This needs a package index and Java."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from benchmarks.peers import GENERATED, NAMES
from benchmarks.peers.environment import PreparedPeers, prepare
from benchmarks.server import run_server

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
WITHOUT_SAVE = ("upload", "sign")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> PreparedPeers:
    made = prepare(tmp_path_factory.mktemp("peers"))
    if made.missing:
        pytest.skip(f"The clients cannot be generated here: {made.missing}")
    return made


@pytest.fixture(scope="module")
def given(prepared: PreparedPeers, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("files")
    environment = {
        name: value for name, value in os.environ.items() if name != "PYTHONPATH"
    }  # it finds packages itself
    with run_server() as url:
        command = (prepared.python, "-W", "error::DeprecationWarning", "-m", "tests.benchmarks.rehearsal")
        return {
            name: json.loads(subprocess.check_output([*command, name, url, folder], cwd=folder, env=environment))
            for name in NAMES
        }


@pytest.mark.parametrize("name", GENERATED)
def test_generated_clients_give_what_bare_aiohttp_gives(given: dict[str, Any], name: str) -> None:
    differing = {work for work, result in given[name].items() if result != given["bare"][work]}
    assert differing - {"send"} == (set(WITHOUT_SAVE) if name == "openapi-python-client" else set())
    assert given[name]["send"].endswith("@direct.example.test>")  # spaces in its JSON: some more bytes


def test_one_without_save_says_so(given: dict[str, Any]) -> None:
    for work in WITHOUT_SAVE:
        assert "does not support text/plain bodies" in given["openapi-python-client"][work]


def test_all_share_one_aiohttp(prepared: PreparedPeers) -> None:
    names = {"aiohttp", "httpx", "pydantic", "openapi-generator-cli", "openapi-python-client"}
    assert names <= prepared.versions.keys()
