"""The sandbox: the four services, for real, on loopback.

`directsuite.sandbox.server.Sandbox` runs it inside a program or test, `python -m directsuite.sandbox` as a server.
It is a reading of the specification of its own: it imports nothing of the client, nor the client anything of it.

    serving.py        the server with sample content, for both command lines
    server.py         Sandbox: one port for all of it, with the OpenAPI document, openapi.yaml
    control.py        the control API, over HTTP;  client.py: a client of it;  access.py: who may talk to it
    page/             what people look at: all of it in a browser
    calls.py          which calls were answered, and how fast;  samples.py: the content of the first start
    state.py          what a sandbox keeps, and what a test does to it
    database.py       SQLite behind one writer thread, and the ledger: what really happened;  clock.py: the one clock
    refusals.py       how each service refuses;  faults.py: answers and connections that go wrong on demand
    imitation.py      responses like those of another server;  dialect.py: how servers differ
    credentials.py    passwords, access tokens;  oauth.py: the endpoints that give them
    signing/  fax.py  messaging/  registration.py, patients.py    the four services
"""

from directsuite.sandbox.client import Control, ControlError
from directsuite.sandbox.clock import Clock
from directsuite.sandbox.messaging.service import Profiles
from directsuite.sandbox.server import Sandbox
from directsuite.sandbox.signing.keys import KeySource
from directsuite.sandbox.state import Seed

__all__ = ["Clock", "Control", "ControlError", "KeySource", "Profiles", "Sandbox", "Seed"]
