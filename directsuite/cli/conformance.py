"""What an answer has that the OpenAPI document of the services does not say, and what it lacks: paths and types only.

    answer ──► status ──► headers ──► JSON ─► schema of the operation ─► Difference, …
                                        └───► the SDK's own reading, written again ─► Difference, …

No difference holds a value of the answer. A member's name is shown where the document has it somewhere, for any other
may be a patient's; a date's form, with a 9 for each digit; a header's name, where it is of words without digits.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias, TypeGuard

import attrs

Json: TypeAlias = Mapping[str, Any]

_MEMBER = re.compile(r"\.([^.\[\]]+)")
_DATE = re.compile(r"[0-9]{4}[-/.][0-9]{1,2}[-/.][0-9]{1,2}|[0-9]{1,2}[-/.][0-9]{1,2}[-/.][0-9]{4}")
_LIKE_A_DATE = re.compile(r"[0-9TZ :.,/+-]{8,40}\Z")
_RANGES = {"int32": 2**31, "int64": 2**63}
_CHECKED_HEADERS = ("Date", "Content-Type")
_ORDINARY_HEADERS = frozenset(
    (
        *("age", "alt-svc", "cache-control", "connection", "content-encoding", "content-length", "content-type"),
        *("content-security-policy", "date", "expires", "keep-alive", "pragma", "referrer-policy", "retry-after"),
        *("server", "strict-transport-security", "transfer-encoding", "vary", "via", "www-authenticate"),
        *("x-content-type-options", "x-frame-options", "x-xss-protection"),
    )
)
"""What any HTTP server or proxy adds, or a client heeds without being told."""
FORM = "has the form: "
"""What begins the text of a form that the document allows, and the sandbox sends only in an imitation."""
_MOMENT = "2026-05-01T12:00:00.000+0000"
_SMALLEST_IN_MILLISECONDS = 10**11
_OTHER_NAMES = {"attachmentList": "attachments"}
"""Members that some servers send under another name, which the SDK reads."""
_HEADER = re.compile(r"[A-Za-z]+(-[A-Za-z]+)*")
_LONGEST_HEADER = 40


@attrs.frozen(order=True)
class Difference:
    """One thing that differs."""

    path: str
    """Where: `$.messages[].uid`, `status`, or `header Date`."""
    what: str
    """What differs, without any value."""

    @property
    def is_form(self) -> bool:
        """True if the document allows it."""
        return self.what.startswith(FORM)


class Specification:
    """An OpenAPI document, by operation."""

    def __init__(self, document: Json) -> None:
        self._schemas: Json = document["components"]["schemas"]
        self._operations = {
            definition["operationId"]: definition
            for methods in document["paths"].values()
            for method, definition in methods.items()
            if method != "parameters"
        }
        self._names = frozenset(_names_in(self._schemas))

    def differences(self, operation: str, status: int, headers: Mapping[str, str], body: bytes) -> list[Difference]:
        """What differs in an answer of an operation, each once, sorted."""
        responses: Json = self._operations[operation]["responses"]
        try:
            return sorted(set(self._differences(responses, status, headers, body)))
        except RecursionError:
            return [Difference("$", "is nested too deeply")]

    def shown(self, path: str) -> str:
        """A path without indexes, and with the length of a name that the document has nowhere."""
        path = re.sub(r"\[\d+\]", "[]", path)
        return _MEMBER.sub(lambda member: f".{self._shown(member[1])}", path)

    def lost(self, raw: object, again: object, path: str = "$") -> Iterator[Difference]:
        """What an answer's JSON has that is missing, or of another type, where the SDK has read and written it."""
        if is_object(raw) and is_object(again):
            for name, member in raw.items():
                below = f"{path}.{self._shown(name)}"
                name = name if name in again else _OTHER_NAMES.get(name, name)
                if name in again:
                    yield from self.lost(member, again[name], below)
                elif member not in _NOTHING:
                    yield Difference(below, "is lost where the SDK reads it")
        elif is_object(raw) and is_array(again) and len(again) == 1:
            yield from self.lost(raw, again[0], path)
        elif is_array(raw) and is_array(again):
            if len(raw) != len(again):
                yield Difference(f"{path}[]", "has other elements where the SDK reads it")
            for member, other in zip(raw, again, strict=False):
                yield from self.lost(member, other, f"{path}[]")
        elif difference := _of_leaf(raw, again):
            yield Difference(path, difference)

    def _differences(
        self, responses: Json, status: int, headers: Mapping[str, str], body: bytes
    ) -> Iterator[Difference]:
        documented = responses.get(str(status))
        if documented is None:
            yield Difference("status", f"is {status}, which is not among {', '.join(sorted(responses))}")
            documented = responses["200"]
        content: Json = documented["content"]
        yield from _of_headers(headers, content)
        media_type = next(iter(content))
        if media_type == "application/json":
            try:
                value = json.loads(body)
            except ValueError:
                yield Difference("$", "is no JSON")
            else:
                yield from self._of_value(content[media_type]["schema"], value, "$")
        else:
            yield from _of_text({"contentEncoding": "base64"}, body.decode("ascii", "replace").strip(), "$")

    def _of_value(self, schema: Json, value: object, path: str) -> Iterator[Difference]:
        branches = list(self._branches(schema))
        if form := _find_form(branches, value):
            yield Difference(path, f"{FORM}{form}")
        merged: Json = {"type": [name for branch in branches for name in _types(branch)]}
        schema = next((each for each in branches if _fits(value, _types(each))), merged)
        types = _types(schema)
        if not _fits(value, types):
            yield Difference(path, f"is {_type_of(value)}, not {' or '.join(types)}")
        elif "enum" in schema and value not in schema["enum"]:
            yield Difference(path, "has a value that is not listed")
        elif isinstance(value, str):
            yield from _of_text(schema, value, path)
        elif isinstance(value, int) and not isinstance(value, bool):
            yield from _of_number(schema, value, path)
        elif is_array(value):
            items: Json = schema.get("items", {})
            for each in value:
                yield from self._of_value(items, each, f"{path}[]")
        elif is_object(value):
            yield from self._of_members(schema, value, path)

    def _of_members(self, schema: Json, value: Json, path: str) -> Iterator[Difference]:
        properties: Json = schema.get("properties", {})
        for name in schema.get("required", ()):
            if name not in value:
                yield Difference(f"{path}.{name}", "is missing")
        for name, member in value.items():
            if (other := _OTHER_NAMES.get(name)) in properties and other not in value:
                yield Difference(f"{path}.{name}", f"{FORM}in place of {other}")
            if name in properties:
                yield from self._of_value(properties[name], member, f"{path}.{name}")
            elif properties:
                yield Difference(f"{path}.{self._shown(name)}", f"is not described: {_type_of(member)}")

    def _branches(self, schema: Json) -> Iterator[Json]:
        """What a value may be, of which each has its own types."""
        schema = self._resolved(schema)
        for each in schema.get("anyOf", ()):
            yield from self._branches(each)
        if "anyOf" not in schema:
            yield schema

    def _shown(self, name: str) -> str:
        return name if name in self._names else f"<a name of {len(name)} characters>"

    def _resolved(self, schema: Json) -> Json:
        """A schema without references, what `allOf` lists in one."""
        while "$ref" in schema:
            schema = self._schemas[schema["$ref"].rpartition("/")[2]]
        if "allOf" not in schema:
            return schema
        parts = [self._resolved(each) for each in schema["allOf"]]
        return {
            "type": "object",
            "properties": {name: each for part in parts for name, each in part.get("properties", {}).items()},
            "required": [name for part in parts for name in part.get("required", ())],
        }


_NOTHING: Sequence[object] = (None, [], {}, "")


def _find_form(branches: Sequence[Json], value: object) -> str:
    """Name the form of a value that has several in the document; empty for the one that the sandbox sends."""
    types = {name for each in branches for name in _types(each)}
    if value is None and {"array", "null"} <= types:
        return "null for an empty array"
    patterns = [each["pattern"] for each in branches if "pattern" in each]
    if isinstance(value, bool) or not any(re.search(each, _MOMENT) for each in patterns):
        return ""
    if isinstance(value, int):
        return "milliseconds since 1970" if abs(value) >= _SMALLEST_IN_MILLISECONDS else "seconds since 1970"
    is_allowed = isinstance(value, str) and any(re.search(each, value) for each in patterns)
    return f"a moment as {_form(value)}" if is_allowed and _form(value) != _form(_MOMENT) else ""


def _of_leaf(raw: object, again: object) -> str:
    """How a value differs where the SDK has read and written it; nothing for another form of the same."""
    if isinstance(raw, str) and isinstance(again, str):
        same = raw == again or (_DATE.match(raw) and _DATE.match(again)) or _same_base64(raw, again)
        return "" if same else "is another text where the SDK reads it"
    if raw in _NOTHING and again in _NOTHING:
        return ""
    if is_array(raw) and is_object(again) and len(raw) == len(again):
        return ""  # pairs of key and value, which the SDK reads as a mapping
    is_moment = isinstance(raw, int) and isinstance(again, str) and _DATE.match(again) is not None
    return "" if raw == again or is_moment else f"is {_type_of(raw)}, and {_type_of(again)} where the SDK reads it"


def _of_headers(headers: Mapping[str, str], content: Json) -> Iterator[Difference]:
    for name in _CHECKED_HEADERS:
        if name not in headers:
            yield Difference(f"header {name}", "is missing")
    media_type, _, parameters = headers.get("Content-Type", next(iter(content))).partition(";")
    if media_type.strip().lower() not in content:
        yield Difference("header Content-Type", f"is another media type than {' or '.join(content)}")
    if "charset" in parameters.lower() and not re.search(r"charset=\"?(utf-8|us-ascii)\b", parameters, re.IGNORECASE):
        yield Difference("header Content-Type", "has another charset than UTF-8")
    for name in headers:
        if name.lower() not in _ORDINARY_HEADERS:
            shown = len(name) <= _LONGEST_HEADER and _HEADER.fullmatch(name)
            yield Difference(f"header {name if shown else f'<a name of {len(name)} characters>'}", "is not described")


def _of_text(schema: Json, text: str, path: str) -> Iterator[Difference]:
    pattern = {"date": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"}.get(schema.get("format", ""), schema.get("pattern"))
    if pattern is not None and not re.search(pattern, text):
        yield Difference(path, f"has another form: {_form(text)}")
    elif schema.get("contentEncoding") == "base64" and not _is_base64(text):
        yield Difference(path, "is no base64 text")
    elif schema.get("contentEncoding") == "base64" and len(text.split()) > 1:
        yield Difference(path, f"{FORM}base64 with line breaks")
    elif len(text) < schema.get("minLength", 0):
        yield Difference(path, "is empty")


def _of_number(schema: Json, number: int, path: str) -> Iterator[Difference]:
    limit = _RANGES.get(schema.get("format", ""))
    if limit is not None and not -limit <= number < limit:
        yield Difference(path, f"is beyond {schema['format']}")
    elif "minimum" in schema and number < schema["minimum"]:
        yield Difference(path, f"is below {schema['minimum']}")


def _form(text: object) -> str:
    """The form of a date, with a 9 for each digit; of any other text, nothing."""
    is_like_a_date = isinstance(text, str) and _LIKE_A_DATE.match(text)
    return re.sub("[0-9]", "9", str(text)) if is_like_a_date else "no date in digits"


def _names_in(schema: object) -> Iterator[str]:
    """The names of all members that schemas describe."""
    for each in schema if is_array(schema) else ():
        yield from _names_in(each)
    for name, part in schema.items() if is_object(schema) else ():
        if name == "properties" and is_object(part):
            yield from part
        yield from _names_in(part)


def _types(schema: Json) -> list[str]:
    """The types that a schema admits; none where it admits all."""
    types = schema.get("type", "object" if "properties" in schema else ())
    if "enum" in schema and not types:
        return sorted({_type_of(each) for each in schema["enum"]})
    return [types] if isinstance(types, str) else list(types)


def _fits(value: object, types: Sequence[str]) -> bool:
    kind = _type_of(value)
    return not types or kind in types or (kind == "integer" and "number" in types)


def _type_of(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    names = ((str, "string"), (int, "integer"), (float, "number"), (list, "array"))
    return next((name for kind, name in names if isinstance(value, kind)), "object")


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode("".join(text.split()), validate=True)
    except ValueError:
        return False
    return True


def _same_base64(raw: str, again: str) -> bool:
    return "".join(raw.split()).rstrip("=") == again.rstrip("=")


def is_array(value: object) -> TypeGuard[list[Any]]:
    """Return True for a JSON array."""
    return isinstance(value, list)


def is_object(value: object) -> TypeGuard[dict[str, Any]]:
    """Return True for a JSON object."""
    return isinstance(value, dict)
