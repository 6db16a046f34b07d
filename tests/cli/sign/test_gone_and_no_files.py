"""Files that cannot be signed are reported, and the exit status shows it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

import pytest

from directsuite.cli.sign_sources import Admission, Candidate, CandidateVerdict
from directsuite.jobs.signing import SigningEntry
from tests.cli.sign.conftest import PATIENT, SignRunner

SIGNED = ("--output", "out", "--name", PATIENT)


async def test_file_that_goes_away_while_it_waits_is_reported(cli: SignRunner) -> None:
    cli.write_pdfs("in/a.pdf", "in/b.pdf")
    decide = Admission._decide_batch

    def decided(
        self: Admission, some: Sequence[Candidate], known: Mapping[str, SigningEntry]
    ) -> list[CandidateVerdict]:
        verdicts = decide(self, some, known)
        (cli.folder / "in/b.pdf").unlink()
        return verdicts

    with cli.monkeypatch.context() as patch:
        patch.setattr(Admission, "_decide_batch", decided)
        told = await cli.run("in", *SIGNED, "--json")
    assert (told.status, told.document["signed"]) == (1, 1)
    [failed] = told.document["failed"]
    assert (failed["name"], failed["problem"]) == ("b.pdf", "it can't be read (No such file or directory)")
    told = await cli.run("in", *SIGNED)  # the source no longer contains it
    assert (told.status, told.out) == (0, f"0 signed, 1 signed before. Output folder: {cli.folder / 'out'}\n")


@pytest.mark.skipif(sys.platform == "win32", reason="links and pipes are a matter of POSIX")
async def test_special_file_is_reported_and_not_opened(cli: SignRunner) -> None:
    cli.write_pdfs("in/a.pdf")
    os.mkfifo(cli.folder / "in" / "pipe.pdf")
    (cli.folder / "in" / "dangling.PDF").symlink_to("nowhere")
    (cli.folder / "in" / "itself.pdf").symlink_to("itself.pdf")
    told = await cli.run("in", *SIGNED, "--json")
    assert (told.status, told.document["signed"]) == (1, 1)
    refused = sorted(told.document["refused"], key=lambda each: str(each["name"]))
    assert refused == [
        {"name": name, "source": f"in/{name}", "problem": "it is not a file"}
        for name in ("dangling.PDF", "itself.pdf", "pipe.pdf")
    ]
    told = await cli.run("in/a.pdf", "in/pipe.pdf", *SIGNED)
    assert told.status == 1
    assert told.err == "directsuite: Source 2 is not a file. It is not signed.\n"
