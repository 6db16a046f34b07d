"""Delivery tracking: many messages followed to their recipients, whatever happens to the program meanwhile."""

from directsuite.jobs.delivery.changes import AnotherLoopError, DeliveryChange
from directsuite.jobs.delivery.journal import DeliveryJournal, DeliveryJournalError
from directsuite.jobs.delivery.tracker import DeliveryTracker

__all__ = ["AnotherLoopError", "DeliveryChange", "DeliveryJournal", "DeliveryJournalError", "DeliveryTracker"]
