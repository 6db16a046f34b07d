"""What a row about an answer looks at: the part of it that a method of the public client gives."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import directsuite as ds
from tests.known_facts.service import Service

Look = Callable[[Service], Awaitable[object]]


Row = tuple[str, object, Look, object]
"""A habit, the answer that shows it, what is looked at, and what that should be."""


async def message(service: Service) -> ds.MessageDetail:
    (found,) = await service.box.get_messages()
    return found


async def log(service: Service) -> ds.DirectMessageLog:
    (record,) = (await service.box.get_message_status("<1@x>")).records
    return record


async def patient(service: Service) -> ds.DirectUserDetail:
    (found,) = await service.suite.registration.get_patient_address_by_username("direct.example.test", "bob")
    return found


async def provisioned(service: Service) -> ds.AddUsersResponseV2:
    individual = ds.IDProofedIndividualRESTful(id=1)
    return await service.suite.registration.provision_id_proofed_patient("direct.example.test", individual)


async def document(service: Service) -> ds.DocumentInfo:
    return await service.suite.signing.get_doc_info("d1")


async def faxes(service: Service) -> list[ds.FaxMessage]:
    return (await service.suite.fax.get_multiple_message_info("+15550100")).message_detail


async def statuses(service: Service) -> ds.DirectMessageStatusReportResponse:
    return await service.box.get_message_status("<1@x>")


def its(look: Callable[[Service], Awaitable[Any]], *names: str) -> Look:
    """These attributes of what `look` gives."""

    async def attributes(service: Service) -> object:
        found = await look(service)
        values = tuple(getattr(found, name) for name in names)
        return values[0] if len(names) == 1 else values

    return attributes


async def attachment_types(service: Service) -> object:
    (attachment,) = (await message(service)).attachments
    return attachment.media_type, attachment.content_type


async def attachment_content(service: Service) -> object:
    (attachment,) = (await message(service)).attachments
    return attachment.content


async def payment(service: Service, *names: str) -> object:
    confirmation = (await provisioned(service)).payment_confirmation
    return tuple(getattr(confirmation, name) for name in names)


async def product_days(service: Service) -> object:
    confirmation = (await provisioned(service)).payment_confirmation
    assert confirmation is not None
    (product,) = confirmation.products
    return product.start_date, product.expire_date
