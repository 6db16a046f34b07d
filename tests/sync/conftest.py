"""A sandbox with two mailboxes, and a client whose clock advances only while it sleeps."""

from tests.integration.conftest import sandbox as sandbox
from tests.integration.conftest import scenario as scenario
