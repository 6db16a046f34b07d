"""A sandbox with two mailboxes, and a client of it whose time stands still."""

from tests.integration.conftest import sandbox as sandbox
from tests.integration.conftest import scenario as scenario
