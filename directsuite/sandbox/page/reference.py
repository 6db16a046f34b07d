"""An OpenAPI document as the page shows it: operations with parameters, answers and the JSON that they carry."""

from __future__ import annotations

from typing import Any, TypeAlias, TypeGuard

import msgspec

Json: TypeAlias = dict[str, Any]

_DEEPEST = 6  # references within references that are followed


def operations_of(document: Json) -> list[Json]:
    """The operations of an OpenAPI document, in its order."""
    paths: dict[str, Json] = document["paths"]
    return [
        _operation(document, method, path, operation, methods.get("parameters", []))
        for path, methods in paths.items()
        for method, operation in methods.items()
        if method != "parameters"
    ]


def _operation(document: Json, method: str, path: str, operation: Json, shared: list[Json]) -> Json:
    answers: dict[str, Json] = resolved(document, operation["responses"])
    return {
        "method": method.upper(),
        "path": path,
        "name": operation.get("operationId", ""),
        "texts": [operation[key] for key in ("summary", "description") if key in operation],
        "parameters": resolved(document, [*shared, *operation.get("parameters", [])]),
        "answers": {status: answer.get("description", "") for status, answer in answers.items()},
        "request": _schemas(resolved(document, operation.get("requestBody", {}))),
        "success": _schemas(answers.get("200", {})),
    }


def _schemas(part: Json) -> str | None:
    """The schemas of a request or answer as indented JSON, by media type."""
    schemas = {media: each.get("schema") for media, each in part.get("content", {}).items()}
    return msgspec.json.format(msgspec.json.encode(schemas), indent=2).decode() if schemas else None


def resolved(document: Json, part: Any, depth: int = 0) -> Any:
    """A part of a document with what it refers to in place of the references."""
    if _is_array(part):
        return [resolved(document, each, depth) for each in part]
    if not _is_object(part):
        return part
    reference = part.get("$ref")
    if not isinstance(reference, str) or not reference.startswith("#/") or depth == _DEEPEST:
        return {name: resolved(document, each, depth) for name, each in part.items()}
    target: Any = document
    for name in reference[2:].split("/"):
        target = target[name]
    return resolved(document, target, depth + 1)


def _is_array(part: object) -> TypeGuard[list[Any]]:
    return isinstance(part, list)


def _is_object(part: object) -> TypeGuard[Json]:
    return isinstance(part, dict)
