"""The site of README, the guides and the API reference, as HTML: `python .pdoc/build.py FOLDER`.

    index.html          README; changelog.html is CHANGELOG
    guides/*.html       a page per guide
    directsuite/*.html  the names of directsuite and directsuite.types, a page per subpackage that they come from, and
                        the other public modules

pdoc renders every page. A page is a module to pdoc, so that a guide is a module with a docstring and nothing else.
"""

from __future__ import annotations

import importlib
import inspect
import re
import shutil
import sys
import warnings
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import get_type_hints

import attrs
import pdoc.doc
import pdoc.render

import directsuite
import directsuite.types
from directsuite.wire.models import Model

HERE = Path(__file__).parent
GUIDES = HERE.parent / "directsuite" / "guides"
MODULES = (
    "directsuite.sync",
    "directsuite.sync.fleet",
    "directsuite.sync.postgres",
    "directsuite.sync.shared_limits",
    "directsuite.jobs.delivery",
    "directsuite.jobs.signing",
    "directsuite.sandbox",
    "directsuite.testing",
)
"""The public modules beside `directsuite` and `directsuite.types`, whose names stand on a page per subpackage."""


def main(folder: Path) -> None:
    """Writes the site into the folder."""
    pages = {page.__name__: page for page in (*texts(), *subpackages())}
    pages |= {name: importlib.import_module(name) for name in MODULES}
    for page in pages.values():
        hide_wire_annotations(page)
    modules = {name: pdoc.doc.Module(page) for name, page in pages.items()}
    homes = {name: page for page, module in pages.items() if page not in MODULES for name in module.__all__}
    pdoc.render.configure(template_directory=HERE, show_source=False, docformat="markdown")
    for name, module in modules.items():
        file = folder.joinpath(*name.split(".")).with_suffix(".html")
        file.parent.mkdir(parents=True, exist_ok=True)
        text = pdoc.render.html_module(module=module, all_modules=modules)
        file.write_text(linked(text, homes, "../" * name.count(".")), "utf-8")
    for picture in (*GUIDES.glob("*.svg"), *GUIDES.glob("*.png")):
        shutil.copy(picture, folder / "guides")
    (folder / "search.js").write_text(pdoc.render.search_index(modules), "utf-8")


def page_of(name: str, text: str | None, names: dict[str, object] | None = None) -> ModuleType:
    """A page with a text and the names that it explains, in the order of the alphabet."""
    page = ModuleType(name, text)
    vars(page).update(names or {}, __all__=sorted(names or {}))
    return page


def texts() -> Iterator[ModuleType]:
    """The pages of README, CHANGELOG and the guides, with their links to one another."""
    root = HERE.parent
    files = {"index": root / "README.md", "changelog": root / "CHANGELOG.md"}
    files |= {f"guides.{file.stem}": file for file in sorted(GUIDES.glob("*.md"))}
    for name, file in files.items():
        text = re.sub(r"\((?:directsuite/(guides/))?([\w-]+)\.md([#)])", r"(\1\2.html\3", file.read_text("utf-8"))
        text = text.replace("(CHANGELOG.html", "(changelog.html").replace("(directsuite/guides/", "(guides/")
        yield page_of(name, text)


def subpackages() -> list[ModuleType]:
    """The names of `directsuite` and `directsuite.types`, on a page per subpackage or module that they come from."""
    found: defaultdict[str, dict[str, object]] = defaultdict(dict)
    for source in (directsuite.types, directsuite):
        for name in vars(source)["__all__"]:
            value = getattr(source, name)
            home = getattr(value, "__module__", "")  # of a type alias, it is the module typing
            if not home.startswith("directsuite."):
                home = vars(directsuite)["_MODULES"].get(name, "directsuite.types")
            if name != "__version__":
                found[".".join(home.split(".")[:2])][name] = value
    return [page_of(name, importlib.import_module(name).__doc__, names) for name, names in sorted(found.items())]


def hide_wire_annotations(page: ModuleType) -> None:
    """Annotates the models of a page with their types alone, without the names that fields have on the wire."""
    for model in vars(page).values():
        if inspect.isclass(model) and issubclass(model, Model):
            hints = get_type_hints(model)
            plain = {field.name: hints[field.name] for field in attrs.fields(model)}
            for annotated in model.__mro__[:-1]:
                annotated.__annotations__.update(
                    {name: plain[name] for name in annotated.__annotations__.keys() & plain}
                )
            # A field with a converter takes other types, which attrs has annotated.
            taken = model.__init__.__annotations__
            converted = {field.name for field in attrs.fields(model) if field.converter is not None}
            taken.update({name: plain[name] for name in (taken.keys() & plain) - converted})


def linked(text: str, homes: dict[str, str], root: str) -> str:
    """A page on which names that programs import from `directsuite` are called so, and `ds.Name` is a link."""

    def link(found: re.Match[str]) -> str:
        page = homes.get(found["name"])
        anchor = found["name"] + (found["member"] or "")
        return f'<a href="{root}{page.replace(".", "/")}.html#{anchor}">{found[0]}</a>' if page else found[0]

    text = re.sub(r"directsuite(?:\.\w+)+\.(\w+)(?=[<.(])", lambda m: m[1] if m[1] in homes else m[0], text)
    return re.sub(r"(?<=<code>)ds\.(?P<name>\w+)(?P<member>\.\w+)?(?=(\(\))?</code>)", link, text)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(Path(sys.argv[1]))
