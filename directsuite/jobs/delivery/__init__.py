"""Delivery tracking: many messages followed to their recipients, whatever happens to the program meanwhile."""

from directsuite.jobs.delivery.changes import AnotherLoopError, DeliveryChange
from directsuite.jobs.delivery.journal import Journal, JournalError
from directsuite.jobs.delivery.tracker import DeliveryTracker

__all__ = ["AnotherLoopError", "DeliveryChange", "DeliveryTracker", "Journal", "JournalError"]
