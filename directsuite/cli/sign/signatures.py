"""The signatures that the options ask for. Raises RefusedError, which names the option."""

from __future__ import annotations

import math
import re
import zoneinfo
from collections.abc import Sequence
from pathlib import Path

import attrs

from directsuite.cli.errors import RefusedError, refuse_no_text
from directsuite.core.failures import reason_of
from directsuite.signing.models import Signature, Widget

_IMAGES = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff")
_LARGEST_IMAGE = 1_000_000  # bytes: it goes with each signature, and such providers ask for bodies below a megabyte
_WHOLE = re.compile(r"[0-9]{1,9}")


@attrs.frozen(kw_only=True)
class Wanted:
    """The options of signatures."""

    names: Sequence[str]
    widgets: Sequence[str]
    image: Path | None
    reason: str | None
    signer: str | None
    timezone: str | None


def signatures_of(wanted: Wanted) -> list[Signature]:
    """One for each --name and --widget, which go together in their order; a single one where there are none."""
    for number, name in enumerate(wanted.names, start=1):
        refuse_no_text(name, f"number {number} of --name")
    refuse_no_text(wanted.reason, "--reason")
    refuse_no_text(wanted.signer, "--signer")
    names, widgets = wanted.names, [_widget(text) for text in wanted.widgets]
    if names and widgets and len(names) != len(widgets):
        raise RefusedError(
            f"--name is given {len(names)} times and --widget {len(widgets)} times: give both for each signature, "
            "in the same order"
        )
    if not all(name.strip() for name in names):
        raise RefusedError("a --name is empty: give each signature a name, or leave --name out")
    if len(set(names)) < len(names):
        raise RefusedError("a --name is there twice: give each signature a name of its own")
    count = max(len(names), len(widgets), 1)
    _check_zone(wanted.timezone)
    image = _image(wanted.image)
    return [
        Signature(
            name=names[number] if names else None,
            widget=widgets[number] if widgets else None,
            reason=wanted.reason,
            gs_name=wanted.signer,
            timezone=wanted.timezone,
            graphical_signature=image,
        )
        for number in range(count)
    ]


def _widget(text: str) -> Widget:
    """X,Y,WIDTH,HEIGHT[,PAGE]"""
    parts = [part.strip() for part in text.split(",")]
    refused = RefusedError(
        "a --widget is no place: give X,Y,WIDTH,HEIGHT or X,Y,WIDTH,HEIGHT,PAGE, such as 72,620,200,70,1, "
        "in points from the top left corner of the page"
    )
    if len(parts) not in (4, 5):
        raise refused
    try:
        x, y, width, height = (float(part) for part in parts[:4])
    except ValueError:
        raise refused from None
    if not all(math.isfinite(each) for each in (x, y, width, height)) or x < 0 or y < 0:
        raise refused
    if width <= 0 or height <= 0:
        raise RefusedError("a --widget has no size: its third and fourth numbers, width and height, are above 0")
    page = parts[4] if len(parts) == 5 else "1"
    if _WHOLE.fullmatch(page) is None or int(page) < 1:
        raise RefusedError("the page of a --widget, its fifth number, is a whole one that counts from 1")
    return Widget(x=x, y=y, width=width, height=height, page=int(page))


def _image(file: Path | None) -> bytes | None:
    if file is None:
        return None
    try:
        with file.open("rb") as opened:
            content = opened.read(_LARGEST_IMAGE + 1)
    except OSError as error:
        raise RefusedError(f"the file of --image can't be read ({reason_of(error)}): name a PNG or JPEG file") from None
    if not content.startswith(_IMAGES):
        raise RefusedError("the file of --image is no PNG or JPEG: name one that is")
    if len(content) > _LARGEST_IMAGE:
        raise RefusedError("the file of --image has more than 1 MB, and goes with each signature: make it smaller")
    return content


def _check_zone(name: str | None) -> None:
    if name is None:
        return
    known = zoneinfo.available_timezones()
    if known and name not in known:  # a machine may know none
        raise RefusedError("--timezone is none that there is: give one such as America/New_York or UTC")
