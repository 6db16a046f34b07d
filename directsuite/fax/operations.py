"""The operations of the fax service, in the order of the specification (section 4.B)."""

from __future__ import annotations

from directsuite.core.operation import Auth, FaultFormat, Operation, Semantics, Service
from directsuite.errors import BadRequestError
from directsuite.fax.models import FaxMessageInformation

FAULT_FORMAT = FaultFormat(message_keys=("error", "description"))


def _make_operation(name: str, path: str, arguments: str) -> Operation[FaxMessageInformation]:
    return Operation(
        name=name,
        service=Service.FAX,
        method="GET",
        path=path,
        semantics=Semantics.SAFE,
        auth=Auth.BEARER,
        response=FaxMessageInformation,
        fault_format=FAULT_FORMAT,
        status_errors={400: (BadRequestError, f"{arguments} is unknown or not valid", "")},
    )


GET_SINGLE_MESSAGE_INFO = _make_operation(
    "getSingleMessageInfo", "api/fax/{fax_number}/{message_handle}", "fax_number or message_handle"
)
GET_MULTIPLE_MESSAGE_INFO = _make_operation(
    "getMultipleMessageInfo", "api/fax/getMessageList/{fax_number}/{offset}", "fax_number or offset"
)
