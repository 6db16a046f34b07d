"""What a service and an operation are in the document, and how they become OpenAPI path items.

The services are tables of `Operation` rows; all that rows have in common is written here, once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from directsuite.sandbox.openapi.json_schema import Schema, ref

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

JSON = "application/json"
TEXT = "text/plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """A body: its media type and its schema."""

    schema: Schema
    media_type: str = JSON


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of the specification.

    path is below the service's base. parameters overrides the service's schemas of path parameters.
    certain names the members that a success cannot be without. credentials says where the caller's proof of
    identity travels when that is not a header: OpenAPI's security schemes have no word for it.
    """

    name: str
    method: str
    path: str
    summary: str
    answer: Content
    body: Content | None = None
    parameters: Mapping[str, Schema] = field(default_factory=dict[str, Schema])
    certain: Sequence[str] = ()
    credentials: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """One of the four services: where it lives, what it offers and how it says no.

    refusals gives the schema of the body for each HTTP status other than 200. security lists OpenAPI security
    requirements.
    """

    name: str
    description: str
    base: str
    operations: Sequence[Operation]
    schemas: Mapping[str, Schema]
    parameters: Mapping[str, Schema]
    refusals: Mapping[int, tuple[str, Schema]]
    security: Sequence[Mapping[str, Sequence[str]]] = ()


def path_items(services: Sequence[Service]) -> dict[str, dict[str, Any]]:
    """The document's `paths`: operations that share a path share an item."""
    items: dict[str, dict[str, Any]] = {}
    for service in services:
        for operation in service.operations:
            item = items.setdefault(service.base + operation.path, {})
            item[operation.method.lower()] = _operation_object(service, operation)
    return items


def _operation_object(service: Service, operation: Operation) -> dict[str, Any]:
    parameters = {**service.parameters, **operation.parameters}
    described: dict[str, Any] = {
        "operationId": operation.name,
        "tags": [service.name],
        "summary": operation.summary,
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": parameters[name]}
            for name in re.findall(r"\{(\w+)\}", operation.path)
        ],
        "responses": {
            "200": _response("The service's answer.", _certainly(operation.answer, operation.certain)),
            **{
                str(status): _response(meaning, Content(schema=schema))
                for status, (meaning, schema) in service.refusals.items()
            },
        },
        "security": [dict(requirement) for requirement in service.security],
    }
    if operation.body is not None:
        described["requestBody"] = {"required": True, "content": _content(operation.body)}
    if operation.credentials is not None:
        described["x-credentials"] = dict(operation.credentials)
    return described


def _certainly(answer: Content, members: Sequence[str]) -> Content:
    """`answer` with the members that every answer with `success: true` has."""
    if not members:
        return answer
    succeeded: Schema = {"properties": {"success": {"const": True}}, "required": ["success"]}
    schema: Schema = {"allOf": [answer.schema], "if": succeeded, "then": {"required": list(members)}}
    return Content(schema=schema, media_type=answer.media_type)


def _response(description: str, content: Content) -> dict[str, Any]:
    return {"description": description, "content": _content(content)}


def _content(content: Content) -> dict[str, Any]:
    return {content.media_type: {"schema": content.schema}}


def named(name: str) -> Content:
    """A JSON body of the named schema."""
    return Content(schema=ref(name))
