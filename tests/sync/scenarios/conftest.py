"""A sandbox with two mailboxes."""

from tests.integration.conftest import sandbox as sandbox
from tests.integration.conftest import scenario as scenario
