"""The sandbox: a local implementation of the four services.

`directsuite.sandbox.Sandbox` runs it in a program or test, `directsuite sandbox` as a server. It is written from the
specification alone, and shares no code with the client.

    server.py         Sandbox: all services on one port, with their OpenAPI document, openapi.yaml
    control.py        the control API;  client.py: its client;  access.py: who has access to it
    page/             the web page
    calls.py          the recent calls;  samples.py: the sample data
    state.py          the state, and how tests change it
    database.py       SQLite with one writer thread, and the ledger of side effects;  clock.py: the clock
    rejections.py     the error responses of the services;  faults.py: failures on demand
    quirks.py         profiles, and responses like those of another server
    credentials.py    passwords and access tokens;  oauth.py: the endpoints that issue tokens
    signing/  fax.py  messaging/  registration.py, patients.py    the four services
"""

from directsuite.sandbox.client import Control, ControlError
from directsuite.sandbox.clock import Clock
from directsuite.sandbox.quirks import Profiles
from directsuite.sandbox.server import Sandbox
from directsuite.sandbox.signing import KeySource
from directsuite.sandbox.state import Seed

__all__ = ["Clock", "Control", "ControlError", "KeySource", "Profiles", "Sandbox", "Seed"]
