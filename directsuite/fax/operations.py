"""The operations of the fax service, in the order of the specification (section 4.B)."""

from __future__ import annotations

from directsuite.core.operation import Auth, Operation, Semantics, Service
from directsuite.core.refusals import Refusals
from directsuite.fax.models import FaxMessageInformation

REFUSALS = Refusals(texts=("error", "description"))


def _operation(name: str, path: str) -> Operation[FaxMessageInformation]:
    return Operation(
        name=name,
        service=Service.FAX,
        method="GET",
        path=path,
        semantics=Semantics.SAFE,
        auth=Auth.BEARER,
        response=FaxMessageInformation,
        refusals=REFUSALS,
    )


GET_SINGLE_MESSAGE_INFO = _operation("getSingleMessageInfo", "api/fax/{fax_number}/{message_handle}")
GET_MULTIPLE_MESSAGE_INFO = _operation("getMultipleMessageInfo", "api/fax/getMessageList/{fax_number}/{offset}")
