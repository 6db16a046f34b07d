"""Invalid options of signatures are rejected before anything is sent."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from directsuite.cli.errors import UsageError
from directsuite.cli.sign import SignOptions, make_signatures
from tests.cli.sign.conftest import SignRunner

NOTHING = SignOptions(output=Path("out"))


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"name": ("Ada", "J\udce9")}, "--name number 2"),
        ({"reason": "J\udce9"}, "--reason"),
        ({"signer": "J\udce9"}, "--signer"),
    ],
)
def test_bytes_that_are_not_text_are_rejected_and_not_shown(given: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError, match=f"^{named} is not text in this machine's encoding: set LC_ALL") as refused:
        make_signatures(dataclasses.replace(NOTHING, **given))
    assert str(refused.value).isascii()
    assert refused.value.__context__ is None  # which would allow it


def test_text_of_any_language_is_taken() -> None:
    [signature] = make_signatures(dataclasses.replace(NOTHING, name=("Einwilligung",), reason="同意", signer="José"))
    assert (signature.name, signature.reason, signature.gs_name) == ("Einwilligung", "同意", "José")


@pytest.mark.parametrize("form", [(), ("--dry-run",)], ids=["signing", "dry run"])
async def test_command_ends_before_it_does_anything(sign_runner: SignRunner, form: tuple[str, ...]) -> None:
    sign_runner.write_pdfs("in/a.pdf")
    ended = await sign_runner.sign("in", "--output", "out", "--reason", "J\udce9", *form)
    assert (ended.status, ended.out) == (2, "")
    assert "--reason is not text" in ended.err
    assert await sign_runner.count_requests("Save") == 0
