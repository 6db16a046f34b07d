"""The operations of an OpenAPI document as the page shows them, and the document's examples as commands for a shell.

An example is what a document's `example` and `examples` say, put together. A value that only an answer can give has
`x-source` in place of an example: the operation that answers it goes before, and a variable keeps the value.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any, TypeAlias, TypeGuard
from urllib.parse import quote

import attrs
import msgspec

Json: TypeAlias = dict[str, Any]

_DEEPEST = 6  # references within references that are followed
_WIDEST = 80  # characters of JSON on one line
_URLS = {
    "/signing": "DIRECTSUITE_SIGNING_URL",
    "/fax": "DIRECTSUITE_FAX_URL",
    "/message-rest/api/message": "DIRECTSUITE_MESSAGE_URL",
    "/DirectRegistrationRESTful/rest/Patient": "DIRECTSUITE_REGISTRATION_URL",
}
"""The variables that hold the URLs of the services."""


@attrs.frozen
class Operation:
    """An operation, and the document that it is of."""

    name: str
    method: str
    path: str
    definition: Json
    document: Json = attrs.field(repr=False)

    @property
    def tag(self) -> str:
        """What the operation belongs to."""
        return str(self.definition["tags"][0])

    @property
    def texts(self) -> list[str]:
        """Its summary, its description where it has one, and the description of its tag."""
        [of_tag] = [each["description"] for each in self.document["tags"] if each["name"] == self.tag]
        return [*(self.definition[key] for key in ("summary", "description") if key in self.definition), of_tag]

    def matches(self, text: str) -> bool:
        """Return True if each word of a text without capitals is in its name, path, tag or texts."""
        own = " ".join([self.name, self.method, self.path, self.tag, *self.texts[:-1]]).casefold()
        return all(word in own for word in text.split())

    def described(self) -> Json:
        """Its parameters and answers, and the schemas of what it takes and gives."""
        answers: dict[str, Json] = resolved(self.document, self.definition["responses"])
        return {
            "parameters": resolved(self.document, self.definition.get("parameters", [])),
            "answers": {status: answer.get("description", "") for status, answer in answers.items()},
            "request": _schemas(resolved(self.document, self.definition.get("requestBody", {}))),
            "success": _schemas(answers.get("200", {})),
        }


def operations_of(document: Json) -> list[Operation]:
    """The operations of an OpenAPI document, in its order."""
    paths: dict[str, dict[str, Json]] = document["paths"]
    return [
        Operation(definition["operationId"], method.upper(), path, definition, document)
        for path, methods in paths.items()
        for method, definition in methods.items()
    ]


@attrs.frozen
class Request:
    """A request; `$name` in its path and body is a member of an earlier answer."""

    method: str
    path: str
    media_type: str | None
    body: str | None
    takes_bearer: bool
    kept: str | None
    """The JSON pointer of the member of the answer that later requests need; its last part is the variable's name."""

    @property
    def variable(self) -> str:
        """The name of the variable that keeps it."""
        return (self.kept or "").rpartition("/")[2]

    def command(self, root: str, token: str | None = None) -> str:
        """The request as a command. token: the variable with the token of a control API that needs one."""
        service = next((each for each in _URLS if self.path.startswith(f"{each}/")), None)
        url = f"{root}{self.path}" if service is None else f"${_URLS[service]}{self.path.removeprefix(service)}"
        bearer = "DIRECTSUITE_TOKEN" if self.takes_bearer else token if service is None else None
        words = ["curl -sS", *([] if self.method == "GET" else [f"-X {self.method}"]), f'"{url}"']
        if bearer is not None:
            words.append(f'-H "Authorization: Bearer ${bearer}"')
        if self.body is not None:
            quoted = re.sub(r"\$\w+", r"""'"\g<0>"'""", shlex.quote(self.body))
            words += [f"-H 'Content-Type: {self.media_type}'", f"-d {quoted}"]
        if self.kept is None:
            return " ".join(words)
        member = "".join(f"[{each}]" if each.isdecimal() else f'["{each}"]' for each in self.kept.split("/")[1:])
        program = f"import json, sys; print(json.load(sys.stdin){member})"
        return f"{self.variable}=$({' '.join(words)} |\n  python3 -c '{program}')"


def example_of(operations: Mapping[str, Operation], name: str) -> list[Request]:
    """The requests that do an operation: those that it needs before, and its own."""
    steps = dict[str, Request]()
    _add_step(operations, name, None, steps)
    return list(steps.values())


def _add_step(operations: Mapping[str, Operation], name: str, kept: str | None, steps: dict[str, Request]) -> None:
    operation = operations[name]
    definition, document = operation.definition, operation.document
    path, query, sources = operation.path, list[str](), list[Json]()
    for parameter in definition["parameters"]:
        value = example(document, parameter, sources)
        text = quote(_text(value), safe="$@")
        if parameter["in"] == "path":
            path = path.replace(f"{{{parameter['name']}}}", text)
        elif value is not None:
            query.append(f"{parameter['name']}={text}")
    bodies: dict[str, Json] = definition.get("requestBody", {}).get("content", {})
    media_type = next(iter(bodies), None)
    body = None if media_type is None else example(document, bodies[media_type], sources)
    for source in sources:
        _add_step(operations, source["operationId"], source["member"], steps)
    if "x-after" in definition:
        _add_step(operations, definition["x-after"], None, steps)
    if name in steps and steps[name].kept != kept:
        raise ValueError(f"the example of another operation needs two answers of {name}")
    steps.setdefault(
        name,
        Request(
            operation.method,
            f"{path}?{'&'.join(query)}" if query else path,
            media_type,
            _text(body) if body else None,
            {"bearer": []} in definition.get("security", []),
            kept,
        ),
    )


def example(document: Json, part: Json, sources: list[Json]) -> Any:
    """The example of a parameter, a media type or a schema; None where the document gives none.

    What comes from the answer of another operation is added to the sources.
    """
    match part:
        case {"example": value} | {"examples": [value, *_]} | {"enum": [value, *_]}:
            return value
        case {"x-source": {"member": str(member)} as source}:
            sources.append(source)
            return f"${member.rpartition('/')[2]}"
        case {"$ref": str(reference)}:
            return example(document, _target(document, reference), sources)
        case {"schema": schema}:
            return example(document, schema, sources)
        case {"items": items}:
            return [example(document, items, sources)]
        case {"allOf": parts}:
            return {name: value for each in parts for name, value in example(document, each, sources).items()}
        case {"properties": properties}:
            wanted = {name for name, each in properties.items() if each.keys() & {"examples", "x-source"}}
            wanted |= set(part.get("required", ()))
            return {name: example(document, each, sources) for name, each in properties.items() if name in wanted}
        case _:
            return None


def _text(value: Any) -> str:
    """A value as it stands in a request: text as it is, anything else as JSON, a long object with a line a member."""
    if isinstance(value, str):
        return value
    line = msgspec.json.format(msgspec.json.encode(value), indent=0).decode()
    if len(line) <= _WIDEST or not _is_object(value):
        return line
    members = [
        f'  "{name}": {msgspec.json.format(msgspec.json.encode(each), indent=0).decode()}'
        for name, each in value.items()
    ]
    return "{\n" + ",\n".join(members) + "\n}"


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
    if not isinstance(reference, str) or depth == _DEEPEST:
        return {name: resolved(document, each, depth) for name, each in part.items()}
    return resolved(document, _target(document, reference), depth + 1)


def _target(document: Json, reference: str) -> Json:
    """What a reference such as `#/components/schemas/Message` stands for."""
    target = document
    for name in reference.removeprefix("#/").split("/"):
        target = target[name]
    return target


def _is_array(part: object) -> TypeGuard[list[Any]]:
    return isinstance(part, list)


def _is_object(part: object) -> TypeGuard[Json]:
    return isinstance(part, dict)
