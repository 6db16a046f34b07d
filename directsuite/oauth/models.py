"""What a token endpoint gives."""

from __future__ import annotations

import attrs

from directsuite.secret import Secret


@attrs.frozen(kw_only=True)
class TokenAnswer:
    """The tokens of a good answer. expires_in: seconds from when it was asked for; None: until it is refused."""

    access_token: Secret
    expires_in: float | None = None
    refresh_token: Secret | None = None
