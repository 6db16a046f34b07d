"""What a check has found."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

import attrs


class Result(enum.StrEnum):
    """How a check ended."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    NOT_CHECKED = "not checked"


@attrs.frozen(kw_only=True)
class Finding:
    """One check. subject: a service, or this machine. sentence: what is, or what is wrong and what to do.

    details: numbers and names for programs.
    """

    subject: str
    check: str
    result: Result
    sentence: str
    details: Mapping[str, Any] = attrs.field(factory=dict[str, Any])


@attrs.frozen
class Found:
    """A check's end, before it is known of whom it is."""

    result: Result
    sentence: str
    details: Mapping[str, Any] = attrs.field(factory=dict[str, Any])

    def of(self, subject: str, check: str) -> Finding:
        """The finding."""
        return Finding(
            subject=subject, check=check, result=self.result, sentence=self.sentence, details=dict(self.details)
        )


def ok(sentence: str, **details: Any) -> Found:
    """All is well."""
    return Found(Result.OK, sentence, details)


def warning(sentence: str, **details: Any) -> Found:
    """It works, and may not for long or not for all."""
    return Found(Result.WARNING, sentence, details)


def failed(sentence: str, **details: Any) -> Found:
    """It doesn't work."""
    return Found(Result.FAILED, sentence, details)


def not_checked(sentence: str, **details: Any) -> Found:
    """Nobody knows, and why not."""
    return Found(Result.NOT_CHECKED, sentence, details)
