"""The operations of an OpenAPI document for the page, and their examples as shell commands.

An example consists of the `example` and `examples` values of a document. A value from the response of another
operation has `x-source` instead: the commands first run that operation and store the value in a variable.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any, TypeAlias
from urllib.parse import quote

import attrs
import msgspec

Json: TypeAlias = dict[str, Any]

_MAX_REFERENCE_DEPTH = 6
_MAX_LINE_CHARS = 80  # of JSON
_URL_VARIABLES = {
    "/signing": "DIRECTSUITE_SIGNING_URL",
    "/fax": "DIRECTSUITE_FAX_URL",
    "/message-rest/api/message": "DIRECTSUITE_MESSAGE_URL",
    "/DirectRegistrationRESTful/rest/Patient": "DIRECTSUITE_REGISTRATION_URL",
}


@attrs.frozen
class OpenApiOperation:
    """An operation of an OpenAPI document."""

    name: str
    method: str
    path: str
    definition: Json
    document: Json = attrs.field(repr=False)

    @property
    def tag(self) -> str:
        """The group of the operation."""
        return str(self.definition["tags"][0])

    @property
    def texts(self) -> list[str]:
        """The summary, the description if there is one, and the description of the tag."""
        [of_tag] = [each["description"] for each in self.document["tags"] if each["name"] == self.tag]
        return [*(self.definition[key] for key in ("summary", "description") if key in self.definition), of_tag]

    def matches(self, text: str) -> bool:
        """Return True if the operation's name, method, path, tag and texts contain each word of a case-folded text."""
        own = " ".join([self.name, self.method, self.path, self.tag, *self.texts[:-1]]).casefold()
        return all(word in own for word in text.split())

    def describe(self) -> Json:
        """Return `parameters`, `answers` (texts by status), and the schemas `request` and `success` as text or None."""
        responses: dict[str, Json] = _resolve_references(self.document, self.definition["responses"])
        return {
            "parameters": _resolve_references(self.document, self.definition.get("parameters", [])),
            "answers": {status: response.get("description", "") for status, response in responses.items()},
            "request": _format_schemas(_resolve_references(self.document, self.definition.get("requestBody", {}))),
            "success": _format_schemas(responses.get("200", {})),
        }


def list_operations(document: Json) -> list[OpenApiOperation]:
    """List the operations of a document in its order."""
    paths: dict[str, dict[str, Json]] = document["paths"]
    return [
        OpenApiOperation(definition["operationId"], method.upper(), path, definition, document)
        for path, methods in paths.items()
        for method, definition in methods.items()
    ]


@attrs.frozen
class _ExampleRequest:
    method: str
    path: str
    media_type: str | None
    body: str | None
    needs_bearer: bool
    result_pointer: str | None
    """The JSON pointer of the response member for later requests. None: no later request needs one."""

    @property
    def variable(self) -> str:
        return (self.result_pointer or "").rpartition("/")[2]

    def format_command(self, root: str, token: str | None = None) -> str:
        service = next((each for each in _URL_VARIABLES if self.path.startswith(f"{each}/")), None)
        url = (
            f"{root}{self.path}" if service is None else f"${_URL_VARIABLES[service]}{self.path.removeprefix(service)}"
        )
        bearer = "DIRECTSUITE_TOKEN" if self.needs_bearer else token if service is None else None
        words = ["curl -sS", *([] if self.method == "GET" else [f"-X {self.method}"]), f'"{url}"']
        if bearer is not None:
            words.append(f'-H "Authorization: Bearer ${bearer}"')
        if self.body is not None:
            quoted = re.sub(r"\$\w+", r"""'"\g<0>"'""", shlex.quote(self.body))
            words += [f"-H 'Content-Type: {self.media_type}'", f"-d {quoted}"]
        if self.result_pointer is None:
            return " ".join(words)
        member = "".join(
            f"[{each}]" if each.isdecimal() else f'["{each}"]' for each in self.result_pointer.split("/")[1:]
        )
        program = f"import json, sys; print(json.load(sys.stdin){member})"
        return f"{self.variable}=$({' '.join(words)} |\n  python3 -c '{program}')"


def build_example(operations: Mapping[str, OpenApiOperation], name: str) -> list[_ExampleRequest]:
    """Return the requests of an operation's example: required other operations, then the operation."""
    steps = dict[str, _ExampleRequest]()
    _add_step(operations, name, None, steps)
    return list(steps.values())


def _add_step(
    operations: Mapping[str, OpenApiOperation], name: str, result_pointer: str | None, steps: dict[str, _ExampleRequest]
) -> None:
    operation = operations[name]
    definition, document = operation.definition, operation.document
    path, query, sources = operation.path, list[str](), list[Json]()
    for parameter in definition["parameters"]:
        value = find_example(document, parameter, sources)
        text = quote(_format_value(value), safe="$@")
        if parameter["in"] == "path":
            path = path.replace(f"{{{parameter['name']}}}", text)
        elif value is not None:
            query.append(f"{parameter['name']}={text}")
    bodies: dict[str, Json] = definition.get("requestBody", {}).get("content", {})
    media_type = next(iter(bodies), None)
    body = None if media_type is None else find_example(document, bodies[media_type], sources)
    for source in sources:
        _add_step(operations, source["operationId"], source["member"], steps)
    if "x-after" in definition:
        _add_step(operations, definition["x-after"], None, steps)
    if name in steps and steps[name].result_pointer != result_pointer:
        raise ValueError(f"an example needs two different values from responses of {name}")
    steps.setdefault(
        name,
        _ExampleRequest(
            operation.method,
            f"{path}?{'&'.join(query)}" if query else path,
            media_type,
            _format_value(body) if body else None,
            {"bearer": []} in definition.get("security", []),
            result_pointer,
        ),
    )


def find_example(document: Json, part: Json, sources: list[Json]) -> Any:
    """Return the example of a parameter, media type or schema, or None if it has none.

    sources: receives the `x-source` of each value from another operation, which is `$name` in the example.
    """
    match part:
        case {"example": value} | {"examples": [value, *_]} | {"enum": [value, *_]}:
            return value
        case {"x-source": {"member": str(member)} as source}:
            sources.append(source)
            return f"${member.rpartition('/')[2]}"
        case {"$ref": str(reference)}:
            return find_example(document, _find_target(document, reference), sources)
        case {"schema": schema}:
            return find_example(document, schema, sources)
        case {"items": items}:
            return [find_example(document, items, sources)]
        case {"allOf": parts}:
            return {name: value for each in parts for name, value in find_example(document, each, sources).items()}
        case {"properties": properties}:
            wanted = {name for name, each in properties.items() if each.keys() & {"examples", "x-source"}}
            wanted |= set(part.get("required", ()))
            return {name: find_example(document, each, sources) for name, each in properties.items() if name in wanted}
        case _:
            return None


def _format_value(value: Any) -> str:
    if isinstance(value, str):
        return value
    encoded = msgspec.json.encode(value)
    line = msgspec.json.format(encoded, indent=0).decode()
    return line if len(line) <= _MAX_LINE_CHARS else msgspec.json.format(encoded, indent=2).decode()


def _format_schemas(part: Json) -> str | None:
    schemas = {media: each.get("schema") for media, each in part.get("content", {}).items()}
    return msgspec.json.format(msgspec.json.encode(schemas), indent=2).decode() if schemas else None


def _resolve_references(document: Json, part: Any, depth: int = 0) -> Any:
    match part:
        case {"$ref": str(reference)} if depth < _MAX_REFERENCE_DEPTH:
            return _resolve_references(document, _find_target(document, reference), depth + 1)
        case {**members}:
            return {name: _resolve_references(document, each, depth) for name, each in members.items()}
        case [*elements]:
            return [_resolve_references(document, each, depth) for each in elements]
        case _:
            return part


def _find_target(document: Json, reference: str) -> Json:
    target = document
    for name in reference.removeprefix("#/").split("/"):
        target = target[name]
    return target
