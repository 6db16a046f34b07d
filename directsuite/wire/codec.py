"""Models to JSON and back: a cattrs converter with one generated function per class and direction.

    decode(GetCountResponse, b'{"success":true,"count":3}')  ->  a model, or MismatchError with the JSON path
    encode(model)                                           ->  bytes

The functions are made from the attrs metadata on first use. Reading fills an unfrozen twin of the class, whose
instances then become the class's own; a value of the expected type is passed through without a call.
A failure is found again by a second, slower walk (`Reader.find`), so that the first one pays nothing for paths.
"""

from __future__ import annotations

import functools
import re
import types
from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast, get_args, get_origin, get_type_hints

import attrs
import msgspec

from directsuite.errors import InvalidArgumentError
from directsuite.secret import Secret
from directsuite.wire.dates import write_datetime
from directsuite.wire.mismatch import MismatchError
from directsuite.wire.models import Model, OpenEnum, Wire
from directsuite.wire.parsing import Shape, parse_in_parts
from directsuite.wire.values import Maybe, Read, Reader, Sequence, is_nothing, reader_for, write_pairs

if TYPE_CHECKING:
    import cattrs

M = TypeVar("M", bound=Model)
T = TypeVar("T")

_LONE = re.compile("[\ud800-\udfff]")  # surrogates that came without their other half

_DAY = len("yyyy-MM-dd")


def decode(cls: type[M], document: bytes) -> M:
    """A model from a JSON document. Raises MismatchError, which names the place and what was wanted there."""
    return structure(cls, parse_for(cls, document))


def parse_for(cls: type[Model], document: bytes) -> Any:
    """Plain values for `structure` from a JSON document; MismatchError where it is not JSON."""
    return parse_in_parts(document, _lists(cls))


def structure(cls: type[M], value: Any) -> M:
    """A model from plain values, as `parse` gives them."""
    try:
        return cast("M", _structurer(cls)(value, cls))
    except MismatchError:
        pass
    raise _ModelReader(cls).find(value, "$") or MismatchError("readable")


def wire_name(cls: type[Model], name: str) -> str:
    """How a model's field is spelled on the wire."""
    return next(field.key for field in _fields(cls) if field.name == name)


def unstructure(model: Model) -> dict[str, Any]:
    """Plain values from a model; bytes and secrets are left to `encode`."""
    document: dict[str, Any] = _unstructurer(type(model))(model)
    return document


def encode(document: Any) -> bytes:
    """JSON from a model or from plain values: bytes become base64 text, secrets their text.

    Raises InvalidArgumentError for a text that has no UTF-8.
    """
    document = unstructure(document) if isinstance(document, Model) else document
    try:
        return msgspec.json.encode(document, enc_hook=_reveal)
    except UnicodeEncodeError:  # its own text would show the whole value
        pass
    parameter = next((path for path, text in _texts(document, "") if _LONE.search(text)), "a text")
    raise InvalidArgumentError("it holds half a surrogate pair, which has no UTF-8", parameter=parameter)


def _texts(document: Any, path: str) -> Iterator[tuple[str, str]]:
    """Every text in plain values, with its path."""
    if isinstance(document, dict):
        for name, member in cast("dict[str, Any]", document).items():
            yield "a name", name
            yield from _texts(member, f"{path}.{name}" if path else name)
    elif isinstance(document, list):
        for number, element in enumerate(cast("Iterable[Any]", document)):
            yield from _texts(element, f"{path}[{number}]")
    elif isinstance(document, str | Secret):
        yield path, document.reveal() if isinstance(document, Secret) else document


def _reveal(value: Any) -> Any:
    if isinstance(value, Secret):
        return value.reveal()
    if isinstance(value, Model):
        return unstructure(value)
    raise NotImplementedError(type(value).__name__)


def _once_per_class(make: Callable[[Any], T]) -> Callable[[Any], T]:
    made: dict[Any, T] = {}

    def get(cls: Any) -> T:
        if cls not in made:
            made[cls] = make(cls)
        return made[cls]

    return get


@attrs.frozen
class _Field:
    """A model's field: its name here, its names on the wire, and how it is read."""

    name: str
    wire: Wire
    annotation: Any
    reader: Reader
    default: Any

    @functools.cached_property
    def key(self) -> str:
        if self.wire.name is not None:
            return self.wire.name
        head, *tail = self.name.split("_")
        return head + "".join(part.capitalize() for part in tail)

    @functools.cached_property
    def kinds(self) -> list[Any]:
        """The types that the field takes, None apart."""
        united = isinstance(self.annotation, types.UnionType)
        return [kind for kind in get_args(self.annotation) if kind is not type(None)] if united else [self.annotation]

    @property
    def reads_nothing(self) -> bool:
        """Whether its reader gives the default for nothing, so that nobody else has to look for that."""
        return self.default is None and isinstance(self.reader, Maybe)

    @property
    def required(self) -> bool:
        return self.default is attrs.NOTHING

    def absent(self, value: Any) -> bool:
        """Whether this value gives the default."""
        return not self.required and is_nothing(value, self.kinds[0])

    def read(self, value: Any) -> Any:
        """The field's value; nothing gives the default."""
        return self.fallback() if self.absent(value) else self.reader.read(value)

    @functools.cached_property
    def made_anew(self) -> bool:
        """Whether each model gets a default of its own."""
        return isinstance(self.default, attrs.Factory)  # type: ignore[arg-type]  # its stubs say that it is a function

    def fallback(self) -> Any:
        return self.default.factory() if self.made_anew else self.default


@_once_per_class
def _fields(cls: type[Any]) -> tuple[_Field, ...]:
    hints = get_type_hints(cls, include_extras=True)
    found = [_field(attribute, hints[attribute.name]) for attribute in attrs.fields(cls) if attribute.name != "extra"]
    return tuple(field for field in found if not field.wire.local)


def _field(attribute: attrs.Attribute[Any], annotation: Any) -> _Field:
    marks = [mark for mark in getattr(annotation, "__metadata__", ()) if isinstance(mark, Wire)]
    plain = get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
    wire = marks[0] if marks else Wire()
    reader: Reader = _LOCAL if wire.local else reader_for(plain, _ModelReader)
    return _Field(name=attribute.name, wire=wire, annotation=plain, reader=reader, default=attribute.default)


@_once_per_class
def shape_of(cls: type[Any]) -> Shape:
    """Where a model has base64 text, on the wire. Other names of a field are left out: beside its own they're extra."""
    fields = _fields(cls)
    shapes = {field.key: shape_of(item) for field in fields if (item := _item(field)) is not None}
    return Shape(
        texts=frozenset(field.key for field in fields if bytes in field.kinds),
        lists={name: shape for name, shape in shapes.items() if shape.texts or shape.lists},
    )


@_once_per_class
def _lists(cls: type[Any]) -> frozenset[str]:
    """The names on the wire of a model's lists of models; but not their other names, as for `shape_of`."""
    return frozenset() if cls._loose else frozenset(field.key for field in _fields(cls) if _item(field) is not None)


def _item(field: _Field) -> type[Model] | None:
    """The model that a field lists, if it does."""
    item = field.reader.item if isinstance(field.reader, Sequence) else None
    return item.cls if isinstance(item, _ModelReader) else None


class _ModelReader:
    """A nested object, or the whole document; its function is generated when it first reads one."""

    def __init__(self, cls: type[Model]) -> None:
        self.cls = cls
        self.read: Read = lambda value: _structurer(cls)(value, cls)

    def find(self, value: Any, path: str) -> MismatchError | None:
        if not isinstance(value, dict):
            return MismatchError("an object", path)
        members = cast("dict[str, Any]", value)
        for field in () if self.cls._loose else _fields(self.cls):
            key = next((key for key in (field.key, *field.wire.also) if members.get(key) is not None), field.key)
            member = members.get(key)
            if field.absent(member):
                continue
            mismatch = field.reader.find(member, f"{path}.{key}")
            if mismatch is not None:
                return MismatchError("present", mismatch.path) if key not in members else mismatch
        return None


_LOCAL = _ModelReader(Model)

# A value of exactly this type needs no reader: the test is written into the generated function.
_AS_IT_IS = {str: "type(v) is str", int: "type(v) is int", bool: "(v is True or v is False)", float: "type(v) is float"}


@_once_per_class
def _structurer(cls: type[Any]) -> Callable[[Any, Any], Any]:
    """The generated function that reads a model from a dict."""
    fields = _fields(cls)
    scope: dict[str, Any] = {
        "__name__": __name__,  # by which its frames are known as the package's
        "cls": cls,
        "twin": _twin(cls),
        "new": object.__new__,
        "MismatchError": MismatchError,
        "known": frozenset(field.key for field in fields),
    }
    lines = [
        "def structure(value, _cls=None):",
        "    if type(value) is not dict: raise MismatchError('an object')",
        "    model = new(twin); get = value.get",
        "    extra = {} if known.issuperset(value) else {key: value[key] for key in value if key not in known}",
    ]
    for number, field in enumerate(fields):
        scope[f"read{number}"] = field.reader.read if field.reads_nothing else field.read
        lines.append(f"    v = get({field.key!r})")
        lines += [f"    if v is None and extra: v = extra.pop({other!r}, None)" for other in field.wire.also]
        fill = f"model.{field.name} = {_expression(field, number, scope)}"
        if cls._loose:
            scope[f"fallback{number}"] = field.fallback
            lines.append(f"    try: {fill}")
            keep = f"model.{field.name} = fallback{number}(); extra[{field.key!r}] = v"
            lines.append(f"    except MismatchError: {keep}")
        else:
            lines.append(f"    {fill}")
    lines += [f"    model.{name} = None" for name in _local_fields(cls)]
    lines += ["    model.extra = extra", "    model.__class__ = cls", "    return model"]
    exec("\n".join(lines), scope)  # noqa: S102  source made of this package's own field names
    return cast("Callable[[Any, Any], Any]", scope["structure"])


def _twin(cls: type[Any]) -> type[Any]:
    """A class whose instances are laid out like those of a frozen one, but can be filled, eight times as fast."""
    assignable = {"__setattr__": object.__setattr__, "__delattr__": object.__delattr__}  # both, or neither is fast
    return type(f"Unfrozen{cls.__name__}", (cls,), {"__slots__": (), **assignable})


def _expression(field: _Field, number: int, scope: dict[str, Any]) -> str:
    """The field's value, out of `v`: without a call where it is as it should be."""
    kind = field.kinds[0] if len(field.kinds) == 1 else None
    otherwise = f"read{number}(v)"
    item = _item(field)
    if item is not None:
        scope[f"item{number}"] = _ModelReader(item).read if item is scope["cls"] else _structurer(item)
        return f"[item{number}(each) for each in v] if type(v) is list else {otherwise}"
    if isinstance(kind, type) and issubclass(kind, OpenEnum):
        scope[f"known{number}"] = {member.value: member for member in kind}
        otherwise = f"known{number}[v] if type(v) is str and v in known{number} else {otherwise}"
    if kind in _AS_IT_IS:
        otherwise = f"v if {_AS_IT_IS[kind]} else {otherwise}"
    if field.required or field.made_anew:
        return otherwise
    scope[f"default{number}"] = field.default
    return f"default{number} if v is None else {otherwise}"


def _local_fields(cls: type[Model]) -> list[str]:
    on_wire = {field.name for field in _fields(cls)}
    return [attribute.name for attribute in attrs.fields(cls) if attribute.name not in on_wire | {"extra"}]


@_once_per_class
def _unstructurer(cls: type[Any]) -> Callable[[Any], dict[str, Any]]:
    """The function that writes a model to a dict: what has its default is left out, unless it is required."""
    plan = [
        (field.name, field.key, field.required or field.wire.always, field.fallback, _writer(field.annotation))
        for field in _fields(cls)
    ]

    def write(model: Any) -> dict[str, Any]:
        document: dict[str, Any] = {}
        for name, key, always, fallback, writer in plan:
            value = getattr(model, name)
            if always or (value is not None and value != fallback()):
                document[key] = value if writer is None else writer(value)
        for key, value in model.extra.items():
            document.setdefault(key, value)
        return document

    return write


def _writer(annotation: Any) -> Callable[[Any], Any] | None:
    """How values of this type are written; None where JSON takes them as they are."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is list:
        item = _writer(arguments[0])
        return None if item is None else lambda values: [item(value) for value in values]
    if origin is dict:
        return write_pairs
    kinds = {kind for kind in arguments or (annotation,) if kind is not type(None)}
    if any(isinstance(kind, type) and issubclass(kind, Model) for kind in kinds):
        return unstructure
    if datetime in kinds:
        return write_datetime
    if date in kinds:
        return lambda day: day.isoformat()[:_DAY] if isinstance(day, date) else day  # a datetime is a date too
    return None


def _is_model(cls: Any) -> bool:
    return isinstance(cls, type) and issubclass(cls, Model)


@functools.cache
def converter() -> cattrs.Converter:
    """The package's cattrs converter, with these functions as its hooks: for models within models of one's own."""
    from cattrs import Converter  # a tenth of the time that a client takes to get ready, and no call needs it

    made = Converter()
    made.register_structure_hook_factory(_is_model, _structurer)
    made.register_unstructure_hook_factory(_is_model, _unstructurer)
    return made
