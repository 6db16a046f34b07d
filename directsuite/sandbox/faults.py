"""Faults on demand: rules, by operation, for answers and connections that go wrong.

    status          answer with any status, without running the operation (processed=True: after running it)
    latency         a real delay of `seconds`, then the operation
    hang            no answer until the client leaves (processed=True: after running the operation)
    reset_before    the request is read, not processed, and the connection reset
    reset_after     processed, then the connection reset before the first byte of the answer
    truncate        processed; the headers announce the whole answer, half of it comes, then the connection closes
    malformed       processed; the body is neither JSON nor base64
    expire_token    the caller's access token is expired first
    expire_session  the caller's registration session is expired first

Every fault first reads the request to its end, so that what a client sees does not depend on how far it had sent.
What a fault does is in `directsuite.sandbox.faulty_answers`.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Literal, get_args

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

Kind = Literal[
    "status",
    "latency",
    "hang",
    "reset_before",
    "reset_after",
    "truncate",
    "malformed",
    "expire_token",
    "expire_session",
]
KINDS: tuple[Kind, ...] = get_args(Kind)
EVERY_OPERATION = "*"
_LONGEST_DELAY = 60.0


@attrs.frozen(kw_only=True)
class Fault:
    """One rule: which operation, what goes wrong, and how often."""

    operation: str
    """The specification's name of the operation, or `*` for all of them."""
    kind: Kind
    status: int = 503
    """HTTP status of the answer, for `status`."""
    retry_after: int | str | None = None
    """Value of the Retry-After header, in seconds or as an HTTP date, for `status`."""
    body: Any = None
    """Answer body for `status`: text as it stands, anything else as JSON, None for an empty one."""
    media_type: str | None = None
    """Content-Type of the body; text/html for text and application/json for JSON where it is None."""
    seconds: float = 0.1
    """Delay for `latency`; real time, since clients measure it."""
    processed: bool = False
    """Whether the operation runs, for `status` and `hang`."""
    times: int | None = 1
    """How often the rule applies before it is used up; None for ever."""
    skip: int = 0
    """How many requests it lets through first."""
    probability: float = 1.0
    """Chance that it applies to a request, drawn from a generator with the rule's `seed`."""
    seed: int = 0

    @classmethod
    def from_members(cls, members: Mapping[str, Any]) -> Fault:
        """A fault from JSON members of the same names. Raises ValueError that names what does not fit."""
        names = set(attrs.fields_dict(cls))
        if unknown := set(members) - names:
            raise ValueError(f"unknown members: {', '.join(sorted(unknown))}")
        if not {"operation", "kind"} <= set(members):
            raise ValueError("operation and kind are required")
        for name, value in members.items():
            fits, text = _CHECKS[name]
            if not fits(value):
                raise ValueError(f"{name} must be {text}")
        return cls(**members)


@attrs.define
class _Rule:
    fault: Fault
    dice: random.Random
    to_skip: int
    remaining: int | None
    applied: int = 0

    def applies(self) -> bool:
        if self.remaining == 0:
            return False
        if self.to_skip > 0:
            self.to_skip -= 1
            return False
        if self.fault.probability < 1 and self.dice.random() >= self.fault.probability:
            return False
        self.applied += 1
        if self.remaining is not None:
            self.remaining -= 1
        return True


class Faults:
    """The rules in the order in which they were added; the first one that applies to a request decides."""

    def __init__(self) -> None:
        self._rules: dict[int, _Rule] = {}
        self._last = 0
        self._operations: frozenset[str] = frozenset()
        self.stopped = False
        """Whether the sandbox is stopping: requests that hang are let go."""

    def know(self, operations: Iterable[str]) -> None:
        """Tell which operations there are, so that a rule for a misspelt one is refused."""
        self._operations = frozenset(operations)

    def add(self, fault: Fault) -> int:
        """Add a rule and return its number. Raises ValueError for an operation that does not exist."""
        if fault.operation != EVERY_OPERATION and fault.operation not in self._operations:
            raise ValueError(f"there is no operation {fault.operation!r}")
        self._last += 1
        self._rules[self._last] = _Rule(fault, random.Random(fault.seed), fault.skip, fault.times)
        return self._last

    def remove(self, number: int) -> bool:
        """Remove one rule; False if there is none of this number."""
        return self._rules.pop(number, None) is not None

    def clear(self) -> None:
        """Remove all rules."""
        self._rules.clear()

    def rules(self) -> list[dict[str, Any]]:
        """Every rule with its number, how often it has applied, and how often it still will."""
        return [
            {"id": number, **attrs.asdict(rule.fault), "applied": rule.applied, "remaining": rule.remaining}
            for number, rule in self._rules.items()
        ]

    def take(self, operation: str | None) -> Fault | None:
        """The fault for this request, counted as applied; None for a healthy one or a path outside the services."""
        if operation not in self._operations:
            return None
        for rule in self._rules.values():
            if rule.fault.operation in {operation, EVERY_OPERATION} and rule.applies():
                return rule.fault
        return None


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_header_text(value: Any) -> bool:
    return isinstance(value, str) and value != "" and value.isascii() and value.isprintable()


_CHECKS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "operation": (_is_header_text, "the name of an operation, or *"),
    "kind": (lambda value: value in KINDS, f"one of {', '.join(KINDS)}"),
    "status": (lambda value: _is_integer(value) and 200 <= value <= 599, "an HTTP status from 200 to 599"),
    "retry_after": (
        lambda value: value is None or (_is_integer(value) and value >= 0) or _is_header_text(value),
        "seconds, an HTTP date, or null",
    ),
    "body": (lambda value: True, "text, JSON or null"),
    "media_type": (lambda value: value is None or _is_header_text(value), "a media type or null"),
    "seconds": (lambda value: _is_number(value) and 0 <= value <= _LONGEST_DELAY, "a number from 0 to 60"),
    "processed": (lambda value: isinstance(value, bool), "true or false"),
    "times": (lambda value: value is None or (_is_integer(value) and value > 0), "a positive integer, or null"),
    "skip": (lambda value: _is_integer(value) and value >= 0, "an integer that is not negative"),
    "probability": (lambda value: _is_number(value) and 0 <= value <= 1, "a number from 0 to 1"),
    "seed": (_is_integer, "an integer"),
}
