"""The faults of the matrix: a rule of the sandbox for each, and its meaning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

TIMEOUT = 50.0
"""Seconds of each call in the matrix."""
LATE_SECONDS, TOO_LATE_SECONDS = 35.0, 55.0  # seconds: within the settling of a call, and after its end
_HTML, _JSON = "<h1>Bad Gateway</h1>", {"error": "server_error", "description": "an internal error"}


@attrs.frozen
class Fault:
    """A fault.

    members: the members of the sandbox's rule. delay: the seconds that must pass until the response arrives, infinity
    if it never does.
    """

    name: str
    kind: str
    members: Mapping[str, Any] = attrs.field(factory=dict[str, Any])
    delay: float = 0.0

    @property
    def takes_effect_late(self) -> bool:
        return self.kind == "latency" and self.delay > 0

    @property
    def takes_effect_before_hang(self) -> bool:
        return self.kind == "hang" and bool(self.members.get("processed"))

    def __str__(self) -> str:
        return self.name


def _make_status_faults() -> list[Fault]:
    bodies: list[tuple[str, dict[str, Any]]] = [
        ("500", {"status": 500}),
        ("500 with an error in JSON", {"status": 500, "body": _JSON}),
        ("502", {"status": 502, "body": _HTML}),
        ("503", {"status": 503}),
        ("504", {"status": 504, "body": _HTML}),
    ]
    return [
        Fault(f"{name} {'after' if processed else 'instead of'} it", "status", {**members, "processed": processed})
        for name, members in bodies
        for processed in (False, True)
    ]


FAULTS: list[Fault] = [
    Fault("none", "latency", {"seconds": 0.0}),
    Fault("reset before it", "reset_before"),
    Fault("reset after it", "reset_after"),
    Fault("truncated answer", "truncate"),
    Fault("malformed answer", "malformed"),
    *_make_status_faults(),
    # These two mean that nothing happened. No client can detect that this is wrong, see test_matrix.py.
    Fault("503 with Retry-After", "status", {"status": 503, "retry_after": 1}),
    Fault("429 with Retry-After", "status", {"status": 429, "retry_after": 1}),
    Fault("403", "status", {"status": 403, "body": _JSON}),
    Fault("token expired", "expire_token"),
    Fault("session expired", "expire_session"),
    Fault("silence before it", "hang", delay=float("inf")),
    Fault("silence after it", "hang", {"processed": True}, delay=float("inf")),
    Fault("late", "latency", {"seconds": LATE_SECONDS}, delay=LATE_SECONDS),
    Fault("too late", "latency", {"seconds": TOO_LATE_SECONDS}, delay=TOO_LATE_SECONDS),
]

REPRESENTATIVE_FAULTS = (
    "none",
    "reset before it",
    "reset after it",
    "500 after it",
    "503 with Retry-After",
    "silence after it",
    "too late",
)
"""The faults that a short run tries."""
PDF_FAULTS = ("none", "reset after it", "silence after it")
"""The faults of signing operations, which take a tenth of a second each."""
