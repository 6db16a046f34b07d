"""One table of operations per service, written from the specification, from which other tests are derived.

The client's tables, the sandbox's routes, its OpenAPI document and the guides are compared with these tables.
"""

from __future__ import annotations

from .case import OperationCase
from .fax import FAX, FAX_VARIANTS
from .mailbox import MAILBOX, MAILBOX_VARIANTS
from .registration import REGISTRATION
from .sending import SENDING, SENDING_VARIANTS
from .signing import SIGNING, SIGNING_VARIANTS

OPERATIONS: dict[str, OperationCase] = {case.name: case for case in (*SIGNING, *FAX, *SENDING, *MAILBOX, *REGISTRATION)}
"""A row for each operation, by its name in the specification."""

VARIANTS = [*SIGNING_VARIANTS, *FAX_VARIANTS, *SENDING_VARIANTS, *MAILBOX_VARIANTS]
"""More requests: without optional members, without bounds, and with default arguments."""

METHODS = {name: case.method for name, case in OPERATIONS.items()}
"""The HTTP method of each operation."""
