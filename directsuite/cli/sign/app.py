"""The command `sign`, and its options."""

from __future__ import annotations

from pathlib import Path  # cyclopts reads the annotations when it runs
from typing import Annotated

from cyclopts import Group, Parameter
from cyclopts.validators import Number

from directsuite.cli.options import Flag, Json, Several, TokenFile, named

_LOOK = Group("What a signature is like", sort_key=1)
_HOW = Group("How it goes", sort_key=2)


_Signature = Parameter(group=_LOOK)
_Going = Parameter(group=_HOW)


def sign(
    sources: Annotated[
        tuple[Path, ...], Parameter(consume_multiple=True, negative=(), show_default=False, converter=named)
    ],
    /,
    *,
    output: Annotated[Path, Parameter(converter=named)],
    recursive: Annotated[bool, Flag] = False,
    name: Annotated[tuple[str, ...], Several, _Signature] = (),
    widget: Annotated[tuple[str, ...], Several, _Signature] = (),
    image: Annotated[Path | None, _Signature] = None,
    reason: Annotated[str | None, _Signature] = None,
    signer: Annotated[str | None, _Signature] = None,
    timezone: Annotated[str | None, _Signature] = None,
    dry_run: Annotated[bool, Flag, _Going] = False,
    again: Annotated[bool, Flag, _Going] = False,
    overwrite: Annotated[bool, Flag, _Going] = False,
    at_a_time: Annotated[int, Parameter(validator=Number(gte=1, lte=100)), _Going] = 10,
    patience: Annotated[float, Parameter(validator=Number(gte=0)), _Going] = 120.0,
    token_file: TokenFile = None,
    json: Json = False,
) -> int:
    """Sign PDFs: files or folders in, signed files out.

    Broken off by Ctrl-C, a crash or a service in trouble, it goes on with the same command: what is signed is passed
    over, and nothing is signed twice. For that it keeps a journal beside the output, OUTPUT.signing.db. Exit status 0
    says that all are signed, 1 that some aren't.

    Parameters
    ----------
    sources: tuple[Path, ...]
        PDFs, and folders whose PDFs are meant.
    output: Path
        The folder for the signed files, made where it isn't there. They keep their names.
    recursive: bool
        Take the folders in a folder, too.
    name: tuple[str, ...]
        A signature's name, or that of an empty signature field of the PDFs; as often as there are signatures.
    widget: tuple[str, ...]
        Where a signature stands: X,Y,WIDTH,HEIGHT or X,Y,WIDTH,HEIGHT,PAGE, in points from the top left corner of the
        page; as often as there are signatures. Without it a signature is in the field of its name, or invisible.
    image: Path
        A PNG or JPEG file, which the signatures show.
    reason: str
        Why it is signed.
    signer: str
        Who signs.
    timezone: str
        Of the signer, as in America/New_York.
    dry_run: bool
        Say what would be signed, where to, and what not and why; send nothing.
    again: bool
        Try again what failed, and nothing else.
    overwrite: bool
        Replace files that are in the output already.
    at_a_time: int
        How many PDFs are under way side by side.
    patience: float
        Seconds for which a service in trouble is waited for.
    """
    from directsuite.cli.sign.command import Asked, sign_all

    return sign_all(
        Asked(
            sources=sources,
            output=output,
            recursive=recursive,
            names=name,
            widgets=widget,
            image=image,
            reason=reason,
            signer=signer,
            timezone=timezone,
            dry_run=dry_run,
            again=again,
            overwrite=overwrite,
            at_a_time=at_a_time,
            patience=patience,
            token_file=token_file,
            as_json=json,
        )
    )
