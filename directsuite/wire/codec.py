"""Bytes on the wire to models and back: every answer and every request goes through one cattrs converter.

    Codec().decode(GetCountResponse, b'{"success":true,"count":3}')  ->  a model, or MismatchError with the JSON path
    Codec().encode(model)                                            ->  bytes
    converter.structure({"email": "a@b"}, Recipient)                 ->  a model, or MismatchError
    converter.unstructure(model)                                     ->  what any JSON library takes

The converter's hooks are functions generated for each class from its attrs metadata, when the converter is first asked
for it. A field is read and written by the hook that a program has registered for its type, in lists and unions too;
where there is none, by the package's own, and not by cattrs': those of `cattrs.preconf` write other formats. Reading
fills an unfrozen twin of the class, whose instances then become the class's own; a value of the expected type is passed
through without a call.

A value that cannot be read is an error only if its field is required or strict (`Wire.strict`). Any other field then
has its default, and `extra` has the value under its name on the wire. An element of a list of objects is left out. A
report counts both by their path.
"""

from __future__ import annotations

import functools
import re
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_args, get_origin

import attrs
import msgspec

from directsuite.errors import DirectSuiteError, InvalidArgumentError
from directsuite.secret import Secret
from directsuite.wire import base64
from directsuite.wire.dates import write_datetime
from directsuite.wire.models import (
    Field,
    Model,
    OpenEnum,
    fields_of,
    find_unnamed_lists,
    is_model,
    once_per_class,
    plain_type,
)
from directsuite.wire.parsing import Elements, MismatchError, Shape, parse_in_parts
from directsuite.wire.values import (
    LEAVES,
    Document,
    EnumReader,
    ExactLeaf,
    Hook,
    Leaf,
    ObjectList,
    OptionalLeaf,
    Place,
    Reader,
    as_nested,
    note,
    read_member,
    read_secret,
    reader_for,
    write_pairs,
)

if TYPE_CHECKING:
    import cattrs

M = TypeVar("M", bound=Model)

Write = Callable[[Any], Any]

_LONE = re.compile("[\ud800-\udfff]")  # surrogates that came without their other half
_DAY = len("yyyy-MM-dd")
_NOT_OF_A_PROGRAM = ("cattrs", "msgspec", "directsuite")
_INHERITING = (bool, datetime)
"""Types that cattrs reads by a hook registered for their base, int or date, whose values are others on the wire."""


@functools.cache
def _package_converter() -> cattrs.Converter:
    """The one converter of all suites that bring none, because to generate the functions of a model takes long."""
    return make_converter()


class Codec:
    """JSON to models and back, by a converter with the package's hooks: the program's own, or the package's."""

    def __init__(self, converter: cattrs.Converter | None = None) -> None:
        """converter: gets the package's hooks where it hasn't them."""
        self.converter = _package_converter() if converter is None else converter
        self._of_a_program = converter is not None
        if not isinstance(model_reader(self.converter, Model), ModelReader):
            register_hooks(self.converter)

    def decode(self, cls: type[M], document: bytes) -> M:
        """A model from a JSON document. Raises MismatchError, which names the place and what should be there."""
        return self.structure(cls, self.parse_for(cls, document))

    def parse_for(self, cls: type[Model], document: bytes) -> Any:
        """Plain values for `structure` from a JSON document; MismatchError where it is not JSON."""
        reader = model_reader(self.converter, cls)
        return parse_in_parts(document, reader.lists if isinstance(reader, ModelReader) else ())

    def structure(self, cls: type[M], value: Any, place: Place = None) -> M:
        """Return a model from plain values, as `parse` returns them.

        place: where values that cannot be read are counted: a report, or the place of an element of its document.
        """
        if place is not None and type(value) is dict:
            value = Document(cast("dict[str, Any]", value))
            value.place = place
        try:
            return self.converter.structure(value, cls)
        except (MemoryError, RecursionError):
            raise
        except MismatchError as error:
            expected, path = error.expected, error.path
        except Exception:  # noqa: BLE001  a program's own hooks may raise anything
            expected, path = "what the converter's hook takes", "$"
        raise MismatchError(expected, path)  # without the other error and its frames, which show the value

    def shape_of(self, cls: type[Model]) -> Shape | None:
        """Where a model has base64 text, on the wire; None if a hook of the program's own reads it."""
        reader = model_reader(self.converter, cls)
        return reader.shape if isinstance(reader, ModelReader) else None

    def unstructure(self, model: Model) -> Any:
        """Plain values from a model. Raises InvalidArgumentError where a hook of the program's own fails."""
        try:
            return self.converter.unstructure(model)
        except (DirectSuiteError, MemoryError, RecursionError):
            raise
        except Exception as error:  # noqa: BLE001  it, and its frames, may show the value
            reason = type(error).__name__
        raise InvalidArgumentError(f"the converter can't write it ({reason})", parameter=type(model).__name__)

    def encode(self, document: Any) -> bytes:
        """JSON from a model, a list of models, or plain values.

        Raises InvalidArgumentError for a text that has no UTF-8, and for what a hook leaves that JSON does not take.
        """
        plain, unfit = self._plain(document), ""
        try:
            return msgspec.json.encode(plain, enc_hook=self._encodable)
        except UnicodeEncodeError:  # its own text would show the whole value
            pass
        except TypeError as error:
            unfit = str(error)
        if unfit:
            plain = document = None  # this frame stands in the traceback, and holds no password in plain sight
            raise InvalidArgumentError(unfit, parameter="converter")
        parameter = next((path for path, text in _texts(plain, "") if _LONE.search(text)), "a text")
        plain = None  # this frame stands in the traceback, and holds no password in plain sight
        raise InvalidArgumentError("it holds half a surrogate pair, which has no UTF-8", parameter=parameter)

    def _plain(self, value: Any) -> Any:
        if isinstance(value, Model):
            plain = self.unstructure(value)
            # A program's hooks may leave models in it, which msgspec would write by the names that they have here.
            return self._plain(plain) if self._of_a_program else plain
        if isinstance(value, list | tuple):
            return [self._plain(each) for each in cast("Iterable[object]", value)]
        if isinstance(value, dict):
            return {name: self._plain(member) for name, member in cast("dict[Any, object]", value).items()}
        return value

    def _encodable(self, value: Any) -> Any:
        """The JSON value for what a hook of the program's own has left as it was, and for a BrokenText."""
        if isinstance(value, Secret):
            return self.converter.unstructure(value)
        if isinstance(value, str):
            return str(value)
        raise TypeError(f"the converter leaves a {type(value).__name__}, which JSON does not take")


def _texts(document: Any, path: str) -> Iterator[tuple[str, str]]:
    """Every text in plain values, with its path."""
    if isinstance(document, dict):
        for name, member in cast("dict[str, Any]", document).items():
            yield "a name", name
            yield from _texts(member, f"{path}.{name}" if path else name)
    elif isinstance(document, list):
        for number, element in enumerate(cast("Iterable[Any]", document)):
            yield from _texts(element, f"{path}[{number}]")
    elif isinstance(document, str):
        yield path, document


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
    if a required value cannot be read, with the JSON path and never the value. Others stay in `extra`.
    """
    converter.register_structure_hook(OpenEnum, lambda value, cls: read_member(cls, value))
    converter.register_unstructure_hook(OpenEnum, _member_text)
    converter.register_structure_hook(Secret, lambda value, _: read_secret(value))
    converter.register_unstructure_hook(Secret, _reveal)
    converter.register_structure_hook_factory(is_model, _structurer)
    converter.register_unstructure_hook_factory(is_model, _unstructurer)


def model_reader(converter: cattrs.Converter, cls: type[Model]) -> Reader:
    """The reader of a model for this converter: a ModelReader, or the hook that a program has registered."""
    hook = converter.get_structure_hook(cls)
    reader: ModelReader | None = getattr(hook, "reader", None)
    return Hook(hook, cls) if reader is None else reader


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


class ModelReader:
    """Reads the objects of one class for one converter; `read` is the generated function."""

    def __init__(self, cls: type[Model], converter: cattrs.Converter) -> None:
        self.cls = cls
        self.fields = fields_of(cls)

        def of_converter(kind: Any) -> Reader | None:
            if kind is cls:  # it isn't made yet
                return Hook(lambda value, _: converter.structure(value, cls), cls)
            if is_model(kind):
                return model_reader(converter, kind)
            kind = plain_type(kind)
            hook = None if cls in get_args(kind) else _registered(converter.get_structure_hook, kind)
            return None if hook is None else Hook(hook, kind)

        self.readers = [
            reader_for(
                field.annotation,
                of_converter,
                exact=field.wire.exact or field.wire.strict,
                required=field.required,
            )
            for field in self.fields
        ]
        self.read: Callable[[Any, Place], Any] = _generate(self)

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
        return frozenset(field.key for field, reader in self._members() if _item(reader) is not None)

    def _members(self) -> Iterable[tuple[Field, Reader]]:
        return zip(self.fields, self.readers, strict=True)


def _inner(reader: Reader) -> Reader:
    while isinstance(reader, OptionalLeaf | ExactLeaf):
        reader = reader.inner
    return reader


def _item(reader: Reader) -> ModelReader | None:
    """The reader of the models that a field lists; None if it lists none."""
    item = reader.item if isinstance(reader, ObjectList) else None
    return item if isinstance(item, ModelReader) else None


def _structurer(cls: Any, converter: cattrs.Converter) -> Callable[[Any, Any], Any]:
    """The hook factory for reading."""
    reader = ModelReader(cls, converter)
    structure = cast("Any", reader.read)
    structure.reader = reader
    return cast("Callable[[Any, Any], Any]", structure)


# A value of exactly this type needs no reader: the test is written into the generated function.
_AS_IT_IS = {str: "type(v) is str", int: "type(v) is int", bool: "(v is True or v is False)", float: "type(v) is float"}


def _generate(reader: ModelReader) -> Callable[..., Any]:
    """Return the function that reads a model from a dict.

    cattrs calls it with the class as second argument, other readers with the place of the value.
    """
    cls = reader.cls
    scope: dict[str, Any] = {
        "__name__": __name__,  # by which its frames are known as the package's
        "cls": cls,
        "twin": _twin(cls),
        "new": object.__new__,
        "Document": Document,
        "MismatchError": MismatchError,
        "note": note,
        "keys": frozenset(field.key for field in reader.fields),
    }
    lines = [
        "def structure(value, place=None):",
        "    if type(value) is not dict:",
        "        if type(value) is not Document: raise MismatchError('an object')",
        "        place = value.place",
        "    model = new(twin); get = value.get",
        "    extra = {} if keys.issuperset(value) else {key: value[key] for key in value if key not in keys}",
    ]
    if any(_item(each) is not None for each in reader.readers):
        scope["lists"] = functools.partial(_move_unnamed_lists, cls)
        lines.append("    if extra and type(place) is not tuple: value = lists(value, extra); get = value.get")
    for number, (field, each) in enumerate(zip(reader.fields, reader.readers, strict=True)):
        lines += _lines_of(field, each, number, scope)
    lines += [f"    model.{name} = None" for name in _local_fields(cls)]
    lines += ["    model.extra = extra", "    model.__class__ = cls", "    return model"]
    exec("\n".join(lines), scope)  # noqa: S102  source made of this package's own field names
    return cast("Callable[..., Any]", scope["structure"])


def _lines_of(field: Field, reader: Reader, number: int, scope: dict[str, Any]) -> Iterator[str]:
    """Source that fills one field."""
    yield f"    v = get({field.key!r})"
    if field.wire.also:
        scope[f"spelled{number}"] = field.spelled_otherwise
        yield f"    if extra: v = spelled{number}(v, extra)"
    scope[f"step{number}"] = f".{field.key}{'[]' if field.is_list else ''}"
    fill = f"model.{field.name} = {_expression(field, reader, number, scope)}"
    item = _item(reader)
    if item is not None and not field.required:
        scope[f"item{number}"] = item.read
        yield "    if type(v) is list:"
        yield f"        at = (place, step{number}); model.{field.name} = w = []"
        yield "        for each in v:"
        yield f"            try: w.append(item{number}(each, at))"
        yield "            except MismatchError: note(at)"
        yield f"    else: {fill}"
    else:
        scope[f"fail{number}"] = _on_mismatch(field)
        yield f"    try: {fill}"
        yield f"    except MismatchError as error: model.{field.name} = fail{number}(error, v, value, extra, place)"


def _on_mismatch(field: Field) -> Callable[[MismatchError, Any, dict[str, Any], dict[str, Any], Place], Any]:
    """Return the function that decides what a value means that could not be read: it raises, or returns the default."""

    def fail(error: MismatchError, found: Any, document: dict[str, Any], extra: dict[str, Any], place: Place) -> Any:
        if field.required or field.wire.strict:
            raise (error if field.key in document else MismatchError("present", error.path)).below(f".{field.key}")
        extra[field.key] = list(found) if isinstance(found, Elements) else found
        note(place, f".{field.key}")
        return field.fallback()

    return fail


def _move_unnamed_lists(cls: type[Model], document: dict[str, Any], extra: dict[str, Any]) -> dict[str, Any]:
    """Return the document with lists under their own names that it has under others, which are taken out of `extra`."""
    return document | {key: extra.pop(name) for key, name in find_unnamed_lists(cls, document).items()}


@once_per_class
def _twin(cls: type[Any]) -> type[Any]:
    """A class whose instances are laid out like those of a frozen one, but can be filled, eight times as fast."""
    assignable = {"__setattr__": object.__setattr__, "__delattr__": object.__delattr__}  # both, or neither is fast
    return type(f"Unfrozen{cls.__name__}", (cls,), {"__slots__": (), **assignable})


def _read_or_default(field: Field, reader: Reader) -> Callable[..., Any]:
    """The function that gives a field's value, or its default for nothing."""
    if isinstance(reader, Leaf):
        read = reader.read
        if field.default is None and isinstance(reader, OptionalLeaf):
            return read  # its own for nothing

        def read_leaf(value: Any) -> Any:
            return field.fallback() if field.absent(value) else read(value)

        return read_leaf
    nested = as_nested(reader)

    def read_nested(value: Any, place: Place) -> Any:
        return field.fallback() if field.absent(value) else nested(value, place)

    return read_nested


def _expression(field: Field, reader: Reader, number: int, scope: dict[str, Any]) -> str:
    """Source of the field's value, out of `v`: without a call if that is of the type and no program's hook reads it."""
    inner = _inner(reader)
    scope[f"read{number}"] = _read_or_default(field, reader)
    otherwise = f"read{number}(v)" if isinstance(reader, Leaf) else f"read{number}(v, (place, step{number}))"
    if isinstance(inner, EnumReader):
        scope[f"members{number}"] = inner.members
        otherwise = f"members{number}[v] if type(v) is str and v in members{number} else {otherwise}"
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
    """The hook factory for writing: what has its default is left out, unless it is required.

    If `extra` has a value under a field's name, it could not be read. It is written instead of the default.
    """
    plan = [
        (
            field.name,
            field.key,
            field.required,
            field.wire.always,
            None if field.required else field.fallback(),
            _writer(field.annotation, converter),
        )
        for field in fields_of(cls)
    ]

    def unstructure(model: Any) -> dict[str, Any]:
        document: dict[str, Any] = {}
        for name, key, required, always, default, write in plan:
            value = getattr(model, name)
            if required or (value is not None and value != default) or (always and key not in model.extra):
                document[key] = value if write is None or value is None else write(value)
        for key, value in model.extra.items():
            document.setdefault(key, value)
        return document

    return unstructure


def _writer(annotation: Any, converter: cattrs.Converter) -> Write | None:
    """How values of this type are written; None where JSON takes them as they are."""
    if is_model(annotation):
        return converter.unstructure  # by the value's own class, which may be a subclass of the field's
    annotation = plain_type(annotation)
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
