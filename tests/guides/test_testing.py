"""The tests in the guide `testing` and in README, and the API reference that README's command makes."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import shlex
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

import directsuite as ds
from tests.guides.documents import blocks, text_of
from tests.testing.project import ROOT, Project


@pytest.mark.process
def test_the_examples_pass(tmp_path: Path) -> None:
    project = Project(tmp_path)
    programs = [*blocks("testing"), *(program for program in blocks("README") if program.startswith("# test_"))]
    for program in programs:
        project.write(program.partition("\n")[0].removeprefix("# "), program)
    counts, written = project.run()
    tests = sum(program.count("def test_") for program in programs)
    assert counts == {"passed": tests}, written
    assert tests == 6


def test_the_table_names_every_fixture() -> None:
    plugin = importlib.import_module("directsuite.testing.plugin")
    fixtures = {name for name in vars(plugin) if name.startswith("directsuite_")}
    assert set(re.findall(r"^\| `(\w+)` \|", text_of("testing"), re.MULTILINE)) == fixtures


class Page(HTMLParser):
    """The anchors of a page of the reference, and those with a docstring."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.explained: set[str] = set()
        self._last = ""
        self.feed(file.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag in ("section", "div") and found.get("id"):
            self._last = found["id"] or ""
            self.anchors.add(self._last)
        elif found.get("class") == "docstring":
            self.explained.add(self._last)


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that README's command has made."""
    pytest.importorskip("pdoc", reason="pdoc isn't installed")
    folder = tmp_path_factory.mktemp("reference")
    command = re.search(r"```sh\n(python .*)\n```", text_of("README"))
    assert command is not None
    words = shlex.split(command[1].replace("-o reference", f"-o {folder}"))
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    made = subprocess.run(
        [sys.executable, *words[1:]], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert (made.returncode, made.stderr) == (0, "")
    return folder


@pytest.mark.process
def test_every_public_name_is_in_the_reference(reference: Path) -> None:
    page = Page(reference / "directsuite.html")
    assert set(dir(ds)) - page.anchors == set()


@pytest.mark.process
def test_every_class_and_method_of_the_reference_is_explained(reference: Path) -> None:
    page = Page(reference / "directsuite.html")
    classes = {name: value for name in dir(ds) if inspect.isclass(value := getattr(ds, name))}
    expected = {value.__name__ for value in classes.values()}
    for facade in (ds.DirectSuite, ds.Signing, ds.Fax, ds.Mailbox, ds.TUser, ds.Registration):
        expected |= {f"{facade.__name__}.{name}" for name in dir(facade) if not name.startswith("_")}
    unexplained = expected - page.explained
    assert unexplained == {f"DirectSuite.{name}" for name in ("signing", "fax", "registration")} & unexplained


@pytest.mark.process
def test_the_other_modules_of_the_reference_have_their_names(reference: Path) -> None:
    for file in reference.rglob("*.html"):
        name = ".".join(file.relative_to(reference).with_suffix("").parts)
        if name in ("index", "directsuite"):
            continue
        module = importlib.import_module(name)
        public = set(getattr(module, "__all__", []))
        assert public - Page(file).anchors == set(), name
