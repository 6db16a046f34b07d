"""The sandbox: the four services, for real, on loopback.

`directsuite.sandbox.server.Sandbox` runs it inside a program or test, `python -m directsuite.sandbox` as a server.
"""

from directsuite.sandbox.clock import Clock
from directsuite.sandbox.messaging.profile import Profiles
from directsuite.sandbox.server import Sandbox
from directsuite.sandbox.state import Seed

__all__ = ["Clock", "Profiles", "Sandbox", "Seed"]
