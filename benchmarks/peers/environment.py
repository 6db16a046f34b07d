"""The environment in which all clients are measured: one interpreter, one aiohttp, and the generated clients."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import cattrs
from packaging.requirements import Requirement

from benchmarks.peers import GENERATED, openapi_generator, openapi_python_client
from benchmarks.processes import ROOT
from directsuite.sandbox.server import load_openapi_document

_STEP_TIMEOUT = 600.0
_GENERATORS = {
    "openapi-generator": ("openapi-generator-cli>=7.20", openapi_generator.PACKAGE),
    "openapi-python-client": ("openapi-python-client>=0.29", openapi_python_client.PACKAGE),
}
_SHOWN = ("aiohttp", "attrs", "msgspec", "pybase64", "httpx", "pydantic")
_ADD_PATH = """
import pathlib, sys, sysconfig
pathlib.Path(sysconfig.get_path("purelib"), "benchmarks.pth").write_text(sys.argv[1])
"""
_SHOW_VERSIONS = """
import json
from importlib.metadata import distributions
print(json.dumps({each.name: each.version for each in distributions()}))
"""


@attrs.frozen(kw_only=True)
class PreparedPeers:
    """The interpreter in which clients are measured, and versions. missing: clients, with the reason."""

    python: str
    missing: dict[str, str]
    versions: dict[str, str]


class _StepError(Exception):
    """A program failed. The text is for the report; prepare.log has the output of the program."""


def make_document() -> dict[str, Any]:
    """Return our OpenAPI document with dates of one format.

    openapi-generator makes a slow class of two alternative formats. All clients return datetime in both cases.
    """
    document = load_openapi_document()
    schemas: dict[str, Any] = document["components"]["schemas"]
    for name in ("Timestamp", "Date"):
        schemas[name] = {"type": "string", "format": "date-time", "description": schemas[name]["description"]}
    return document


def prepare(folder: Path) -> PreparedPeers:
    """Generate and install the clients in a folder, or return a complete earlier result for the same input.

    A client that cannot be generated here, for instance without Java or a network, is missing.
    """
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    document, pins = json.dumps(make_document(), indent=1), list_pins()
    fingerprint = hashlib.sha256(repr((sys.version, ROOT, document, pins, _GENERATORS)).encode()).hexdigest()
    prepared = folder / f"{fingerprint}.json"
    if prepared.exists():
        return cattrs.structure(json.loads(prepared.read_text("utf-8")), PreparedPeers)
    (folder / "openapi.json").write_text(document, "utf-8")
    (folder / "pins.txt").write_text("".join(f"{pin}\n" for pin in pins), "utf-8")
    (folder / "prepare.log").unlink(missing_ok=True)
    python, missing = folder / "venv" / "bin" / "python", dict[str, str]()
    try:
        shutil.rmtree(folder / "venv", ignore_errors=True)
        run_step(folder, "The environment could not be created.", [sys.executable, "-m", "venv", str(folder / "venv")])
        _install(folder, "The requirements could not be installed.", "--requirement", str(folder / "pins.txt"))
        run_step(folder, "The environment cannot be used.", [str(python), "-c", _ADD_PATH, str(ROOT)])
    except _StepError as error:
        missing, python = {name: str(error) for name in GENERATED}, Path(sys.executable)
    for name in GENERATED if not missing else ():
        try:
            _add(folder, name)
        except _StepError as error:
            missing[name] = str(error)
    installed = json.loads(subprocess.check_output([str(python), "-c", _SHOW_VERSIONS]))  # noqa: S603
    versions = {
        "python": platform.python_version(),
        **{n: installed[n] for n in (*_SHOWN, "openapi-generator-cli", *GENERATED) if n in installed},
    }
    result = PreparedPeers(python=str(python), missing=missing, versions=versions)
    if not missing:
        prepared.write_text(json.dumps(attrs.asdict(result)), "utf-8")
    return result


def _add(folder: Path, name: str) -> None:
    """Generate and install a client."""
    output, programs, document = folder / name, folder / "venv" / "bin", str(folder / "openapi.json")
    requirement, package = _GENERATORS[name]
    if name == "openapi-generator":
        if shutil.which("java") is None:
            raise _StepError("Its generator needs Java, which is not installed.")
        command = [str(programs / "openapi-generator-cli"), "generate", "--generator-name", "python"]
        command += ["--library", "asyncio", "--input-spec", document, "--output", str(output)]
        command += ["--package-name", package]
    else:
        names: dict[str, str | list[str]] = {"package_name_override": package, "post_hooks": []}
        names["project_name_override"] = package.replace("_", "-")
        (configuration := folder / f"{name}.json").write_text(json.dumps(names), "utf-8")
        command = [str(programs / "openapi-python-client"), "generate", "--meta", "setup", "--overwrite"]
        command += ["--path", document, "--output-path", str(output), "--config", str(configuration)]
    _install(folder, "Its generator could not be installed.", requirement)
    shutil.rmtree(output, ignore_errors=True)
    run_step(folder, "Its generator failed.", command)
    _install(folder, "The generated client could not be installed.", str(output))
    run_step(folder, "The generated client cannot be imported.", [str(programs / "python"), "-c", f"import {package}"])


def _install(folder: Path, failure: str, *arguments: str) -> None:
    pip = [str(folder / "venv" / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    run_step(folder, failure, [*pip, "--constraint", str(folder / "pins.txt"), *arguments])


def run_step(folder: Path, failure: str, command: Sequence[str]) -> None:
    """Run a program, with its output in prepare.log. Raise _StepError with the text `failure` if it fails."""
    with (folder / "prepare.log").open("a", encoding="utf-8") as log:
        try:
            subprocess.run(command, stdout=log, stderr=log, check=True, timeout=_STEP_TIMEOUT)  # noqa: S603
        except (OSError, subprocess.SubprocessError) as error:
            log.write(f"{type(error).__name__}: {error}\n")
            raise _StepError(failure) from error


def list_pins() -> list[str]:
    """Return all requirements of directsuite, direct and indirect, with the versions that are installed here."""
    found, waiting = dict[str, str](), ["directsuite"]
    while waiting:
        distribution = importlib.metadata.distribution(waiting.pop())
        if distribution.name not in found:
            found[distribution.name] = distribution.version
            needed = [Requirement(text) for text in distribution.requires or ()]
            waiting += [each.name for each in needed if not each.marker or each.marker.evaluate({"extra": ""})]
    return sorted(f"{name}=={version}" for name, version in found.items() if name != "directsuite")
