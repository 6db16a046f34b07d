"""Several jobs into one target: none has what another has in the making."""

from __future__ import annotations

from pathlib import Path

from directsuite.jobs.signing import Journal, SigningJob, TargetFolder
from tests.jobs.signing.fragile_service import SIGNATURE
from tests.jobs.signing.jobs import CONTENT, Jobs, pdfs


class SharedFolder(TargetFolder):
    """Lets another job come to its end before it keeps anything."""

    other: SigningJob | None = None

    async def keep(self, name: str, file: Path) -> None:
        """Late."""
        if self.other is not None:
            other, self.other = self.other, None
            await other.run()
        await super().keep(name, file)


async def test_each_output_is_made_of_its_own_source(jobs: Jobs, tmp_path: Path) -> None:
    one, other = CONTENT + b" of Ada", CONTENT + b" of Bob"
    target = SharedFolder(jobs.out)
    job = jobs.job(pdfs("Ada.pdf", content=one), target=target)
    async with Journal(tmp_path / "other.db") as journal:
        target.other = Jobs(tmp_path, journal).job(pdfs("Bob.pdf", content=other), service=jobs.service)
        assert (await job.run()).done == 1
    assert (jobs.out / "Ada.pdf").read_bytes() == one + SIGNATURE
    assert (jobs.out / "Bob.pdf").read_bytes() == other + SIGNATURE
    assert sorted(each.name for each in jobs.out.iterdir()) == ["Ada.pdf", "Bob.pdf"]


async def test_what_a_job_left_in_the_making_is_taken_away_by_its_next_run(jobs: Jobs) -> None:
    TargetFolder(jobs.out)
    left = jobs.out / ".directsuite" / f"{await jobs.journal.part()}.0" / "1.pdf"
    others = jobs.out / ".directsuite" / "other.0" / "1.pdf"
    for file in (left, others):
        file.parent.mkdir(parents=True)
        file.write_bytes(CONTENT)
    await jobs.job(pdfs()).run()
    assert not left.exists()
    assert others.exists()
