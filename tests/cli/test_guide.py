"""`directsuite guide`: the list, a guide as text, and an unknown topic."""

from __future__ import annotations

import os

import pytest

from directsuite.cli import main
from directsuite.cli.process import ExitStatus
from tests.guides.documents import DOCUMENTS, read_document

GUIDES = sorted({*DOCUMENTS} - {"README"})


def test_without_a_topic_all_guides_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["guide"]) == ExitStatus.DONE
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["topic", *GUIDES]


def test_guide_is_printed_as_it_stands_where_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["guide", "errors"]) == ExitStatus.DONE
    assert capsys.readouterr().out == read_document("errors")


@pytest.mark.parametrize(
    ("topic", "sentence"), [("eror", "Did you mean errors?"), ("zzz", "The guides are contributing")]
)
def test_topic_that_there_is_not_says_which_there_are(
    topic: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["guide", topic]) == ExitStatus.USAGE_ERROR
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize(("options", "used"), [(None, "FRX"), ("i", "i")])
def test_terminal_gets_it_drawn_and_paged(options: str | None, used: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = list[tuple[str, str | None]]()

    def show(_: object, content: str) -> None:
        shown.append((content, os.environ.get("LESS")))

    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("LESS", options or "")
    if options is None:
        monkeypatch.delenv("LESS")
    monkeypatch.setattr("rich.pager.SystemPager.show", show)
    assert main(["guide", "faxes"]) == ExitStatus.DONE
    ((text, less),) = shown
    assert "Following faxes" in text
    assert "```" not in text
    assert less == used
