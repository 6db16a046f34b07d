"""The environment in which all clients are measured: one interpreter, one aiohttp, and the generated clients."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs
import cattrs

from benchmarks.peers import GENERATED, openapi_generator, openapi_python_client
from benchmarks.processes import ROOT
from directsuite.sandbox.server import load_openapi_document

_STEP_TIMEOUT = 600.0
_GENERATORS = {
    "openapi-generator": ("openapi-generator-cli>=7.20", openapi_generator.PACKAGE),
    "openapi-python-client": ("openapi-python-client>=0.29", openapi_python_client.PACKAGE),
}
_SHOWN = ("aiohttp", "attrs", "msgspec", "pybase64", "httpx", "pydantic")
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
    document = json.dumps(make_document(), indent=1)
    pins = {each.name: each.version for each in importlib.metadata.distributions() if each.name != "directsuite"}
    fingerprint = hashlib.sha256(repr((sys.version, ROOT, document, sorted(pins.items()), _GENERATORS)).encode())
    prepared = folder / f"{fingerprint.hexdigest()}.json"
    if prepared.exists():
        return cattrs.structure(json.loads(prepared.read_text("utf-8")), PreparedPeers)
    (folder / "openapi.json").write_text(document, "utf-8")
    (folder / "pins.txt").write_text("".join(f"{name}=={version}\n" for name, version in pins.items()), "utf-8")
    (folder / "prepare.log").unlink(missing_ok=True)
    shutil.rmtree(folder / "venv", ignore_errors=True)
    python, missing = str(folder / "venv" / "bin" / "python"), dict[str, str]()
    try:
        run_step(folder, "The environment could not be created.", sys.executable, "-m", "venv", str(folder / "venv"))
        _install(folder, "The requirements could not be installed.", "--editable", str(ROOT))
    except _StepError as error:
        missing, python = dict.fromkeys(GENERATED, str(error)), sys.executable
    for name in GENERATED if not missing else ():
        try:
            _add(folder, name)
        except _StepError as error:
            missing[name] = str(error)
    installed = json.loads(subprocess.check_output([python, "-c", _SHOW_VERSIONS]))  # noqa: S603
    versions = {name: installed[name] for name in (*_SHOWN, "openapi-generator-cli", *GENERATED) if name in installed}
    result = PreparedPeers(python=python, missing=missing, versions={"python": platform.python_version(), **versions})
    if not missing:
        prepared.write_text(json.dumps(attrs.asdict(result)), "utf-8")
    return result


def _add(folder: Path, name: str) -> None:
    """Generate and install a client."""
    output, programs, document = str(folder / name), folder / "venv" / "bin", str(folder / "openapi.json")
    requirement, package = _GENERATORS[name]
    if name == "openapi-generator":
        if shutil.which("java") is None:
            raise _StepError("Its generator needs Java, which is not installed.")
        options = ["--generator-name", "python", "--library", "asyncio", "--package-name", package]
        command = ["openapi-generator-cli", "generate", *options, "--input-spec", document, "--output", output]
    else:
        names = {"package_name_override": package, "project_name_override": package.replace("_", "-")}
        (configuration := folder / f"{name}.json").write_text(json.dumps({**names, "post_hooks": []}), "utf-8")
        options = ["--meta", "setup", "--overwrite", "--config", str(configuration)]
        command = ["openapi-python-client", "generate", *options, "--path", document, "--output-path", output]
    _install(folder, "Its generator could not be installed.", requirement)
    shutil.rmtree(output, ignore_errors=True)
    run_step(folder, "Its generator failed.", str(programs / command[0]), *command[1:])
    _install(folder, "The generated client could not be installed.", output)
    run_step(folder, "The generated client cannot be imported.", str(programs / "python"), "-c", f"import {package}")


def _install(folder: Path, failure: str, *arguments: str) -> None:
    pip = str(folder / "venv" / "bin" / "python"), "-m", "pip", "install", "--quiet"
    run_step(folder, failure, *pip, "--constraint", str(folder / "pins.txt"), *arguments)


def run_step(folder: Path, failure: str, *command: str) -> None:
    """Run a program, with its output in prepare.log. Raise _StepError with the text `failure` if it fails."""
    with (folder / "prepare.log").open("a", encoding="utf-8") as log:
        try:
            subprocess.run(command, stdout=log, stderr=log, check=True, timeout=_STEP_TIMEOUT)  # noqa: S603
        except (OSError, subprocess.SubprocessError) as error:
            log.write(f"{type(error).__name__}: {error}\n")
            raise _StepError(failure) from error
