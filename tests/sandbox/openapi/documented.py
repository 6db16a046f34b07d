"""The document's operations as rows, and the check that an answer is one that the document describes."""

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
    """One operation of the document, where it lives and all that is written about it."""

    name: str
    method: str
    path: str
    definition: Mapping[str, Any]

    @property
    def path_parameters(self) -> list[str]:
        """Names of the path parameters, in the order of the path."""
        return [parameter["name"] for parameter in self.definition["parameters"]]

    @property
    def takes_bearer(self) -> bool:
        """Whether the operation asks for an access token."""
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
        """Fail unless an answer has a status, a media type and a body that the document gives this operation."""
        assert status < 500, f"{self.name}: a server error {status}: {body[:500]!r}"
        assert str(status) in self.definition["responses"], f"{self.name}: undocumented status {status}: {body[:500]!r}"
        content = self.definition["responses"][str(status)]["content"]
        essence = media_type.partition(";")[0].strip()
        assert essence in content, f"{self.name}: {status} with undocumented media type {media_type}"
        if essence == "application/json":
            schema = {**content[essence]["schema"], "components": DOCUMENT["components"]}
            jsonschema_rs.Draft202012Validator(schema).validate(json.loads(body))


def resolve_schema(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a reference stands for; any other schema as it is."""
    if "$ref" not in schema:
        return schema
    named: Mapping[str, Any] = DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return named


def is_success(status: int, content: bytes) -> bool:
    """Whether an answer says that the action was carried out; PDF text and plain objects say so by their status."""
    try:
        answer: Any = json.loads(content)
    except ValueError:
        answer = None
    return status == 200 and (not isinstance(answer, dict) or cast("dict[str, Any]", answer).get("success", True))


OPERATIONS: Final = [
    DocumentedOperation(definition["operationId"], method.upper(), path, definition)
    for path, item in DOCUMENT["paths"].items()
    for method, definition in item.items()
]
