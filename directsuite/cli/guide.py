"""`directsuite guide`: show the guides that are part of the package."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.markdown import Markdown

from directsuite.cli.errors import UsageError, with_value
from directsuite.cli.options import make_app
from directsuite.cli.output import show_table
from directsuite.core.similar import find_similar

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
        hint = "".join(f" Did you mean {each}?" for each in find_similar(topic, guides))
        raise UsageError(f"{with_value('There is no such guide', topic)}.{hint} The guides are {', '.join(guides)}.")
    elif console.is_terminal:
        os.environ.setdefault("LESS", "FRX")  # as git does: without R, less shows the codes of colours as text
        with console.pager(styles=True):
            console.print(Markdown(guides[topic]))
    else:
        sys.stdout.write(guides[topic])
