"""The generators: where they come from, what they need, and how they are told what to make."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import attrs

from benchmarks.peers import openapi_generator, openapi_python_client


@attrs.frozen(kw_only=True)
class Generator:
    """One generator. requirement: its Python package. needs: a program of another kind that it runs.

    command: the arguments that make `output` from `document`, with the programs of an environment in `programs`.
    """

    name: str
    requirement: str
    package: str
    command: Callable[[Path, Path, Path], list[str]]
    needs: str | None = None


def _openapi_generator(programs: Path, document: Path, output: Path) -> list[str]:
    return [
        *(str(programs / "openapi-generator-cli"), "generate", "--generator-name", "python", "--library", "asyncio"),
        *("--input-spec", str(document), "--output", str(output), "--package-name", openapi_generator.PACKAGE),
    ]


def _openapi_python_client(programs: Path, document: Path, output: Path) -> list[str]:
    """Its package's name has no option; it stands in a configuration file."""
    configuration = document.with_name(f"{output.name}.json")
    names: dict[str, str | list[str]] = {
        "project_name_override": openapi_python_client.PACKAGE.replace("_", "-"),
        "package_name_override": openapi_python_client.PACKAGE,
        "post_hooks": [],  # they only format what was made
    }
    configuration.write_text(json.dumps(names), encoding="utf-8")
    return [
        *(str(programs / "openapi-python-client"), "generate", "--meta", "setup", "--overwrite"),
        *("--path", str(document), "--output-path", str(output), "--config", str(configuration)),
    ]


GENERATORS = (
    Generator(
        name="openapi-generator",
        requirement="openapi-generator-cli>=7.20",
        package=openapi_generator.PACKAGE,
        command=_openapi_generator,
        needs="java",
    ),
    Generator(
        name="openapi-python-client",
        requirement="openapi-python-client>=0.29",
        package=openapi_python_client.PACKAGE,
        command=_openapi_python_client,
    ),
)
