"""`directsuite demo`: use all four services through the client, and check every response."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from directsuite.cli.options import Flag, convert_path, integer_parameter, make_app, record
from directsuite.cli.process import require_extra

app = make_app("demo", "--messages 20 --documents 2", "--messages 20 --documents 2 --keep")


@record
class DemoOptions:
    """Options of `demo`."""

    output: Annotated[Path, Parameter(converter=convert_path)] = Path("demo-output")
    """The folder for the signed PDFs and the messages."""
    json: Annotated[bool, Flag] = False
    """Print the report as one JSON document instead of text."""
    messages: Annotated[int, integer_parameter(gte=1, lte=10_000)] = 300
    """The number of messages to read from a mailbox."""
    documents: Annotated[int, integer_parameter(gte=1, lte=500)] = 12
    """The number of PDFs to sign."""
    faxes: Annotated[int, integer_parameter(gte=1, lte=1_000)] = 35
    """The number of faxes to list."""
    keep: Annotated[bool, Flag] = False
    """Keep the sandbox and its page running afterwards, until Ctrl-C."""


@app.default
def demo(*, options: DemoOptions = DemoOptions()) -> int:
    """Use all four services of a sandbox, and check their effects.

    The demo starts its own sandbox; with --keep, its page stays available afterwards. Exit status 0 means that every
    check passed.
    """
    require_extra("sandbox")
    from directsuite.cli.demo.command import run_demo

    return run_demo(options)
