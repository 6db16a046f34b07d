"""The clients that are compared. All of them do the same work with methods of the same names."""

from __future__ import annotations

import importlib
from typing import Any

GENERATED: tuple[str, ...] = ("openapi-generator", "openapi-python-client")
NAMES = ("ours", "bare", *GENERATED)


def get_client(name: str) -> Any:
    """Return the class of a client. Classes of generated clients import their package when they are created."""
    return importlib.import_module(f"benchmarks.peers.{name.replace('-', '_')}").Client
