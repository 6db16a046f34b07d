"""Batch signing: many PDFs, each signed exactly once, whatever happens to the program or the service meanwhile."""

from directsuite.jobs.signing.documents import Folder, Pdf
from directsuite.jobs.signing.entry import Entry, State
from directsuite.jobs.signing.job import JobStoppedError, SigningJob, SigningProgress
from directsuite.jobs.signing.journal import Journal, JournalError, Tally
from directsuite.jobs.signing.targets import Target, TargetFolder

__all__ = [
    "Entry",
    "Folder",
    "JobStoppedError",
    "Journal",
    "JournalError",
    "Pdf",
    "SigningJob",
    "SigningProgress",
    "State",
    "Tally",
    "Target",
    "TargetFolder",
]
