"""The sandbox under load: every operation of the specification is measured and succeeds, and what fails is told."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING

import attrs
import pytest

from benchmarks.__main__ import main
from benchmarks.sandbox_load import (
    Load,
    OperationLoad,
    RunningSandbox,
    find_failures,
    format_page,
    list_problems,
    measure_operations,
    run_load,
    run_sandbox,
)
from benchmarks.sandbox_requests import OPERATIONS, PREPARATIONS, SandboxResponse
from tests.specification import METHODS

if TYPE_CHECKING:
    from pathlib import Path


def test_every_operation_is_called() -> None:
    assert {name: method for name, (method, *_) in OPERATIONS.items()} == METHODS
    assert PREPARATIONS.keys() <= METHODS.keys()


@pytest.mark.process
async def test_every_operation_is_measured_and_succeeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with run_sandbox(tmp_path) as sandbox:
        found = await measure_operations(sandbox, callers=2, lasting=0)
        assert [(each.operation, len(each.load.seconds)) for each in found] == [(name, 2) for name in OPERATIONS]
        assert list_problems(found, sandbox.count_locked_lines()) == []
        assert format_page(found, sandbox).count("| 2 |") >= len(METHODS)
        assert all(0 < each.memory <= sandbox.read_peak_bytes() < 300_000_000 for each in found)

        requests = [sandbox.caller.make_request("GetMessageCount", password="wrong"), sandbox.health]
        refused = await run_load(sandbox.caller, iter(requests), 2, 0)
        assert (len(refused.seconds), refused.failures) == (2, {"refused": 1})
        unauthorized = attrs.evolve(sandbox.caller.make_request("GetDoc"), headers={})
        assert (await run_load(sandbox.caller, itertools.repeat(unauthorized), 1, 0)).failures == {"refused": 1}
        with pytest.raises(RuntimeError, match="GetMessageCount was answered with 200"):
            await sandbox.caller.call("GetMessageCount", password="wrong")
        for described in ({"parameters": [{"name": "unheard-of"}], "security": []}, _with_body("unheard-of")):
            monkeypatch.setitem(OPERATIONS, "New", ("POST", "/{unheard-of}", described))
            with pytest.raises(KeyError, match="unheard-of"):
                await sandbox.caller.make_requests("New", 1)


def _with_body(member: str) -> object:
    schema = {"properties": {member: {"type": "string"}}, "required": [member]}
    content = {"application/json": {"schema": schema}}
    return {"parameters": [], "security": [], "requestBody": {"content": content}}


def test_answer_of_a_locked_database_is_a_failure() -> None:
    assert list(find_failures(SandboxResponse(200, b'{"success": true}'))) == []
    assert list(find_failures(SandboxResponse(200, b"%PDF-"))) == []
    assert list(find_failures(SandboxResponse(500, b'{"success": false, "message": "database is locked"}'))) == [
        "5xx",
        "locked",
    ]


@pytest.mark.process
@pytest.mark.parametrize("ends", [True, False])
def test_failure_is_told_and_is_the_exit_status(
    ends: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def measured(sandbox: RunningSandbox) -> list[OperationLoad]:
        if not ends:
            raise TimeoutError
        sandbox.log.write_text("sqlite3.OperationalError: database is locked\n", "utf-8")
        good, bad = (Load([0.1], 0.1, Counter(each)) for each in ([], ["5xx"]))
        return [OperationLoad("Save", bad, (good, good), 1), OperationLoad("Delete", good, (good, good), 1)]

    monkeypatch.setattr("benchmarks.sandbox_load.RESULTS", tmp_path / "page.md")
    monkeypatch.setattr("benchmarks.sandbox_load.measure_operations", measured)
    assert main(["sandbox"]) == 1
    printed = capsys.readouterr().err
    if ends:
        assert printed == "Save: 5xx: 1 of 1 requests\nthe sandbox's log: 1 lines of a locked database\n"
        assert "answers of 5xx: 1;" in (tmp_path / "page.md").read_text("utf-8")
    else:
        assert "did not end" in printed
