"""Write the Python blocks of README and of the guides as programs, which mypy and pyright then read.

`.ci/check` runs this module before the two.
"""

from __future__ import annotations

import ast
import re
import shutil
import textwrap

from tests.guides.documents import DOCUMENTS, ROOT, find_code_blocks

FOLDER = ROOT / "tests" / "guides" / "code-blocks"
LEFT_TO_THE_READER = {"fetch_token": "async def fetch_token() -> str: return ''", "password": "password = ''"}
"""Names that a block uses without defining them, with the types that the text gives."""

WAITING = "async def example() -> None:\n"


def make_program(block: str) -> str:
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


def main() -> None:
    """Write every Python block, named by its first line, or by document and number."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    for document in DOCUMENTS:
        for number, block in enumerate(find_code_blocks(document)):
            named = re.match(r"# (\w+\.py)\n", block)
            file = FOLDER / (named[1] if named else f"{document.replace('-', '_')}_{number}.py")
            assert not file.exists(), f"two blocks are named {file.name}"
            file.write_text(make_program(block), "utf-8")
    assert len(list(FOLDER.iterdir())) > 25


if __name__ == "__main__":
    main()
