"""`directsuite guide`: show the guides that are part of the package."""

from __future__ import annotations

import os
import sys
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.markdown import Markdown

from directsuite.cli.errors import UsageError
from directsuite.cli.options import make_app
from directsuite.cli.output import show_table

app = make_app("guide", "", "errors")
app.usage = "directsuite guide [TOPIC]"

_GUIDES_FOLDER = Path(__file__).parents[1] / "guides"


@app.default
def show_guide(
    topic: Annotated[str | None, Parameter(help="The name of a guide; without it, all guides are listed.")] = None, /
) -> None:
    """Show a guide, or list the guides."""
    guides = {file.stem: file.read_text("utf-8") for file in sorted(_GUIDES_FOLDER.glob("*.md"))}
    console = Console()
    if topic is None:
        rows = [(name, text.partition("\n")[0].removeprefix("# ")) for name, text in guides.items()]
        show_table(("topic", "about"), rows, no_wrap=("topic",))
    elif topic not in guides:
        near = get_close_matches(topic, guides, n=1)
        hint = f"Did you mean {near[0]}?" if near else f"The guides are {', '.join(guides)}."
        raise UsageError(f"There is no such guide. {hint}")
    elif console.is_terminal:
        os.environ.setdefault("LESS", "FRX")  # as git does: without R, less shows the codes of colours as text
        with console.pager(styles=True):
            console.print(Markdown(guides[topic]))
    else:
        sys.stdout.write(guides[topic])
