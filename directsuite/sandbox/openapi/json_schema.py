"""The words in which the document's schemas are written: small constructors for JSON Schema 2020-12.

Every object admits members that are not listed: the services may add some, and clients must live with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Schema: TypeAlias = dict[str, Any]


def text(description: str = "", **keywords: Any) -> Schema:
    """A string; `keywords` are further JSON Schema keywords, such as `minLength`."""
    return _described({"type": "string", **keywords}, description)


def boolean(description: str = "") -> Schema:
    """`true` or `false`."""
    return _described({"type": "boolean"}, description)


def integer(description: str = "", **keywords: Any) -> Schema:
    """A whole number of 32 bits, the specification's `int`."""
    return _described({"type": "integer", "format": "int32", **keywords}, description)


def long(description: str = "", **keywords: Any) -> Schema:
    """A whole number of 64 bits, the specification's `long`."""
    return _described({"type": "integer", "format": "int64", **keywords}, description)


def number(description: str = "", **keywords: Any) -> Schema:
    """A number with or without a fraction."""
    return _described({"type": "number", **keywords}, description)


def base64(description: str = "") -> Schema:
    """Bytes as base64 text."""
    return _described({"type": "string", "format": "byte", "contentEncoding": "base64"}, description)


def date(description: str = "") -> Schema:
    """A calendar day, `yyyy-MM-dd`."""
    return text(description, format="date")


def one_of(values: Iterable[Any], description: str = "") -> Schema:
    """One of the listed values."""
    return _described({"enum": list(values)}, description)


def ref(name: str, description: str = "") -> Schema:
    """The schema that the document keeps under `name`."""
    return _described({"$ref": f"#/components/schemas/{name}"}, description)


def array_of(items: Schema, description: str = "", **keywords: Any) -> Schema:
    """A list of `items`."""
    return _described({"type": "array", "items": items, **keywords}, description)


def nullable(schema: Schema) -> Schema:
    """`schema`, or null in its place."""
    kind = schema.get("type")
    if isinstance(kind, str):
        return {**schema, "type": [kind, "null"]}
    without_description = {keyword: value for keyword, value in schema.items() if keyword != "description"}
    return _described({"anyOf": [without_description, {"type": "null"}]}, schema.get("description", ""))


def all_nullable(members: Mapping[str, Schema]) -> dict[str, Schema]:
    """The same members, each of which may be null: how Java services write what is absent."""
    return {name: nullable(schema) for name, schema in members.items()}


def obj(
    description: str = "",
    *,
    required: Mapping[str, Schema] | None = None,
    optional: Mapping[str, Schema] | None = None,
) -> Schema:
    """An object with members that must be there, members that may be there, and any others."""
    must, may = required or {}, optional or {}
    schema: Schema = {"type": "object", "properties": {**must, **may}, "additionalProperties": True}
    if must:
        schema["required"] = list(must)
    return _described(schema, description)


def extending(parent: str, added: Schema) -> Schema:
    """The named schema `parent` with what `added` says on top, as the specification's "extends"."""
    schema: Schema = {"allOf": [ref(parent), {key: value for key, value in added.items() if key != "description"}]}
    return _described(schema, added.get("description", ""))


def _described(schema: Schema, description: str) -> Schema:
    return {**schema, "description": description} if description else schema
