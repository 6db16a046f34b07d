"""Why the signing service says no, as exceptions that the service turns into its error body.

RefusedError
├── InvalidActionError        the document cannot take this action (400)
├── InvalidParameterError     something in the request is missing or wrong (400)
├── PermissionDeniedError     the document belongs to another account (403)
└── NoSuchDocumentError       unknown, deleted or expired (400, or what the service was told to answer)
"""

from __future__ import annotations

from typing import ClassVar


class RefusedError(Exception):
    """A request that the signing service refuses; its text is the `description` of the answer."""

    status: ClassVar[int] = 400
    error: ClassVar[str] = "invalid_action"

    @property
    def description(self) -> str:
        """What was wrong and what to do, in one sentence."""
        return str(self)


class InvalidActionError(RefusedError):
    """The stored document cannot take the requested action."""


class InvalidParameterError(RefusedError):
    """A parameter is missing or invalid."""

    error = "invalid_parameter"


class PermissionDeniedError(RefusedError):
    """The document belongs to another account."""

    status = 403
    error = "permission_denied"


class NoSuchDocumentError(RefusedError):
    """No document has this identifier, or no longer."""

    error = "no_such_document"
