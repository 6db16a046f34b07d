"""Compare the responses of a service with the OpenAPI document of the services.

    response ──► status ──► headers ──► JSON ──► schema of the operation ──► Difference, …

A difference contains no value of the response. A member's name is shown only if the document contains it, because any
other name may be a patient's.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from directsuite.sandbox.quirks import FORM, ORDINARY_HEADERS, Difference, Role, find_form, mask_digits, name_json_type

Json: TypeAlias = Mapping[str, Any]

_RANGES = {"int32": 2**31, "int64": 2**63}
_SHOWN_HEADER = re.compile(r"(?=.{1,40}\Z)[A-Za-z]+(-[A-Za-z]+)*")
_OTHER_NAMES = {"attachmentList": "attachments"}
"""Members that some servers send under another name, which the SDK reads."""


class Specification:
    """An OpenAPI document, by operation."""

    def __init__(self, document: Json) -> None:
        self._schemas: Json = document["components"]["schemas"]
        self._responses: Mapping[str, Json] = {
            definition["operationId"]: definition["responses"]
            for methods in document["paths"].values()
            for method, definition in methods.items()
            if method != "parameters"
        }
        self._names = frozenset(_list_names(self._schemas))

    def compare(self, operation: str, status: int, headers: Mapping[str, str], body: bytes) -> set[Difference]:
        """Return the differences between a response and the document; empty if there are none.

        If the document doesn't have the status, the body is compared with the schema of status 200.
        """
        try:
            return set(self._compare(self._responses[operation], status, headers, body))
        except RecursionError:
            return {Difference("$", "is nested too deeply")}

    def show_path(self, path: str) -> str:
        """Return a member's path with [] for each index, and the length of each name that is not in the document."""
        path = re.sub(r"\[\d+\]", "[]", path)
        return re.sub(r"\.([^.\[\]]+)", lambda member: f".{self._show_name(member[1])}", path)

    def _compare(self, responses: Json, status: int, headers: Mapping[str, str], body: bytes) -> Iterator[Difference]:
        if str(status) not in responses:
            yield Difference("status", f"is {status}, which is not among {', '.join(sorted(responses))}")
        content: Json = responses.get(str(status), responses["200"])["content"]
        media_type, definition = next(iter(content.items()))
        yield from _compare_headers(headers, media_type)
        text = body.decode("utf-8-sig", "replace")
        if not body.endswith(text.encode()):  # before the text may be a byte order mark
            yield Difference("$", "is no UTF-8 text")
        try:
            value = json.loads(text) if media_type == "application/json" else text.strip()
        except ValueError:
            yield Difference("$", "is no JSON")
        else:
            yield from self._compare_value(definition["schema"], value, "$")

    def _compare_value(self, schema: Json, value: Any, path: str) -> Iterator[Difference]:
        schema = self._flatten(schema)
        types, kind = schema["type"], name_json_type(value)
        if types and kind not in types and not (kind == "integer" and "number" in types):
            yield Difference(path, f"is {kind}, not {' or '.join(types)}")
        elif kind != "null" and value not in schema.get("enum", [value]):
            yield Difference(path, "has a value that is not listed")
        elif difference := _compare_scalar(schema, value):
            yield Difference(path, difference)
        elif kind == "array":
            for each in value:
                yield from self._compare_value(schema.get("items", {}), each, f"{path}[]")
        elif kind == "object":
            yield from self._compare_members(schema, value, path)

    def _compare_members(self, schema: Json, value: Json, path: str) -> Iterator[Difference]:
        properties: Json = schema["properties"]
        yield from (Difference(f"{path}.{name}", "is missing") for name in schema["required"] if name not in value)
        for name, member in value.items():
            if (other := _OTHER_NAMES.get(name)) in properties and other not in value:
                yield Difference(f"{path}.{name}", f"{FORM}in place of {other}")
            if name in properties:
                yield from self._compare_value(properties[name], member, f"{path}.{name}")
            elif properties:
                yield Difference(f"{path}.{self._show_name(name)}", f"is not described: {name_json_type(member)}")

    def _flatten(self, schema: Json) -> Json:
        """Return a schema with its reference, `allOf` and `anyOf` merged into it.

        No two branches of an `anyOf` in the document have the same type.
        """
        if "$ref" in schema:
            schema = self._schemas[schema["$ref"].rpartition("/")[2]]
        flat: dict[str, Any] = {"properties": {}, "required": [], **schema, "type": _list_types(schema)}
        for part in map(self._flatten, (*schema.get("allOf", ()), *schema.get("anyOf", ()))):
            flat |= {
                **part,
                "type": [*flat["type"], *part["type"]],
                "properties": {**flat["properties"], **part["properties"]},
                "required": [*flat["required"], *part["required"]],
            }
        return flat

    def _show_name(self, name: str) -> str:
        return name if name in self._names else f"<a name of {len(name)} characters>"


def _compare_headers(headers: Mapping[str, str], media_type: str) -> Iterator[Difference]:
    for name in ("Date", "Content-Type"):
        if name not in headers:
            yield Difference(f"header {name}", "is missing")
    actual, _, parameters = headers.get("Content-Type", media_type).partition(";")
    if actual.strip().lower() != media_type:
        yield Difference("header Content-Type", f"is another media type than {media_type}")
    if "charset" in parameters.lower() and not re.search(r"charset=\"?(utf-8|us-ascii)\b", parameters, re.IGNORECASE):
        yield Difference("header Content-Type", "has another charset than UTF-8")
    for name in headers:
        if name.lower() not in ORDINARY_HEADERS:
            shown = name if _SHOWN_HEADER.fullmatch(name) else f"<a name of {len(name)} characters>"
            yield Difference(f"header {shown}", "is not described")


def _compare_scalar(schema: Json, value: Any) -> str:
    if isinstance(value, str) and "pattern" in schema and not re.search(schema["pattern"], value):
        return f"has another form: {mask_digits(value)}"
    if isinstance(value, str) and _find_role(schema) == "base64" and not _is_base64(value):
        return "is no base64 text"
    if isinstance(value, int) and (limit := _RANGES.get(schema.get("format", ""))) and not -limit <= value < limit:
        return f"is beyond {schema['format']}"
    form = find_form(_find_role(schema), value)
    return f"{FORM}{form}" if form else ""


def _find_role(schema: Json) -> Role | None:
    if "contentEncoding" in schema:
        return "base64"
    if "array" in schema["type"]:
        return "array"
    return "moment" if "integer" in schema["type"] and "pattern" in schema else None


def _list_types(schema: Json) -> list[str]:
    if "enum" in schema:
        return sorted({name_json_type(each) for each in schema["enum"]})
    types = schema.get("type", "object" if "properties" in schema else [])
    return [types] if isinstance(types, str) else list(types)


def _list_names(schema: Any) -> Iterator[str]:
    kind = name_json_type(schema)
    for part in schema if kind == "array" else schema.values() if kind == "object" else ():
        yield from _list_names(part)
    if kind == "object":
        yield from schema.get("properties", ())


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode("".join(text.split()), validate=True)
    except ValueError:
        return False
    return True
