"""The facade of a T-User that acts for one Direct address."""

from __future__ import annotations

from directsuite.core.transport import Transport
from directsuite.messaging import arguments, operations
from directsuite.messaging.models import (
    AuthenticationWithTuser,
    SendWithHeaderWithTuserRequest,
    SendWithTuserRequest,
)
from directsuite.messaging.sending import Sender
from directsuite.secret import Secret, as_secret


class TUser(Sender):
    """Sends messages and reads delivery statuses for a user's Direct address. `suite.tuser(...)`; needs `message_url`.

    `directsuite guide methods` lists the operation of each method (specification 4.C). Every method raises
    TransportError if there is no usable response, and ServiceError if the service rejects the request. A message that
    may have been sent is never sent again: OutcomeUnknownError is raised instead.
    """

    _send_operation = operations.SEND_WITH_TUSER
    _send_with_header_operation = operations.SEND_WITH_HEADER_WITH_TUSER
    _status_operation = operations.GET_MESSAGE_STATUS_WITH_TUSER
    _request_type = SendWithTuserRequest
    _request_with_header_type = SendWithHeaderWithTuserRequest

    def __init__(self, transport: Transport, username: str, password: str | Secret, direct_addr: str) -> None:
        password = as_secret(password)
        arguments.validate_address(direct_addr, "direct_addr")
        authentication = AuthenticationWithTuser(username=username, password=password, direct_addr=direct_addr)
        super().__init__(transport, direct_addr, authentication)
