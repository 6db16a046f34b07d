"""Convert JSON to models and models to JSON, with a cattrs converter.

    Codec().decode(GetCountResponse, b'{"success":true,"count":3}')  ->  a model, or MismatchError with the JSON path
    Codec().encode(model)                                            ->  bytes
    converter.structure({"email": "a@b"}, Recipient)                 ->  a model, or MismatchError
    converter.unstructure(model)                                     ->  a value that any JSON library accepts

Terms: a *hook* is a function that a cattrs converter calls to read or write one type. A *user hook* is one that was
registered by the program that uses this package. *Plain values* are dicts, lists, texts, numbers, bools and None.

The hooks of a model are generated from its attrs metadata when the converter first needs them. A field's value, also
inside a list or union, is read and written by the user hook for its type, or else by this package, but never by a hook
of cattrs, because those of `cattrs.preconf` write other formats. To be fast, the generated function fills an instance
of an unfrozen subclass, then changes its class to the model's.

An unreadable value raises an error only if its field is required or strict (`Wire.strict`). Any other field gets its
default, and the value is stored in `extra` under the field's JSON name. An unreadable element of a list of objects is
skipped. A report counts both cases by JSON path.
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
    cached_per_class,
    find_unnamed_lists,
    get_model_fields,
    is_model,
    strip_annotations,
)
from directsuite.wire.parsing import Elements, MismatchError, Shape, parse_in_parts
from directsuite.wire.values import (
    SCALARS,
    Document,
    EnumReader,
    ExactScalar,
    Hook,
    ObjectList,
    OptionalScalar,
    Place,
    Reader,
    Scalar,
    as_nested,
    count_unreadable,
    read_member,
    read_secret,
    reader_for,
    write_pairs,
)

if TYPE_CHECKING:
    import cattrs

M = TypeVar("M", bound=Model)

Write = Callable[[Any], Any]

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")  # not encodable as UTF-8
_DAY_CHARS = len("yyyy-MM-dd")
_BUILTIN_HOOK_MODULES = ("cattrs", "msgspec", "directsuite")
_TYPES_INHERITING_HOOKS = (bool, datetime)
"""Types for which cattrs also uses a user hook of their base class. This package does not."""


@functools.cache  # generating a model's functions is slow
def _get_package_converter() -> cattrs.Converter:
    return make_converter()


class Codec:
    """Converts JSON to models and models to JSON with a cattrs converter."""

    def __init__(self, converter: cattrs.Converter | None = None) -> None:
        """Use a converter, and register the package's hooks with it if it does not have them.

        converter: the user's converter. None: use one that all suites share.
        """
        self.converter = _get_package_converter() if converter is None else converter
        self._has_user_converter = converter is not None
        if not isinstance(get_model_reader(self.converter, Model), ModelReader):
            register_hooks(self.converter)

    def decode(self, cls: type[M], document: bytes) -> M:
        """Return a model from a JSON document.

        Raises MismatchError with the JSON path and the expected type if the document is not JSON or does not fit.
        """
        return self.structure(cls, self.parse_for(cls, document))

    def parse_for(self, cls: type[Model], document: bytes) -> Any:
        """Parse a JSON document for `structure`. Raise MismatchError if it is not JSON.

        In a large document, the class's lists of models are parsed lazily.
        """
        reader = get_model_reader(self.converter, cls)
        return parse_in_parts(document, reader.lists if isinstance(reader, ModelReader) else ())

    def structure(self, cls: type[M], value: Any, place: Place = None) -> M:
        """Return a model from plain values, as returned by `parse_for`.

        place: the report in which unreadable values are counted, or the place of an element in its document (see
            `values.Place`). None: do not count.

        Raises MismatchError if a required or strict value cannot be read, or a user hook fails.
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
        except Exception:  # noqa: BLE001  a user hook may raise any exception
            expected, path = "a value that the converter's hook accepts", "$"
        # Not chained to the first error, whose stack frames show the value.
        raise MismatchError(expected, path)

    def get_shape(self, cls: type[Model]) -> Shape | None:
        """Return the places of base64 text in the JSON of a model, or None if a user hook reads the model."""
        reader = get_model_reader(self.converter, cls)
        return reader.shape if isinstance(reader, ModelReader) else None

    def unstructure(self, model: Model) -> Any:
        """Return plain values from a model. Raise InvalidArgumentError if a user hook fails."""
        try:
            return self.converter.unstructure(model)
        except (DirectSuiteError, MemoryError, RecursionError):
            raise
        except Exception as error:  # noqa: BLE001  the error and its stack frames may show the value
            reason = type(error).__name__
        raise InvalidArgumentError(f"a hook of the converter failed ({reason})", parameter=type(model).__name__)

    def encode(self, document: Any) -> bytes:
        """Return the JSON of a model, a list of models, or plain values.

        Raises InvalidArgumentError if a text contains a surrogate, or if a user hook fails or returns a value that JSON
        cannot represent.
        """
        plain, unfit = self._to_plain(document), ""
        try:
            return msgspec.json.encode(plain, enc_hook=self._to_encodable)
        except UnicodeEncodeError:  # it contains the text, so it must not be chained
            pass
        except TypeError as error:
            unfit = str(error)
        if unfit:
            plain = document = None  # tracebacks expose local variables
            raise InvalidArgumentError(unfit, parameter="converter")
        parameter = next((path for path, text in _iter_texts(plain, "") if _LONE_SURROGATE.search(text)), "a text")
        plain = None  # as above
        raise InvalidArgumentError(
            "it contains half of a surrogate pair, which UTF-8 cannot encode", parameter=parameter
        )

    def _to_plain(self, value: Any) -> Any:
        if isinstance(value, Model):
            plain = self.unstructure(value)
            # User hooks may return values that contain models.
            return self._to_plain(plain) if self._has_user_converter else plain
        if isinstance(value, list | tuple):
            return [self._to_plain(each) for each in cast("Iterable[object]", value)]
        if isinstance(value, dict):
            return {name: self._to_plain(member) for name, member in cast("dict[Any, object]", value).items()}
        return value

    def _to_encodable(self, value: Any) -> Any:
        if isinstance(value, Secret):
            return self.converter.unstructure(value)
        if isinstance(value, str):
            return str(value)
        raise TypeError(f"the converter returned a {type(value).__name__}, which JSON cannot represent")


def _iter_texts(document: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yield each text in plain values with its path, which is "a name" for a member's name."""
    if isinstance(document, dict):
        for name, member in cast("dict[str, Any]", document).items():
            yield "a name", name
            yield from _iter_texts(member, f"{path}.{name}" if path else name)
    elif isinstance(document, list):
        for number, element in enumerate(cast("Iterable[Any]", document)):
            yield from _iter_texts(element, f"{path}[{number}]")
    elif isinstance(document, str):
        yield path, document


def make_converter() -> cattrs.Converter:
    """Return a new cattrs converter that reads and writes the specification's types in the services' JSON format.

    Hooks that you register with it, for example for `datetime`, an enum, or a type of the specification, also apply to
    fields of these types inside models. Pass the converter to `Settings(converter=...)`.
    """
    from cattrs import Converter  # importing it is slow

    converter = Converter()
    register_hooks(converter)
    return converter


def register_hooks(converter: cattrs.Converter) -> None:
    """Register hooks for the specification's types with an existing converter, such as one of `cattrs.preconf`.

    Hooks that you have registered, or register later, also apply inside these types. The hooks of a preconfigured
    converter for `bytes`, `datetime` and `date` apply only outside these types.

    `structure` raises ValueError if a required or strict value cannot be read. The error contains the JSON path, but
    not the value. Other unreadable values are stored in `extra`.
    """
    converter.register_structure_hook(OpenEnum, lambda value, cls: read_member(cls, value))
    converter.register_unstructure_hook(OpenEnum, _enum_to_text)
    converter.register_structure_hook(Secret, lambda value, _: read_secret(value))
    converter.register_unstructure_hook(Secret, _reveal)
    converter.register_structure_hook_factory(is_model, _make_structure_hook)
    converter.register_unstructure_hook_factory(is_model, _make_unstructure_hook)


def get_model_reader(converter: cattrs.Converter, cls: type[Model]) -> Reader:
    """Return the converter's reader for a model: a ModelReader, or a Hook for a user hook."""
    hook = converter.get_structure_hook(cls)
    reader: ModelReader | None = getattr(hook, "reader", None)
    return Hook(hook, cls) if reader is None else reader


def _is_user_hook(hook: Any) -> bool:
    while isinstance(hook, functools.partial):
        hook = hook.func
    if hook in (list, dict):  # used by cattrs
        return False
    module = getattr(hook, "__module__", None)
    if module is None:  # a function that cattrs generates, or a method of a built-in type
        return not isinstance(hook, types.FunctionType)
    return cast("str", module).partition(".")[0] not in _BUILTIN_HOOK_MODULES


def _find_user_hook(get_hook: Callable[[Any], Any], kind: Any) -> Callable[..., Any] | None:
    """Return the user hook for a type, or None.

    A hook for the base class of a type in _TYPES_INHERITING_HOOKS does not count.
    """
    try:
        hook = get_hook(kind)
    except Exception:  # noqa: BLE001  cattrs raises different errors if it has no hook for a type
        return None
    if not _is_user_hook(hook):
        return None
    inherited = kind in _TYPES_INHERITING_HOOKS and _find_user_hook(get_hook, kind.__base__) is hook
    return None if inherited else cast("Callable[..., Any]", hook)


class ModelReader:
    """Reads objects of one model class for one converter, with the generated function `read`."""

    def __init__(self, cls: type[Model], converter: cattrs.Converter) -> None:
        self.cls = cls
        self.fields = get_model_fields(cls)

        def find_converter_reader(kind: Any) -> Reader | None:
            if kind is cls:  # the converter has no hook for this class yet, so look it up later
                return Hook(lambda value, _: converter.structure(value, cls), cls)
            if is_model(kind):
                return get_model_reader(converter, kind)
            kind = strip_annotations(kind)
            hook = None if cls in get_args(kind) else _find_user_hook(converter.get_structure_hook, kind)
            return None if hook is None else Hook(hook, kind)

        self.readers = [
            reader_for(
                field.annotation,
                find_converter_reader,
                exact=field.wire.exact or field.wire.strict,
                required=field.required,
            )
            for field in self.fields
        ]
        self.read: Callable[[Any, Place], Any] = _generate_read_function(self)

    @functools.cached_property
    def shape(self) -> Shape:
        """The places of base64 text in the model's JSON.

        Names from `Wire.aliases` are not included: a member with such a name may remain undecoded in `extra`.
        """
        items = {
            field.key: item.shape
            for field, reader in self._iter_fields_and_readers()
            if (item := _find_item_reader(reader)) is not None
        }
        return Shape(
            texts=frozenset(
                field.key
                for field, reader in self._iter_fields_and_readers()
                if _unwrap_reader(reader) is SCALARS[bytes]
            ),
            lists={name: shape for name, shape in items.items() if shape.texts or shape.lists},
        )

    @functools.cached_property
    def lists(self) -> frozenset[str]:
        """The main JSON names of the fields that are lists of models."""
        return frozenset(
            field.key for field, reader in self._iter_fields_and_readers() if _find_item_reader(reader) is not None
        )

    def _iter_fields_and_readers(self) -> Iterable[tuple[Field, Reader]]:
        return zip(self.fields, self.readers, strict=True)


def _unwrap_reader(reader: Reader) -> Reader:
    while isinstance(reader, OptionalScalar | ExactScalar):
        reader = reader.inner
    return reader


def _find_item_reader(reader: Reader) -> ModelReader | None:
    item = reader.item if isinstance(reader, ObjectList) else None
    return item if isinstance(item, ModelReader) else None


def _make_structure_hook(cls: Any, converter: cattrs.Converter) -> Callable[[Any, Any], Any]:
    reader = ModelReader(cls, converter)
    structure = cast("Any", reader.read)
    structure.reader = reader
    return cast("Callable[[Any, Any], Any]", structure)


# A value of exactly this type needs no reader.
_EXACT_TYPE_TESTS = {
    str: "type(v) is str",
    int: "type(v) is int",
    bool: "(v is True or v is False)",
    float: "type(v) is float",
}


def _generate_read_function(reader: ModelReader) -> Callable[..., Any]:
    """Return a generated function that reads a model.

    Its second argument is the place of the value, or the class if cattrs calls it.
    """
    cls = reader.cls
    scope: dict[str, Any] = {
        "__name__": __name__,  # of its stack frames
        "cls": cls,
        "twin": _make_unfrozen_class(cls),
        "new": object.__new__,
        "Document": Document,
        "MismatchError": MismatchError,
        "note": count_unreadable,
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
    if any(_find_item_reader(each) is not None for each in reader.readers):
        scope["lists"] = functools.partial(_move_unnamed_lists, cls)
        lines.append("    if extra and type(place) is not tuple: value = lists(value, extra); get = value.get")
    for number, (field, each) in enumerate(zip(reader.fields, reader.readers, strict=True)):
        lines += _generate_field_lines(field, each, number, scope)
    lines += [f"    model.{name} = None" for name in _find_local_fields(cls)]
    lines += ["    model.extra = extra", "    model.__class__ = cls", "    return model"]
    exec("\n".join(lines), scope)  # noqa: S102  the source contains only field names of this package
    return cast("Callable[..., Any]", scope["structure"])


def _generate_field_lines(field: Field, reader: Reader, number: int, scope: dict[str, Any]) -> Iterator[str]:
    yield f"    v = get({field.key!r})"
    if field.wire.aliases:
        scope[f"spelled{number}"] = field.merge_aliases
        yield f"    if extra: v = spelled{number}(v, extra)"
    scope[f"step{number}"] = f".{field.key}{'[]' if field.is_list else ''}"
    fill = f"model.{field.name} = {_generate_expression(field, reader, number, scope)}"
    item = _find_item_reader(reader)
    if item is not None and not field.required:
        scope[f"item{number}"] = item.read
        yield "    if type(v) is list:"
        yield f"        at = (place, step{number}); model.{field.name} = w = []"
        yield "        for each in v:"
        yield f"            try: w.append(item{number}(each, at))"
        yield "            except MismatchError: note(at)"
        yield f"    else: {fill}"
    else:
        scope[f"fail{number}"] = _make_mismatch_handler(field)
        yield f"    try: {fill}"
        yield f"    except MismatchError as error: model.{field.name} = fail{number}(error, v, value, extra, place)"


def _make_mismatch_handler(field: Field) -> Callable[[MismatchError, Any, dict[str, Any], dict[str, Any], Place], Any]:
    """Return a function that handles an unreadable value of a field.

    It raises MismatchError, or stores the value in `extra`, counts it and returns the default.
    """

    def fail(error: MismatchError, found: Any, document: dict[str, Any], extra: dict[str, Any], place: Place) -> Any:
        if field.required or field.wire.strict:
            raise (error if field.key in document else MismatchError("present", error.path)).prepend_step(
                f".{field.key}"
            )
        extra[field.key] = list(found) if isinstance(found, Elements) else found
        count_unreadable(place, f".{field.key}")
        return field.make_default()

    return fail


def _move_unnamed_lists(cls: type[Model], document: dict[str, Any], extra: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of the document in which each list of `find_unnamed_lists` has its field's name.

    Remove these lists from `extra`.
    """
    return document | {key: extra.pop(name) for key, name in find_unnamed_lists(cls, document).items()}


@cached_per_class
def _make_unfrozen_class(cls: type[Any]) -> type[Any]:
    """Return a subclass with the same memory layout and assignable attributes. Filling it is eight times faster."""
    # Assignment is slow unless both methods are replaced.
    assignable = {"__setattr__": object.__setattr__, "__delattr__": object.__delattr__}
    return type(f"Unfrozen{cls.__name__}", (cls,), {"__slots__": (), **assignable})


def _make_defaulting_read(field: Field, reader: Reader) -> Callable[..., Any]:
    if isinstance(reader, Scalar):
        read = reader.read
        if field.default is None and isinstance(reader, OptionalScalar):
            return read  # an OptionalScalar already returns None in this case

        def read_scalar(value: Any) -> Any:
            return field.make_default() if field.is_absent(value) else read(value)

        return read_scalar
    nested = as_nested(reader)

    def read_nested(value: Any, place: Place) -> Any:
        return field.make_default() if field.is_absent(value) else nested(value, place)

    return read_nested


def _generate_expression(field: Field, reader: Reader, number: int, scope: dict[str, Any]) -> str:
    """Return source code for the field's value, computed from the variable `v`."""
    inner = _unwrap_reader(reader)
    scope[f"read{number}"] = _make_defaulting_read(field, reader)
    code = f"read{number}(v)" if isinstance(reader, Scalar) else f"read{number}(v, (place, step{number}))"
    if isinstance(inner, EnumReader):
        scope[f"members{number}"] = inner.members
        code = f"members{number}[v] if type(v) is str and v in members{number} else {code}"
    for kind, test in _EXACT_TYPE_TESTS.items():
        if inner is SCALARS[kind]:
            code = f"v if {test} else {code}"
    if field.required or field.has_default_factory:
        return code
    scope[f"default{number}"] = field.default
    return f"default{number} if v is None else {code}"


def _find_local_fields(cls: type[Model]) -> list[str]:
    on_wire = {field.name for field in get_model_fields(cls)}
    return [attribute.name for attribute in attrs.fields(cls) if attribute.name not in on_wire | {"extra"}]


def _make_unstructure_hook(cls: Any, converter: cattrs.Converter) -> Callable[[Any], dict[str, Any]]:
    """A cattrs hook factory for writing a model.

    A field that has its default, or is None, is omitted, unless it is required or `Wire.always_written` is set. A value
    in `extra` under a field's JSON name is an unreadable one, and is written instead of the default.
    """
    plan = [
        (
            field.name,
            field.key,
            field.required,
            field.wire.always_written,
            None if field.required else field.make_default(),
            _make_writer(field.annotation, converter),
        )
        for field in get_model_fields(cls)
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


def _make_writer(annotation: Any, converter: cattrs.Converter) -> Write | None:
    """Return the function that writes values of a type, or None if JSON represents them unchanged."""
    if is_model(annotation):
        return converter.unstructure  # the value's class may be a subclass
    annotation = strip_annotations(annotation)
    hook = _find_user_hook(converter.get_unstructure_hook, annotation)
    if hook is not None:
        return hook
    kinds = [kind for kind in get_args(annotation) if kind is not type(None)]
    if isinstance(annotation, types.UnionType):
        writers = [(kind, write) for kind in kinds if (write := _make_writer(kind, converter)) is not None]
        if len(kinds) == 1 or not writers:
            return writers[0][1] if writers else None
        return lambda value: next((write(value) for kind, write in writers if isinstance(value, kind)), value)
    if get_origin(annotation) is list:
        item = _make_writer(kinds[0], converter)
        return None if item is None else lambda values: [item(value) for value in values]
    if get_origin(annotation) is dict:
        return write_pairs
    if issubclass(annotation, OpenEnum | Secret):
        return converter.get_unstructure_hook(annotation)
    return None if annotation not in _WRITERS_BY_TYPE else _make_typed_writer(annotation, _WRITERS_BY_TYPE[annotation])


def _make_typed_writer(kind: type[Any], write: Write) -> Write:
    return lambda value: write(value) if isinstance(value, kind) else value


def _enum_to_text(member: str) -> str:
    return str(member)


def _reveal(secret: Secret) -> str:
    return secret.reveal()


_WRITERS_BY_TYPE: Mapping[Any, Write] = {
    bytes: base64.encode_text,
    datetime: write_datetime,
    date: lambda day: day.isoformat()[:_DAY_CHARS],  # a datetime is also a date: omit its time
}
