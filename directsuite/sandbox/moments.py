"""Moments as the services write them: ISO 8601 with milliseconds and offset, such as 2026-05-01T12:00:00.000+0000."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def written(milliseconds: int) -> str:
    """Milliseconds since 1970 as the services' Timestamp and Date."""
    moment = _EPOCH + timedelta(milliseconds=milliseconds)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{milliseconds % 1000:03d}+0000"
