"""Batch signing: many PDFs, each signed exactly once, whatever happens to the program or the service meanwhile."""

from directsuite.jobs.signing.documents import Elsewhere, Folder, Pdf
from directsuite.jobs.signing.entry import Entry, State
from directsuite.jobs.signing.fleet import FleetSigningProgress, SigningFleet
from directsuite.jobs.signing.job import JobStoppedError, Signatures, SigningJob, SigningProgress
from directsuite.jobs.signing.journal import Journal, PostgresJournal
from directsuite.jobs.signing.keeping import JournalError, Tally
from directsuite.jobs.signing.storage import StorageError, StorageFolder, StorageTarget
from directsuite.jobs.signing.targets import Target, TargetFolder

__all__ = [
    "Elsewhere",
    "Entry",
    "FleetSigningProgress",
    "Folder",
    "JobStoppedError",
    "Journal",
    "JournalError",
    "Pdf",
    "PostgresJournal",
    "Signatures",
    "SigningFleet",
    "SigningJob",
    "SigningProgress",
    "State",
    "StorageError",
    "StorageFolder",
    "StorageTarget",
    "Tally",
    "Target",
    "TargetFolder",
]
