"""The site that README's last command builds: README, the guides and the API reference."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import attrs
import pytest
from justhtml import JustHTML

import directsuite as ds
import directsuite.types
from tests.testing.project import ROOT

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("without_coverage")]


@attrs.frozen
class Page:
    """A page of the site: its anchors, those with a documentation, and the targets of its links and pictures."""

    anchors: set[str]
    explained: set[str]
    links: set[str]
    pictures: set[str]

    @classmethod
    def read(cls, file: Path) -> Page:
        page = JustHTML(file.read_text("utf-8"), sanitize=False)

        def find(selector: str, name: str) -> set[str]:
            return {str((node.attrs or {})[name]) for node in page.query(selector)}

        explained = {str((node.parent.attrs or {}).get("id")) for node in page.query(".docstring") if node.parent}
        pictures = {source for source in find("img", "src") if not source.startswith("data:")}
        return cls(find("[id]", "id"), explained, find("a[href]", "href"), pictures)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Page]:
    folder = tmp_path_factory.mktemp("reference")
    command = [sys.executable, ".pdoc/build.py", str(folder)]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (made.returncode, made.stderr) == (0, "")
    pages = {file.relative_to(folder): Page.read(file) for file in folder.rglob("*.html")}
    pictures = [folder / path.parent / picture for path, page in pages.items() for picture in page.pictures]
    assert all(picture.is_file() for picture in pictures)
    return pages


def test_every_guide_has_a_page(site: dict[Path, Page]) -> None:
    guides = {file.stem for file in (ROOT / "directsuite" / "guides").glob("*.md")}
    assert guides == {path.stem for path in site if path.parts[0] == "guides"}


def test_every_public_name_has_one_place(site: dict[Path, Page]) -> None:
    public = set(dir(ds)) | set(vars(directsuite.types)["__all__"]) - {"__version__"}
    found = [anchor for page in site.values() for anchor in page.anchors & public]
    assert public - set(found) == {"__version__"}


def test_other_modules_have_their_names(site: dict[Path, Page]) -> None:
    modules = {".".join(path.with_suffix("").parts) for path in site if path.parts[0] == "directsuite"}
    for name in modules - {"directsuite.types"}:
        module = importlib.import_module(name)
        public = set(getattr(module, "__all__", []))
        assert public - site[Path(*name.split(".")).with_suffix(".html")].anchors == set(), name


def test_every_class_and_method_is_explained(site: dict[Path, Page]) -> None:
    expected = {value.__name__ for name in dir(ds) if inspect.isclass(value := getattr(ds, name))}
    for facade in (ds.DirectSuite, ds.Signing, ds.Fax, ds.Mailbox, ds.TUser, ds.Registration):
        expected |= {f"{facade.__name__}.{name}" for name in dir(facade) if not name.startswith("_")}
    unexplained = expected - {name for page in site.values() for name in page.explained}
    assert unexplained == {f"DirectSuite.{name}" for name in ("signing", "fax", "registration")} & unexplained


def test_every_link_leads_somewhere(site: dict[Path, Page]) -> None:
    lost: list[str] = []
    for path, page in site.items():
        for link in map(urlsplit, page.links):
            target = Path(*(path.parent / link.path).parts) if link.path else path
            parts: list[str] = []
            for part in target.parts:
                parts = parts[:-1] if part == ".." else [*parts, part]
            found = site.get(Path(*parts))
            if not link.scheme and (found is None or unquote(link.fragment) not in {"", *found.anchors}):
                lost.append(f"{path}: {link.geturl()}")
    assert lost == []
