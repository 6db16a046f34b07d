"""`directsuite guide`: show the guides that are part of the package."""

from __future__ import annotations

import sys
from difflib import get_close_matches
from pathlib import Path

from rich.console import Console
from rich.markdown import Markdown

from directsuite.cli.options import make_app
from directsuite.cli.output import show_table
from directsuite.cli.process import ExitStatus, echo_err

app = make_app("guide", "", "errors")


_GUIDES_FOLDER = Path(__file__).parents[1] / "guides"


@app.default
def show_guide(topic: str | None = None, /) -> int:
    """Show a guide, or list the guides.

    Parameters
    ----------
    topic: str
        The name of a guide; without it, all guides are listed.
    """
    guides = {file.stem: file.read_text("utf-8") for file in sorted(_GUIDES_FOLDER.glob("*.md"))}
    if topic is None:
        show_table(("topic", "about"), [(name, _get_title(text)) for name, text in guides.items()], no_wrap=("topic",))
    elif topic in guides:
        _show_markdown(guides[topic])
    else:
        echo_err(f"There is no such guide. {_suggest_topic(topic, list(guides))}")
        return ExitStatus.USAGE_ERROR
    return ExitStatus.DONE


def _get_title(text: str) -> str:
    return text.partition("\n")[0].removeprefix("# ")


def _suggest_topic(topic: str, topics: list[str]) -> str:
    near = get_close_matches(topic, topics, n=1)
    return f"Did you mean {near[0]}?" if near else f"The guides are {', '.join(topics)}."


def _show_markdown(text: str) -> None:
    console = Console()
    if not console.is_terminal:
        sys.stdout.write(text)
        return
    with console.pager(styles=True):
        console.print(Markdown(text))
