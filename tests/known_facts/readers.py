"""What a row about an answer looks at: the part of it that a method of the public client gives."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import directsuite as ds
from tests.known_facts.service import ServiceHarness

Reader = Callable[[ServiceHarness], Awaitable[object]]


Row = tuple[str, object, Reader, object]
"""A habit, the answer that shows it, what is looked at, and what that should be."""


async def read_message(service: ServiceHarness) -> ds.MessageDetail:
    (found,) = await service.box.get_messages()
    return found


async def read_log(service: ServiceHarness) -> ds.DirectMessageLog:
    (record,) = (await service.box.get_message_status("<1@x>")).records
    return record


async def read_patient(service: ServiceHarness) -> ds.DirectUserDetail:
    (found,) = await service.suite.registration.get_patient_address_by_username("direct.example.test", "bob")
    return found


async def provision_patient(service: ServiceHarness) -> ds.AddUsersResponseV2:
    individual = ds.IDProofedIndividualRESTful(id=1)
    return await service.suite.registration.provision_id_proofed_patient("direct.example.test", individual)


async def read_document(service: ServiceHarness) -> ds.DocumentInfo:
    return await service.suite.signing.get_doc_info("d1")


async def read_faxes(service: ServiceHarness) -> list[ds.FaxMessage]:
    return (await service.suite.fax.get_multiple_message_info("+15550100")).message_detail


async def read_statuses(service: ServiceHarness) -> ds.DirectMessageStatusReportResponse:
    return await service.box.get_message_status("<1@x>")


def read_attributes(reader: Callable[[ServiceHarness], Awaitable[Any]], *names: str) -> Reader:
    """These attributes of what `look` gives."""

    async def attributes(service: ServiceHarness) -> object:
        found = await reader(service)
        values = tuple(getattr(found, name) for name in names)
        return values[0] if len(names) == 1 else values

    return attributes


async def read_attachment_types(service: ServiceHarness) -> object:
    (attachment,) = (await read_message(service)).attachments
    return attachment.media_type, attachment.content_type


async def read_attachment_content(service: ServiceHarness) -> object:
    (attachment,) = (await read_message(service)).attachments
    return attachment.content


async def read_payment(service: ServiceHarness, *names: str) -> object:
    confirmation = (await provision_patient(service)).payment_confirmation
    return tuple(getattr(confirmation, name) for name in names)


async def read_product_days(service: ServiceHarness) -> object:
    confirmation = (await provision_patient(service)).payment_confirmation
    assert confirmation is not None
    (product,) = confirmation.products
    return product.start_date, product.expire_date
