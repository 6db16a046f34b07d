"""Delivery tracking of many messages, with a journal that survives a crash of the program."""

from directsuite.jobs.delivery.journal import AnotherLoopError, DeliveryChange, DeliveryJournal, DeliveryJournalError
from directsuite.jobs.delivery.tracker import DeliveryTracker

__all__ = ["AnotherLoopError", "DeliveryChange", "DeliveryJournal", "DeliveryJournalError", "DeliveryTracker"]
