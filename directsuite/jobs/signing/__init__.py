"""Batch signing of PDFs, each exactly once, even if the program or the service fails."""

from directsuite.jobs.signing.documents import Folder, Pdf, RemoteFile, Target, TargetFolder
from directsuite.jobs.signing.fleet import FleetSigningProgress, SigningFleet
from directsuite.jobs.signing.job import JobStoppedError, Signatures, SigningJob, SigningProgress, StopReason
from directsuite.jobs.signing.journal import SigningJournal, SigningJournalError, Tally
from directsuite.jobs.signing.results import SigningResult
from directsuite.jobs.signing.storage import StorageError, StorageFolder, StorageTarget
from directsuite.jobs.signing.workflow import DocumentProblem, DocumentState, SigningEntry

__all__ = [
    "DocumentProblem",
    "DocumentState",
    "FleetSigningProgress",
    "Folder",
    "JobStoppedError",
    "Pdf",
    "RemoteFile",
    "Signatures",
    "SigningEntry",
    "SigningFleet",
    "SigningJob",
    "SigningJournal",
    "SigningJournalError",
    "SigningProgress",
    "SigningResult",
    "StopReason",
    "StorageError",
    "StorageFolder",
    "StorageTarget",
    "Tally",
    "Target",
    "TargetFolder",
]
