"""The Python blocks of README and of the guides as typed programs: mypy and pyright, both strict, read each of them."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.guides.documents import DOCUMENTS, ROOT, find_code_blocks

pytestmark = pytest.mark.process

LEFT_TO_THE_READER = {"fetch_token": "async def fetch_token() -> str: return ''", "password": "password = ''"}
"""Names that a block uses without defining them, with the types that the text gives."""

WAITING = "async def example() -> None:\n"


def program_of(block: str) -> str:
    tree = ast.parse(block)
    defined = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    defined |= {node.id for node in names if isinstance(node.ctx, ast.Store)}
    free = {node.id for node in names} - defined
    before = "".join(f"{line}\n" for name, line in LEFT_TO_THE_READER.items() if name in free)
    if any(isinstance(node, ast.AsyncWith | ast.AsyncFor) for node in tree.body):
        before = f"# pyright: reportUnusedVariable=false\n{before}"  # they are for the reader's own code
        block = WAITING + textwrap.indent(block, "    ")
    return before + block


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with every Python block, named by its first line, or by document and number."""
    folder = tmp_path_factory.mktemp("guides")
    for document in DOCUMENTS:
        for number, block in enumerate(find_code_blocks(document)):
            named = re.match(r"# (\w+\.py)\n", block)
            file = folder / (named[1] if named else f"{document.replace('-', '_')}_{number}.py")
            assert not file.exists(), f"two blocks are named {file.name}"
            file.write_text(program_of(block), "utf-8")
    assert len(list(folder.iterdir())) > 25
    return folder


@pytest.mark.parametrize(
    "checker", [["mypy", "--strict"], ["pyright", "--pythonpath", sys.executable]], ids=lambda words: words[0]
)
def test_every_block_is_typed(checker: list[str], programs: Path) -> None:
    (programs / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict"}', "utf-8")
    environment = os.environ | {"MYPY_CACHE_DIR": str(ROOT / ".mypy_cache" / "guides")}
    ran = subprocess.run(
        [sys.executable, "-m", *checker, "."],
        cwd=programs,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout
