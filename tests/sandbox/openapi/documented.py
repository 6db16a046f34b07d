"""The operations of the document, and the check of responses."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

import jsonschema_rs

from directsuite.sandbox.server import load_openapi_document

if TYPE_CHECKING:
    from collections.abc import Mapping

DOCUMENT: Final = load_openapi_document()


@dataclass(frozen=True, slots=True)
class DocumentedOperation:
    name: str
    method: str
    path: str
    definition: Mapping[str, Any]

    @property
    def path_parameters(self) -> list[str]:
        return [parameter["name"] for parameter in self.definition["parameters"]]

    @property
    def takes_bearer(self) -> bool:
        return {"bearer": []} in self.definition["security"]

    @property
    def body_schema(self) -> Mapping[str, Any] | None:
        """The schema of the JSON body, with its reference resolved, or None."""
        content = self.definition.get("requestBody", {}).get("content", {})
        if "application/json" not in content:
            return None
        schema: Mapping[str, Any] = content["application/json"]["schema"]
        return resolve_schema(schema)

    def assert_describes(self, status: int, media_type: str, body: bytes) -> None:
        """Check that the status, media type and body of a response are in the document."""
        assert status < 500, f"{self.name}: a server error {status}: {body[:500]!r}"
        assert str(status) in self.definition["responses"], f"{self.name}: undocumented status {status}: {body[:500]!r}"
        content = self.definition["responses"][str(status)]["content"]
        essence = media_type.partition(";")[0].strip()
        assert essence in content, f"{self.name}: {status} with undocumented media type {media_type}"
        if essence == "application/json":
            schema = {**content[essence]["schema"], "components": DOCUMENT["components"]}
            jsonschema_rs.Draft202012Validator(schema).validate(json.loads(body))


def resolve_schema(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    if "$ref" not in schema:
        return schema
    named: Mapping[str, Any] = DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return named


def is_success(status: int, content: bytes) -> bool:
    """Return True if a response reports success. For PDF text and plain objects, the status decides."""
    try:
        response: Any = json.loads(content)
    except ValueError:
        response = None
    return status == 200 and (not isinstance(response, dict) or cast("dict[str, Any]", response).get("success", True))


OPERATIONS: Final = [
    DocumentedOperation(definition["operationId"], method.upper(), path, definition)
    for path, item in DOCUMENT["paths"].items()
    for method, definition in item.items()
]
