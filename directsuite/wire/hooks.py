"""Models to plain JSON values and back: the hooks of a cattrs converter, a generated function for each class.

    converter.structure({"email": "a@b"}, Recipient)   ->  a model, or MismatchError
    converter.unstructure(model)                       ->  what any JSON library takes, such as base64 for bytes

The functions are made from the attrs metadata when a converter is first asked for a class, and the converter keeps
them. A field is read and written by the hook that a program has registered for its type, in lists and unions too;
where there is none, by the package's own, and not by cattrs': those of `cattrs.preconf` write other formats. Reading
fills an unfrozen twin of the class, whose instances then become the class's own; a value of the expected type is passed
through without a call.
"""

# pyright: reportPrivateUsage=false
# Used: a converter's own marks.

from __future__ import annotations

import functools
import types
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast, get_args, get_origin, get_type_hints

import attrs
import msgspec

from directsuite.secret import Secret
from directsuite.wire import base64
from directsuite.wire.models import Model, OpenEnum, Wire, is_loose
from directsuite.wire.parsing import Elements, MismatchError, Shape
from directsuite.wire.values import (
    LEAVES,
    EnumReader,
    Hook,
    Maybe,
    Reader,
    Sequence,
    count_skipped,
    is_nothing,
    read_member,
    read_secret,
    reader_for,
    write_datetime,
    write_pairs,
)

if TYPE_CHECKING:
    import cattrs

T = TypeVar("T")

Write = Callable[[Any], Any]

_DAY = len("yyyy-MM-dd")
_NOT_OF_A_PROGRAM = ("cattrs", "msgspec", "directsuite")
_INHERITING = (bool, datetime)
"""Types that cattrs reads by a hook registered for their base, int or date, whose values are others on the wire."""


def make_converter() -> cattrs.Converter:
    """A new cattrs converter that reads and writes the types of the specification as the services do.

    Hooks that you register with it hold inside them too: for a type, such as `datetime`, an enum, or one of the
    specification's. `Settings(converter=...)` has a suite use it.
    """
    from cattrs import Converter  # a tenth of the time that a client takes to get ready

    converter = Converter()
    register_hooks(converter)
    return converter


def register_hooks(converter: cattrs.Converter) -> None:
    """Have a converter of your own, such as one of `cattrs.preconf`, read and write the specification's types.

    Hooks that you have registered, or register later, hold inside these types too; those that a preconfigured converter
    brings for `bytes`, `datetime` and `date` serve other types as before, but not these. `structure` raises ValueError
    where a value isn't what it should be, with the JSON path and never the value.
    """
    converter.register_structure_hook(OpenEnum, lambda value, cls: read_member(cls, value))
    converter.register_unstructure_hook(OpenEnum, _member_text)
    converter.register_structure_hook(Secret, lambda value, _: read_secret(value))
    converter.register_unstructure_hook(Secret, _reveal)
    converter.register_structure_hook_factory(_is_model, _structurer)
    converter.register_unstructure_hook_factory(_is_model, _unstructurer)


def model_reader(converter: cattrs.Converter, cls: type[Model]) -> Reader:
    """The reader of a model for this converter: a ModelReader, or the hook that a program has registered."""
    hook = converter.get_structure_hook(cls)
    reader: Reader | None = getattr(hook, "reader", None)
    return Hook(hook, cls) if reader is None else reader


def _is_model(cls: Any) -> bool:
    return isinstance(cls, type) and issubclass(cls, Model)


def _is_of_a_program(hook: Any) -> bool:
    """Return True if a program has registered this hook: cattrs has its own, preconfigured converters have more."""
    while isinstance(hook, functools.partial):
        hook = hook.func
    if hook in (list, dict):  # as cattrs copies them
        return False
    module = getattr(hook, "__module__", None)
    if module is None:  # cattrs generates functions without one, and methods of built-in types have none
        return not isinstance(hook, types.FunctionType)
    return cast("str", module).partition(".")[0] not in _NOT_OF_A_PROGRAM


def _registered(get_hook: Callable[[Any], Any], kind: Any) -> Callable[..., Any] | None:
    """The hook that a program has registered for this type."""
    try:
        hook = get_hook(kind)
    except Exception:  # noqa: BLE001  cattrs has none for this type, and says so in one of several ways
        return None
    if not _is_of_a_program(hook):
        return None
    inherited = kind in _INHERITING and _registered(get_hook, kind.__base__) is hook
    return None if inherited else cast("Callable[..., Any]", hook)


def _once_per_class(make: Callable[[Any], T]) -> Callable[[Any], T]:
    made: dict[Any, T] = {}

    def get(cls: Any) -> T:
        if cls not in made:
            made[cls] = make(cls)
        return made[cls]

    return get


@attrs.frozen
class Field:
    """A model's field: its name here, its names on the wire, its type and its default."""

    name: str
    wire: Wire
    annotation: Any
    default: Any

    @functools.cached_property
    def key(self) -> str:
        """How it is spelled on the wire."""
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
    def keys(self) -> tuple[str, ...]:
        """Its names on the wire: the specification's, then others."""
        return (self.key, *self.wire.also)

    @property
    def is_list(self) -> bool:
        """Whether it lists things."""
        return get_origin(self.annotation) is list

    @property
    def required(self) -> bool:
        """Whether it has no default."""
        return self.default is attrs.NOTHING

    def absent(self, value: Any) -> bool:
        """Return True if this value stands for the default."""
        return not self.required and is_nothing(value, self.kinds[0])

    @functools.cached_property
    def made_anew(self) -> bool:
        """Whether each model gets a default of its own."""
        return isinstance(self.default, attrs.Factory)  # type: ignore[arg-type]  # its stubs say that it is a function

    def fallback(self) -> Any:
        """The default."""
        return self.default.factory() if self.made_anew else self.default

    def spelled_otherwise(self, value: Any, extra: dict[str, Any]) -> Any:
        """The field's value, which may stand under another name: what is used is taken out of `extra`.

        What is filled goes before what is empty. Of two lists that both are, nothing is lost: what stands in both is
        given once.
        """
        for name in self.wire.also:
            other = extra.get(name)
            if self.is_list:
                if other and isinstance(other, list | dict | Elements):
                    value = _joined(value, extra.pop(name))
            elif self._empty(value) and not self._empty(other):
                value = extra.pop(name)
        return value

    def _empty(self, value: Any) -> bool:
        return value == "" or is_nothing(value, self.kinds[0])


def _joined(value: Any, other: Any) -> Any:
    """The elements of two lists, or bare elements; those that only the second has stand last."""
    if not value or value == "null":
        return other
    first, second = _listed(value), _listed(other)
    known = Counter(map(_canonical, first))
    known.subtract(map(_canonical, second))
    lacking = Counter({text: -count for text, count in known.items() if count < 0})
    more: list[Any] = []
    for element in reversed(second):
        if lacking[_canonical(element)] > 0:
            lacking[_canonical(element)] -= 1
            more.append(element)
    return [*first, *reversed(more)]


def _listed(value: Any) -> list[Any]:
    return [value] if isinstance(value, dict) else list(value)


def _canonical(element: Any) -> bytes:
    return msgspec.json.encode(element, order="sorted")


@_once_per_class
def fields_of(cls: type[Any]) -> tuple[Field, ...]:
    """A model's fields that stand on the wire, `extra` apart."""
    hints = get_type_hints(cls, include_extras=True)
    found = [_field(attribute, hints[attribute.name]) for attribute in attrs.fields(cls) if attribute.name != "extra"]
    return tuple(field for field in found if not field.wire.local)


def _field(attribute: attrs.Attribute[Any], annotation: Any) -> Field:
    marks = [mark for mark in getattr(annotation, "__metadata__", ()) if isinstance(mark, Wire)]
    kind = get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
    return Field(attribute.name, marks[0] if marks else Wire(), kind, attribute.default)


def _plain(kind: Any) -> Any:
    """The type that a program knows: `list[int]` for a list of uids."""
    if get_origin(kind) is list:
        return list[_plain(get_args(kind)[0])]  # type: ignore[misc]  # a type made when it runs
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def wire_name(cls: type[Model], name: str) -> str:
    """How a model's field is spelled on the wire."""
    return next(field.key for field in fields_of(cls) if field.name == name)


def unread_list(cls: type[Model], document: Mapping[str, Any]) -> str | None:
    """The list that an answer should have, if it has none of its own but one under a name that nobody knows.

    Without it the answer would seem empty. A bare object counts as a list where most of its members are an element's,
    or where there is a list in it; under a list's own name, too, where none of them is.
    """
    fields = fields_of(cls)
    lists = [field for field in fields if field.is_list]
    contents = [
        field for field in fields if field.is_list or get_origin(field.annotation) is dict or bytes in field.kinds
    ]
    items = {name for field in lists for name in _names_within(field)}
    names = {name for field in contents for name in field.keys if not is_nothing(document.get(name), list)}
    unread = {name for name in names if _is_no_element(document[name], items)}
    if not lists or names != unread:
        return None
    unread.update(document.keys() - {name for field in fields for name in field.keys})
    return lists[0].key if any(_may_be_a_list(document[name], items) for name in unread) else None


def _is_no_element(value: Any, items: set[str]) -> bool:
    return isinstance(value, dict) and not items & value.keys()


def _may_be_a_list(value: Any, items: set[str]) -> bool:
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        named = 2 * len(items & members.keys()) > len(members)
        return named or any(_may_be_a_list(member, items) for member in members.values())
    return isinstance(value, list) and any(element is not None for element in cast("list[object]", value))


def _names_within(field: Field) -> Iterable[str]:
    item = get_args(field.annotation)[0]
    return [name for inner in fields_of(item) for name in inner.keys] if _is_model(item) else ()


class ModelReader:
    """Reads the objects of one class for one converter; `read` is the generated function, and the converter's hook."""

    def __init__(self, cls: type[Model], converter: cattrs.Converter) -> None:
        self.cls = cls
        self.fields = fields_of(cls)

        def of_converter(kind: Any) -> Reader | None:
            """The converter's own reader for this type."""
            if kind is cls:  # it isn't made yet
                return Hook(lambda value, _: converter.structure(value, cls), cls)
            if _is_model(kind):
                return model_reader(converter, kind)
            kind = _plain(kind)
            hook = None if cls in get_args(kind) else _registered(converter.get_structure_hook, kind)
            return None if hook is None else Hook(hook, kind)

        self.readers = [reader_for(field.annotation, of_converter) for field in self.fields]
        self.read = _generated(self)

    @functools.cached_property
    def shape(self) -> Shape:
        """Where it has base64 text, on the wire. Other names of a field are left out: beside its own they're extra."""
        items = {field.key: item.shape for field, reader in self._members() if (item := _item(reader)) is not None}
        return Shape(
            texts=frozenset(field.key for field, reader in self._members() if _inner(reader) is LEAVES[bytes]),
            lists={name: shape for name, shape in items.items() if shape.texts or shape.lists},
        )

    @functools.cached_property
    def lists(self) -> frozenset[str]:
        """The names on the wire of its lists of models; but not their other names, as for `shape`."""
        listing = frozenset(field.key for field, reader in self._members() if _item(reader) is not None)
        return frozenset() if is_loose(self.cls) else listing

    def find(self, value: Any, path: str) -> MismatchError | None:
        """The mismatch in `value` with its JSON path, or None where it reads well."""
        if not isinstance(value, dict):
            return MismatchError("an object", path)
        members = cast("dict[str, Any]", value)
        for field, reader in () if is_loose(self.cls) else self._members():
            for key in _keys_read(field, members):
                member = members.get(key)
                mismatch = None if field.absent(member) else reader.find(member, f"{path}.{key}")
                if mismatch is not None:
                    return MismatchError("present", mismatch.path) if key not in members else mismatch
        return None

    def _members(self) -> Iterable[tuple[Field, Reader]]:
        return zip(self.fields, self.readers, strict=True)


def _keys_read(field: Field, members: dict[str, Any]) -> list[str]:
    """The names under which a field's value stands: several where lists are joined."""
    extra = {name: members[name] for name in field.wire.also if name in members}
    known = set(extra)
    value = field.spelled_otherwise(members.get(field.key), extra)
    used = [name for name in field.wire.also if name in known - extra.keys()]
    return [field.key, *used] if field.is_list or not used or value is members.get(field.key) else used


def _inner(reader: Reader) -> Reader:
    return reader.inner if isinstance(reader, Maybe) else reader


def _item(reader: Reader) -> ModelReader | None:
    """The reader of the models that a field lists; None if it lists none."""
    item = reader.item if isinstance(reader, Sequence) else None
    return item if isinstance(item, ModelReader) else None


def _structurer(cls: Any, converter: cattrs.Converter) -> Callable[[Any, Any], Any]:
    """The hook factory for reading."""
    reader = ModelReader(cls, converter)
    structure = cast("Any", reader.read)
    structure.reader = reader
    return cast("Callable[[Any, Any], Any]", structure)


# A value of exactly this type needs no reader: the test is written into the generated function.
_AS_IT_IS = {str: "type(v) is str", int: "type(v) is int", bool: "(v is True or v is False)", float: "type(v) is float"}


def _generated(reader: ModelReader) -> Callable[..., Any]:
    """The function that reads a model from a dict."""
    cls = reader.cls
    scope: dict[str, Any] = {
        "__name__": __name__,  # by which its frames are known as the package's
        "cls": cls,
        "twin": _twin(cls),
        "new": object.__new__,
        "MismatchError": MismatchError,
        "skip": count_skipped,
        "known": frozenset(field.key for field in reader.fields),
    }
    lines = [
        "def structure(value, _cls=None):",
        "    if type(value) is not dict: raise MismatchError('an object')",
        "    model = new(twin); get = value.get",
        "    extra = {} if known.issuperset(value) else {key: value[key] for key in value if key not in known}",
    ]
    for number, (field, each) in enumerate(zip(reader.fields, reader.readers, strict=True)):
        scope[f"read{number}"] = _read_of(field, each)
        lines.append(f"    v = get({field.key!r})")
        if field.wire.also:
            scope[f"spelled{number}"] = field.spelled_otherwise
            lines.append(f"    if extra: v = spelled{number}(v, extra)")
        fill = f"model.{field.name} = {_expression(field, each, number, scope)}"
        item = _item(each)
        if is_loose(cls):
            scope[f"fallback{number}"] = field.fallback
            keep = f"model.{field.name} = fallback{number}(); extra[{field.key!r}] = v"
            lines += [f"    try: {fill}", f"    except MismatchError: {keep}"]
        elif item is not None:
            scope[f"item{number}"] = item.read
            lines += [
                "    if type(v) is list:",
                f"        model.{field.name} = w = [item{number}(each) for each in v if each is not None]",
                "        if len(w) != len(v): skip(len(v) - len(w))",
                f"    else: {fill}",
            ]
        else:
            lines.append(f"    {fill}")
    lines += [f"    model.{name} = None" for name in _local_fields(cls)]
    lines += ["    model.extra = extra", "    model.__class__ = cls", "    return model"]
    exec("\n".join(lines), scope)  # noqa: S102  source made of this package's own field names
    return cast("Callable[..., Any]", scope["structure"])


@_once_per_class
def _twin(cls: type[Any]) -> type[Any]:
    """A class whose instances are laid out like those of a frozen one, but can be filled, eight times as fast."""
    assignable = {"__setattr__": object.__setattr__, "__delattr__": object.__delattr__}  # both, or neither is fast
    return type(f"Unfrozen{cls.__name__}", (cls,), {"__slots__": (), **assignable})


def _read_of(field: Field, reader: Reader) -> Callable[[Any], Any]:
    """The function that gives a field's value, or its default for nothing."""
    read = reader.read
    if field.default is None and isinstance(reader, Maybe):
        return read  # its own for nothing
    return lambda value: field.fallback() if field.absent(value) else read(value)


def _expression(field: Field, reader: Reader, number: int, scope: dict[str, Any]) -> str:
    """Source of the field's value, out of `v`: without a call if that is of the type and no program's hook reads it."""
    inner = _inner(reader)
    otherwise = f"read{number}(v)"
    if isinstance(inner, EnumReader):
        scope[f"known{number}"] = inner.known
        otherwise = f"known{number}[v] if type(v) is str and v in known{number} else {otherwise}"
    for kind, test in _AS_IT_IS.items():
        if inner is LEAVES[kind]:
            otherwise = f"v if {test} else {otherwise}"
    if field.required or field.made_anew:
        return otherwise
    scope[f"default{number}"] = field.default
    return f"default{number} if v is None else {otherwise}"


def _local_fields(cls: type[Model]) -> list[str]:
    on_wire = {field.name for field in fields_of(cls)}
    return [attribute.name for attribute in attrs.fields(cls) if attribute.name not in on_wire | {"extra"}]


def _unstructurer(cls: Any, converter: cattrs.Converter) -> Callable[[Any], dict[str, Any]]:
    """The hook factory for writing: what has its default is left out, unless it is required."""
    plan = [
        (
            field.name,
            field.key,
            field.required or field.wire.always,
            field.fallback,
            _writer(field.annotation, converter),
        )
        for field in fields_of(cls)
    ]

    def unstructure(model: Any) -> dict[str, Any]:
        document: dict[str, Any] = {}
        for name, key, always, fallback, write in plan:
            value = getattr(model, name)
            if always or (value is not None and value != fallback()):
                document[key] = value if write is None or value is None else write(value)
        for key, value in model.extra.items():
            document.setdefault(key, value)
        return document

    return unstructure


def _writer(annotation: Any, converter: cattrs.Converter) -> Write | None:
    """How values of this type are written; None where JSON takes them as they are."""
    if _is_model(annotation):
        return converter.unstructure  # by the value's own class, which may be a subclass of the field's
    annotation = _plain(annotation)
    hook = _registered(converter.get_unstructure_hook, annotation)
    if hook is not None:
        return hook
    kinds = [kind for kind in get_args(annotation) if kind is not type(None)]
    if isinstance(annotation, types.UnionType):
        writers = [(kind, write) for kind in kinds if (write := _writer(kind, converter)) is not None]
        if len(kinds) == 1 or not writers:
            return writers[0][1] if writers else None
        return lambda value: next((write(value) for kind, write in writers if isinstance(value, kind)), value)
    if get_origin(annotation) is list:
        item = _writer(kinds[0], converter)
        return None if item is None else lambda values: [item(value) for value in values]
    if get_origin(annotation) is dict:
        return write_pairs
    if issubclass(annotation, OpenEnum | Secret):
        return converter.get_unstructure_hook(annotation)
    return None if annotation not in _WRITERS else _of_type(annotation, _WRITERS[annotation])


def _of_type(kind: type[Any], write: Write) -> Write:
    """A function that writes values of this type so, and leaves others as they are."""
    return lambda value: write(value) if isinstance(value, kind) else value


def _member_text(member: str) -> str:
    return str(member)


def _reveal(secret: Secret) -> str:
    return secret.reveal()


_WRITERS: Mapping[Any, Write] = {
    bytes: base64.encode_text,
    datetime: write_datetime,
    date: lambda day: day.isoformat()[:_DAY],  # a datetime is a date too
}
