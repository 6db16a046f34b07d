"""The clients that directsuite is measured against, each doing the same work by the same method names.

prepare(folder)   makes the generated ones: from our OpenAPI document, into one private environment, kept in folder
client(name)      the class that does the work: `async with client("bare")(base_url) as bare: ...`

work                                          what every client does, and CannotError
ours, bare                                    directsuite; what one writes by hand with aiohttp
openapi_generator, openapi_python_client      the generated ones
folder                                        a folder read in order, by many requests at once
document, generators, environment             the document, what is generated from it, and where that is installed
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from benchmarks.peers.work import CannotError

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.peers.environment import PreparedPeers
    from benchmarks.peers.work import Client

__all__ = ["GENERATED", "NAMES", "CannotError", "get_client", "prepare"]

GENERATED = ("openapi-generator", "openapi-python-client")
NAMES = ("ours", "bare", *GENERATED)


def get_client(name: str) -> type[Client]:
    """The client of this name. Those of generated packages import them when they are opened."""
    module = importlib.import_module(f"benchmarks.peers.{name.replace('-', '_')}")
    found: type[Client] = module.Client
    return found


def prepare(folder: Path) -> PreparedPeers:
    """Generate and install the peers in folder, or take what stands there from an earlier time.

    What cannot be had here is left out, with the reason: a machine without Java or network still measures the rest.
    """
    # Not above: measuring processes import this package, and what prepares is not to be in their memory.
    from benchmarks.peers import environment

    return environment.prepare(folder)
