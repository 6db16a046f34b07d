"""The sandbox with its scenario, and a suite whose responses come from memory."""

from __future__ import annotations

from tests.fixtures import box, services, suite
from tests.integration.conftest import sandbox, scenario

__all__ = ["box", "sandbox", "scenario", "services", "suite"]
