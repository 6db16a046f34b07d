"""Limits that the suites of all processes of a fleet share, through PostgreSQL.

async with SharedLimits(conninfo, processes=4, connections=20) as shared:
    async with ds.DirectSuite(settings, shared_limits=shared) as suite:
        ...
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

from directsuite.core.checks import AT_LEAST_ONE
from directsuite.core.clock import Clock
from directsuite.durable.postgres import Connections
from directsuite.errors import ConfigurationError
from directsuite.secret import Secret, as_secret
from directsuite.sync.model import StoreError
from directsuite.sync.shared_rate import SharedRate


class SharedLimits:
    """What suites in several processes may do together, service by service: `DirectSuite(shared_limits=...)`.

    The settings' requests_per_second and burst hold for all processes together then, and are the same in each; an
    answer that asks one process for a pause pauses all. conninfo: as PostgresStore has it; connections to PostgreSQL
    are made when a service is first called. processes: how many there are at most; where PostgreSQL doesn't answer,
    each keeps to its part of the rate. connections: to one service, of all processes together, of which each has an
    equal part; None for max_connections in each. name: of those who share, where one database has several. Open it
    before the suite; it belongs to one event loop. Raises ConfigurationError.
    """

    def __init__(
        self, conninfo: str | Secret, *, processes: int, connections: int | None = None, name: str = "directsuite"
    ) -> None:
        self._conninfo = as_secret(conninfo)
        del conninfo  # this frame may stand in a traceback
        AT_LEAST_ONE.require("processes", processes)
        AT_LEAST_ONE.or_none().require("connections", connections)
        if connections is not None and connections < processes:
            raise ConfigurationError("connections has to be one or more for each process")
        Connections(self._conninfo, error=StoreError)
        self._processes = processes
        self.connections = None if connections is None else connections // processes
        """To one service, of this process."""
        self._name = name
        self._parts: list[SharedRate] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    def rate_limiter(self, service: str, *, per_second: float, burst: int, clock: Clock) -> SharedRate:
        """Places for requests to a service. For the suite."""
        rate = SharedRate(
            self._conninfo,
            f"{self._name} {service}",
            per_second=per_second,
            burst=burst,
            processes=self._processes,
            clock=clock,
        )
        self._parts.append(rate)
        return rate

    async def aclose(self) -> None:
        """Give everything back, and close the connections to PostgreSQL."""
        for part in self._parts:
            await part.aclose()
