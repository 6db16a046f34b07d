"""The private environment in which all clients are measured: one interpreter, one aiohttp, the peers generated into it.

Each step leaves a mark with a fingerprint of what it was made from; a step whose mark fits is not taken again.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TextIO

import attrs

from benchmarks.peers import GENERATED, NAMES
from benchmarks.peers.document import make_document
from benchmarks.peers.generators import GENERATORS, Generator

_ROOT = Path(__file__).resolve().parents[2]
_STEP_TIMEOUT = 600.0  # seconds for one program
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_REPORTED_PACKAGES = (
    *("aiohttp", "attrs", "msgspec", "pybase64", "httpx", "pydantic"),
    *("openapi-generator-cli", "openapi-python-client"),
)
_ADD_PATH_SCRIPT = (
    "import pathlib, sys, sysconfig\n"
    "pathlib.Path(sysconfig.get_paths()['purelib'], 'benchmarks.pth').write_text(sys.argv[1], encoding='utf-8')\n"
)
_VERSIONS_SCRIPT = (
    "import json, platform, sys\n"
    "from importlib.metadata import PackageNotFoundError, version\n"
    "found = {'python': platform.python_version()}\n"
    "for name in sys.argv[1:]:\n"
    "    try:\n"
    "        found[name] = version(name)\n"
    "    except PackageNotFoundError:\n"
    "        pass\n"
    "print(json.dumps(found))\n"
)


@attrs.frozen(kw_only=True)
class PreparedPeers:
    """What there is to measure. python: the interpreter of processes that measure.

    available: for each client None, or the reason why it is left out. versions: of Python, packages and generators.
    """

    python: Path
    available: Mapping[str, str | None]
    versions: Mapping[str, str]


class _StepError(Exception):
    """A step could not be taken; its text says which, in words for a report."""


def prepare(folder: Path) -> PreparedPeers:
    """As `benchmarks.peers.prepare`."""
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    described = json.dumps(make_document(), indent=1)
    (folder / "openapi.json").write_text(described, encoding="utf-8")
    with (folder / "prepare.log").open("w", encoding="utf-8") as log:
        environment = _Environment(folder, log)
        available: dict[str, str | None] = dict.fromkeys(NAMES)
        try:
            environment.make(described)
        except _StepError as error:
            available.update(dict.fromkeys(GENERATED, str(error)))
            return PreparedPeers(
                python=Path(sys.executable), available=available, versions=_read_versions(Path(sys.executable))
            )
        for generator in GENERATORS:
            try:
                environment.add(generator)
            except _StepError as error:
                available[generator.name] = str(error)
    return PreparedPeers(python=environment.python, available=available, versions=_read_versions(environment.python))


class _Environment:
    """A virtual environment in a folder, and the generated projects beside it. log: what the programs print."""

    def __init__(self, folder: Path, log: TextIO) -> None:
        self._folder = folder
        self._log = log
        self._venv = folder / "venv"
        self._programs = self._venv / ("Scripts" if sys.platform == "win32" else "bin")
        self._pins = folder / "pins.txt"
        self.python = self._programs / "python"

    def make(self, described: str) -> None:
        """The environment, with all that directsuite needs in the versions that are installed here.

        A new one for every document: a generated client has the same version whatever it was generated from.
        """
        pins = "".join(f"{name}=={version}\n" for name, version in sorted(_list_installed().items()))
        fingerprint = _compute_fingerprint(sys.version, pins, str(_ROOT), described)
        if self._is_done("venv", fingerprint):
            return
        shutil.rmtree(self._venv, ignore_errors=True)
        for mark in self._folder.glob("*.done"):
            mark.unlink()
        self._pins.write_text(pins, encoding="utf-8")
        self._run("a virtual environment could not be made", [sys.executable, "-m", "venv", str(self._venv)])
        self._install("directsuite's own requirements", ["--requirement", str(self._pins)])
        self._run(
            "a virtual environment could not be written to", [str(self.python), "-c", _ADD_PATH_SCRIPT, str(_ROOT)]
        )
        self._record_done("venv", fingerprint)

    def add(self, generator: Generator) -> None:
        """Generate a client, and install it with its dependencies."""
        if generator.needs is not None and shutil.which(generator.needs) is None:
            raise _StepError(f"its generator needs {generator.needs}, which is not installed")
        output = self._folder / generator.name
        command = generator.command(self._programs, self._folder / "openapi.json", output)
        fingerprint = _compute_fingerprint(generator.requirement, *command)
        if self._is_done(generator.name, fingerprint):
            return
        self._install("its generator", [generator.requirement])
        shutil.rmtree(output, ignore_errors=True)
        self._run("its generator failed", command)
        self._install("the generated client", [str(output)])
        self._run("the generated client can't be imported", [str(self.python), "-c", f"import {generator.package}"])
        self._record_done(generator.name, fingerprint)

    def _install(self, what: str, arguments: Sequence[str]) -> None:
        pip = [str(self.python), "-m", "pip", "install", "--quiet", "--constraint", str(self._pins)]
        self._run(f"{what} could not be installed", [*pip, *arguments])

    def _run(self, failure: str, command: Sequence[str]) -> None:
        """Run a program. _StepError with the words of `failure` where that can't be done."""
        self._log.flush()
        try:
            subprocess.run(  # noqa: S603 (our own arguments)
                command, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log, check=True, timeout=_STEP_TIMEOUT
            )
        except (OSError, subprocess.SubprocessError) as error:
            self._log.write(f"{type(error).__name__}: {error}\n")
            raise _StepError(failure) from error

    def _is_done(self, step: str, fingerprint: str) -> bool:
        mark = self._folder / f"{step}.done"
        return mark.is_file() and mark.read_text(encoding="ascii") == fingerprint

    def _record_done(self, step: str, fingerprint: str) -> None:
        (self._folder / f"{step}.done").write_text(fingerprint, encoding="ascii")


def _compute_fingerprint(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _list_installed() -> dict[str, str]:
    """Directsuite's requirements and theirs, with the versions that are installed here."""
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found: dict[str, str] = {}
    waiting: list[str] = list(_parse_names(project["dependencies"]))
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        try:
            installed = distribution(name)
        except PackageNotFoundError:
            continue  # for other platforms or versions of Python
        found[name] = installed.version
        waiting.extend(_parse_names(installed.requires or ()))
    return found


def _parse_names(requirements: Sequence[str]) -> Iterator[str]:
    for requirement in requirements:
        name = _NAME.match(requirement)
        if name is not None and "extra ==" not in requirement:
            yield re.sub(r"[-_.]+", "-", name[0]).lower()


def _read_versions(python: Path) -> dict[str, str]:
    """Of Python and of those of the packages that the environment has."""
    command = [str(python), "-c", _VERSIONS_SCRIPT, *_REPORTED_PACKAGES]
    told = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 (our own arguments)
    versions: dict[str, str] = json.loads(told.stdout)
    return versions
