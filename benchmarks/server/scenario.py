"""The sizes of answers, as the first segment of a request's path tells them: /messages=50,…/signing/pdf."""

from __future__ import annotations

from typing import Self

import attrs


@attrs.frozen(kw_only=True)
class ServerScenario:
    """What `benchmarks.server.at` says."""

    messages: int = attrs.field(default=50, converter=int)
    attachment: int = attrs.field(default=0, converter=int)
    document: int = attrs.field(default=0, converter=int)
    latency: float = attrs.field(default=0.0, converter=float)

    def to_segment(self) -> str:
        """This scenario as a segment of a path."""
        return ",".join(f"{name}={value}" for name, value in attrs.asdict(self).items())

    @classmethod
    def from_segment(cls, segment: str) -> Self:
        """The scenario that a segment stands for."""
        return cls(**dict(pair.split("=", 1) for pair in segment.split(",")))
