"""The commands below `directsuite fax`, and their options."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter
from cyclopts.validators import Number

from directsuite.cli.options import COMMANDS, EPILOGUE, SERVICES, Json, TokenFile

app = App(
    name="fax",
    help="Tell how faxes stand: list, show.",
    help_epilogue=EPILOGUE,
    group_commands=COMMANDS,
    result_action="return_value",
    group=SERVICES,
    sort_key=2,
)


@app.command(name="list", sort_key=1)
def list_(
    number: str,
    /,
    *,
    limit: Annotated[int, Parameter(validator=Number(gte=1))] = 50,
    token_file: TokenFile = None,
    json: Json = False,
) -> int:
    """List the faxes of a number, newest first.

    Parameters
    ----------
    number: str
        Your fax number, as the service knows it.
    limit: int
        How many at the most.
    """
    from directsuite.cli.fax.showing import Asked, list_faxes

    return list_faxes(Asked(number=number, limit=limit, token_file=token_file, as_json=json))


@app.command(sort_key=2)
def show(
    number: str,
    handle: str,
    /,
    *,
    token_file: TokenFile = None,
    json: Json = False,
) -> int:
    """Show one fax with its recipients.

    Parameters
    ----------
    number: str
        Your fax number, as the service knows it.
    handle: str
        The fax's handle, as `fax list` tells it.
    """
    from directsuite.cli.fax.showing import Asked, show_fax

    return show_fax(Asked(number=number, handle=handle, token_file=token_file, as_json=json))
