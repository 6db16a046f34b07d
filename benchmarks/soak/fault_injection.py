"""What goes wrong: every kind of fault at a few in a thousand, outages of all services, credentials that run out."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping

    from benchmarks.soak.server import SoakServer

FAULTS: tuple[tuple[float, str, Mapping[str, Any]], ...] = (
    (0.004, "reset_before", {}),
    (0.004, "reset_after", {}),
    (0.004, "truncate", {}),
    (0.004, "malformed", {}),
    (0.001, "hang", {}),
    (0.001, "hang", {"processed": True}),
    (0.010, "latency", {"seconds": 0.3}),
    (0.003, "status", {"status": 500}),
    (0.003, "status", {"status": 502, "body": "<h1>Bad Gateway</h1>"}),
    (0.002, "status", {"status": 503}),
    (0.0003, "status", {"status": 503, "retry_after": 1}),
    (0.0003, "status", {"status": 429, "retry_after": 1}),
    (0.001, "status", {"status": 504, "processed": True}),
    (0.003, "expire_token", {}),
    (0.003, "expire_session", {}),
)
"""How likely for a request, the kind, and what more there is to say."""

_CALM_SECONDS = (4.0, 10.0)  # seconds between two troubles
_OUTAGE_SECONDS = 2.5  # seconds
_LEAP_SECONDS = 660  # seconds by which the server's clock goes ahead: every session has run out


async def inject_faults(server: SoakServer, dice: random.Random) -> None:
    """The faults, from new seeds."""
    await server.call_control("DELETE", "faults")
    for probability, kind, more in FAULTS:
        fault = {"operation": "*", "kind": kind, "probability": probability, "times": None, **more}
        await server.call_control("POST", "faults", {**fault, "seed": dice.getrandbits(31)})


async def run_troubles(server: SoakServer, dice: random.Random) -> None:
    """One trouble after the other, for ever."""
    troubles = (_expire_tokens, _expire_sessions, _advance_clock, _cause_outage)
    while True:
        await asyncio.sleep(dice.uniform(*_CALM_SECONDS))
        await dice.choice(troubles)(server)


async def _expire_tokens(server: SoakServer) -> None:
    await server.call_control("POST", "tokens/expire")


async def _expire_sessions(server: SoakServer) -> None:
    await server.call_control("POST", "sessions/expire")


async def _advance_clock(server: SoakServer) -> None:
    await server.call_control("POST", "clock/advance", {"seconds": _LEAP_SECONDS})


async def _cause_outage(server: SoakServer) -> None:
    """An outage of all services: long enough for their circuits to open."""
    fault = {"operation": "*", "kind": "reset_before", "times": None}
    number = (await server.call_control("POST", "faults", fault))["created"]
    await asyncio.sleep(_OUTAGE_SECONDS)
    await server.call_control("DELETE", f"faults/{number}")
