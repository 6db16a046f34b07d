"""A sandbox with two mailboxes, and a PostgreSQL that tests stop."""

from tests.integration.conftest import sandbox as sandbox
from tests.integration.conftest import world as world
from tests.sync.fleet.conftest import shaky_postgres as shaky_postgres
