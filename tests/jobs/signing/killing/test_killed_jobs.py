"""A job is killed every few seconds: each output has exactly the requested signatures, as pdfsig counts them.

The journal and the outputs agree, and each stored document had at most one signing request.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from directsuite.jobs.signing import DocumentState
from tests.jobs.signing.killing.experiment import sign_despite_kills

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("without_coverage")]


@pytest.mark.skipif(shutil.which("pdfsig") is None, reason="pdfsig (poppler-utils) is not installed")
@pytest.mark.parametrize(
    ("documents", "seconds"), [(15, (0.2, 0.8)), pytest.param(2_000, (2.0, 6.0), marks=pytest.mark.slow)]
)
async def test_each_output_verifies_and_agrees_with_the_journal(
    documents: int, seconds: tuple[float, float], tmp_path: Path
) -> None:
    found = await sign_despite_kills(documents, seconds, tmp_path)
    assert found.kills > 0
    assert found.states == {DocumentState.DONE: documents}
    assert found.outputs == found.as_noted == documents
    assert (found.signatures, found.invalid) == ({2: documents}, 0)
    assert set(found.asked) == {1}
    assert found.asked[1] <= documents + found.perhaps_signed
    assert found.saved >= documents + found.abandoned
