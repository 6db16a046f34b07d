"""Convert JSON to models and models to JSON, with a cattrs converter.

    Codec().decode(GetCountResponse, b'{"success":true,"count":3}')  ->  a model, or MismatchError with the JSON path
    Codec().encode(model)                                            ->  bytes
    converter.structure({"email": "a@b"}, Recipient)                 ->  a model, or MismatchError
    converter.unstructure(model)                                     ->  a value that any JSON library accepts

A *hook* is a function that a cattrs converter calls to read or write one type. *Plain values* are dicts, lists, texts,
numbers, bools and None.

A converter reads a model with a `ModelReader`, which is created when it is first needed. To be fast, its generated
function fills an instance of an unfrozen subclass, then changes its class to the model's. A field whose type is a
model, an enum or `Secret` is read and written with the converter's hook. Texts, numbers, bytes and dates are read and
written with the program's own hook, or else by this package, but never with a hook of cattrs, because those of
`cattrs.preconf` write other formats.

An unreadable value raises an error only if its field is required or strict (`Wire.strict`). Any other field gets its
default, and the value is stored in `extra` under the field's JSON name. An unreadable element of a list of objects is
skipped. A report counts both cases by JSON path.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, TypeVar, cast

import attrs
import msgspec
import pybase64

from directsuite.errors import DirectSuiteError, InvalidArgumentError
from directsuite.wire.models import (
    NULL_VALUES,
    TEXT_TYPES,
    Field,
    Model,
    OpenEnum,
    Secret,
    Uid,
    get_model_fields,
    is_enum,
    is_model,
)
from directsuite.wire.parsing import ArraySplitter, MismatchError, parse
from directsuite.wire.values import (
    PAIR_MEMBERS,
    READERS,
    Place,
    ReadElements,
    Report,
    count_unreadable,
    make_exact_reader,
    make_object_list_reader,
    make_scalar_list_reader,
    read_member,
    read_text,
    write_datetime,
)

if TYPE_CHECKING:
    import cattrs

M = TypeVar("M", bound=Model)

Hook = Callable[..., Any]

_EXACT_TYPES: frozenset[Any] = frozenset({str, int, float, bool})  # their values in JSON need no reader
_PART_BYTES = 65_536
"""Size of the parts of a large document after which the event loop has a turn."""
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")  # not encodable as UTF-8


class Codec:
    """Converts JSON to models and models to JSON with a cattrs converter."""

    def __init__(self, converter: cattrs.Converter | None = None) -> None:
        """Use a converter, and register the package's hooks with it if it does not have them.

        converter: the user's converter. None: use one that all suites share.
        """
        self.converter = _get_package_converter() if converter is None else converter
        self.has_user_converter = converter is not None
        if not isinstance(self.converter.get_structure_hook(Model), ModelReader):
            register_hooks(self.converter)

    def decode(self, cls: type[M], document: bytes) -> M:
        """Return a model from a JSON document.

        Raises MismatchError with the JSON path and the expected type if the document is not JSON or does not fit.
        """
        return self.structure(cls, parse(document))

    async def parse_in_turns(self, cls: type[Model], document: bytes) -> tuple[Any, Report] | None:
        """Parse a large JSON document for `structure`, and read the elements of its list of models.

        The event loop has a turn after each part of the document. Return the document, and the number of unreadable
        values in the elements, by JSON path. Return None if `ModelReader.find_list` does, or the document is not JSON
        or has the list twice.
        """
        reader = self.converter.get_structure_hook(cls)
        found = reader.find_list() if isinstance(reader, ModelReader) else None
        if found is None:
            return None
        key, read_list = found
        report: Report = {}
        splitter, place, elements = ArraySplitter(key), (report, f".{key}[]"), list[Any]()
        try:
            for start in range(0, len(document), _PART_BYTES):
                elements += read_list(list(splitter.feed(document[start : start + _PART_BYTES])), place)
                await asyncio.sleep(0)
            rest = splitter.finish()
        except (MismatchError, RecursionError):
            return None
        if splitter.key_count > 1:
            return None
        return ({**rest, key: ReadElements(elements)} if rest.get(key) == [] else rest), report

    def structure(self, cls: type[M], value: Any, place: Place = None) -> M:
        """Return a model from plain values, as returned by `parse` or `parse_in_turns`.

        place: the report in which unreadable values are counted, or the place of an element in its document (see
            `values.Place`). None: do not count.

        Raises MismatchError if a required or strict value cannot be read, or a user's hook fails.
        """
        try:
            if not self.has_user_converter:
                reader: Any = self.converter.get_structure_hook(cls)
                model: M = reader.read(value, place)
                return model
            if place is not None and type(value) is dict:
                value = _PlacedObject(cast("dict[str, Any]", value))
                value.place = place
            return self.converter.structure(value, cls)
        except (MemoryError, RecursionError):
            raise
        except MismatchError as error:
            expected, path = error.expected, error.path
        except Exception:  # noqa: BLE001  a user's hook may raise any exception
            expected, path = "a value that the converter's hook accepts", "$"
        # Not chained to the first error, whose stack frames show the value.
        raise MismatchError(expected, path)

    def encode(self, document: Any) -> bytes:
        """Return the JSON of a model, a list of models, or plain values.

        Raises InvalidArgumentError if a text contains a surrogate, or if a user's hook fails or returns a value that
        JSON cannot represent.
        """
        plain, parameter = None, type(document).__name__
        try:
            plain = self._to_plain(document)
            return msgspec.json.encode(plain, enc_hook=_encode_text)
        except (DirectSuiteError, MemoryError, RecursionError):
            raise
        except Exception as error:  # noqa: BLE001  not chained: the error and its stack frames may show the value
            reason = f"a hook of the converter failed ({type(error).__name__})"
            has_surrogate = plain is not None and isinstance(error, UnicodeEncodeError)
        if has_surrogate:
            reason = "it contains half of a surrogate pair, which UTF-8 cannot encode"
            paths = (path for path, text in _iter_texts(plain) if _LONE_SURROGATE.search(text))
            parameter = next(paths, "") or "a name"
        plain = document = None  # tracebacks expose local variables
        raise InvalidArgumentError(reason, parameter=parameter)

    def _to_plain(self, value: Any) -> Any:
        if isinstance(value, Model | Secret):
            plain = self.converter.unstructure(value)
            # A user's hooks may return values that contain models.
            return self._to_plain(plain) if self.has_user_converter else plain
        if isinstance(value, list | tuple):
            return [self._to_plain(each) for each in cast("Iterable[object]", value)]
        if isinstance(value, dict):
            return {name: self._to_plain(member) for name, member in cast("dict[Any, object]", value).items()}
        return value


def _encode_text(value: Any) -> str:
    if isinstance(value, str):  # of a class that msgspec does not know
        return str(value)
    raise TypeError


def _iter_texts(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield each text in plain values with its path. The names of members have the path of their object."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for name, member in cast("dict[str, Any]", value).items():
            yield path, name
            yield from _iter_texts(member, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for number, element in enumerate(cast("Iterable[Any]", value)):
            yield from _iter_texts(element, f"{path}[{number}]")


def make_converter() -> cattrs.Converter:
    """Return a new cattrs converter that reads and writes the specification's types in the services' JSON format.

    Hooks that you register with it, for example for `datetime`, an enum, or a type of the specification, also apply to
    fields of these types inside models. Pass the converter to `Settings(converter=...)`.
    """
    from cattrs import Converter  # importing it is slow

    converter = Converter()
    register_hooks(converter)
    return converter


_get_package_converter = functools.cache(make_converter)  # generating a model's functions is slow


def register_hooks(converter: cattrs.Converter) -> None:
    """Register hooks for the specification's types with an existing converter, such as one of `cattrs.preconf`.

    Hooks that you register later also apply inside these types, and so do earlier ones for types of the specification.
    Earlier hooks for other types, such as `datetime`, apply inside these types only if the converter is a plain
    `cattrs.Converter`: a preconfigured one has hooks that read and write other formats.

    `structure` raises ValueError if a required or strict value cannot be read. The error contains the JSON path, but
    not the value. Other unreadable values are stored in `extra`.
    """
    from cattrs import Converter

    original = Converter() if type(converter) is Converter else converter
    reading, writing = _get_hooks(original.get_structure_hook), _get_hooks(original.get_unstructure_hook)
    converter.register_structure_hook(OpenEnum, read_member)
    converter.register_unstructure_hook(OpenEnum, str.__str__)
    converter.register_structure_hook(Secret, lambda value, _: Secret(read_text(value)))
    converter.register_unstructure_hook(Secret, Secret.reveal)

    def make_structure_hook(cls: Any, owner: cattrs.Converter) -> Hook:
        return ModelReader(cls, owner.get_structure_hook, _find_user_hooks(owner.get_structure_hook, reading))

    def make_unstructure_hook(cls: Any, owner: cattrs.Converter) -> Hook:
        return _make_unstructure_hook(cls, owner, _find_user_hooks(owner.get_unstructure_hook, writing))

    converter.register_structure_hook_factory(is_model, make_structure_hook)
    converter.register_unstructure_hook_factory(is_model, make_unstructure_hook)


def _get_hooks(get_hook: Callable[[Any], Hook]) -> dict[Any, Hook]:
    from cattrs.errors import StructureHandlerNotFoundError

    hooks: dict[Any, Hook] = {}
    for kind in (str, int, float, bool, bytes, date, datetime):
        with contextlib.suppress(StructureHandlerNotFoundError):
            hooks[kind] = get_hook(kind)
    return hooks


def _find_user_hooks(get_hook: Callable[[Any], Hook], built_in: Mapping[Any, Hook]) -> dict[Any, Hook]:
    """Return the program's own hooks by type. A hook for int or date does not count as one for bool or datetime.

    built_in: the hooks of a converter that has none of the program.
    """
    hooks = _get_hooks(get_hook)
    return {
        kind: hook for kind, hook in hooks.items() if hook != built_in.get(kind) and hook != hooks.get(kind.__base__)
    }


class _PlacedObject(dict[str, Any]):
    """A JSON object with its place, which a user's converter cannot pass to a ModelReader as an argument."""

    __slots__ = ("place",)

    place: Place


class ModelReader:
    """Reads objects of one model class with the generated function `read`. A structure hook of one converter."""

    def __init__(self, cls: type[Model], get_hook: Callable[[Any], Hook], user_hooks: Mapping[Any, Hook]) -> None:
        self._cls = cls
        self._get_hook = get_hook
        self._user_hooks = user_hooks
        self._fields = get_model_fields(cls)
        self._keys = frozenset(field.key for field in self._fields)
        self.read: Callable[[Any, Place], Any] = self._generate_read_function()

    def __call__(self, value: Any, _: Any) -> Any:
        """Read an object, as a cattrs converter calls its hooks."""
        return self.read(value, value.place if type(value) is _PlacedObject else None)

    def find_list(self) -> tuple[str, Hook] | None:
        """Return the JSON name and the reader of the only field that is a list of models and has one JSON name."""
        lists = [field for field in self._fields if is_model(field.item) and not field.wire.aliases]
        return (lists[0].key, self._make_field_reader(lists[0])) if len(lists) == 1 else None

    def _generate_read_function(self) -> Callable[..., Any]:
        # Assignment is slow unless both methods are replaced.
        assignable = {"__setattr__": object.__setattr__, "__delattr__": object.__delattr__}
        scope: dict[str, Any] = {
            "__name__": __name__,  # of its stack frames
            "cls": self._cls,
            "twin": type(f"Unfrozen{self._cls.__name__}", (self._cls,), {"__slots__": (), **assignable}),
            "new": object.__new__,
            "MismatchError": MismatchError,
            "handle": _handle_unreadable,
            "keys": self._keys,
        }
        lines = [
            "def read(value, place):",
            "    if not isinstance(value, dict): raise MismatchError('an object')",
            "    model = new(twin); get = value.get",
            "    extra = {} if keys.issuperset(value) else {key: value[key] for key in value if key not in keys}",
        ]
        for number, field in enumerate(self._fields):
            scope[f"field{number}"] = field
            lines.append(f"    v = get({field.key!r})")
            if field.wire.aliases:
                lines.append(f"    if extra: v = field{number}.merge_aliases(v, extra)")
            lines += [
                f"    try: model.{field.name} = {self._generate_expression(field, number, scope)}",
                "    except MismatchError as error:",
                f"        model.{field.name} = handle(field{number}, error, v, value, extra, place)",
            ]
        in_json = {field.name for field in self._fields} | {"extra"}
        lines += [f"    model.{each.name} = None" for each in attrs.fields(self._cls) if each.name not in in_json]
        lines += ["    model.extra = extra", "    model.__class__ = cls", "    return model"]
        exec("\n".join(lines), scope)  # noqa: S102  the source contains only field names of this package
        return cast("Callable[..., Any]", scope["read"])

    def _generate_expression(self, field: Field, number: int, scope: dict[str, Any]) -> str:
        kind = field.kind

        def read_first(value: Any, place: Place) -> Any:
            scope[f"read{number}"] = made = self._make_field_reader(field)
            return made(value, place)

        # The readers of other models are created when they are first used, because that is slow.
        is_deferred = is_model(field.item) or is_model(kind)
        scope[f"read{number}"] = read_first if is_deferred else self._make_field_reader(field)
        if field.item is not None or is_model(kind):
            step = f".{field.key}" if field.item is None else f".{field.key}[]"
            code = f"read{number}(v, (place, {step!r}))"
        else:
            code = f"read{number}(v)"
            # A value of exactly the field's type needs no reader.
            if kind in _EXACT_TYPES and kind not in self._user_hooks:
                code = f"v if type(v) is {kind.__name__} else {code}"
            if is_enum(kind) and self._get_hook(kind) is read_member:
                scope[f"members{number}"] = dict(kind._value2member_map_)
                code = f"members{number}[v] if type(v) is str and v in members{number} else {code}"
        if field.required:
            return code
        scope[f"default{number}"] = field.default
        return f"{f'default{number}' if field.factory is None else f'field{number}.factory()'} if v is None else {code}"

    def _make_field_reader(self, field: Field) -> Hook:
        if field.item is None:
            return self._make_reader(field.kind, exact=field.wire.exact)
        read = self._make_reader(field.item, exact=field.wire.exact)
        if is_model(field.item):
            return make_object_list_reader(read)
        return make_scalar_list_reader(read, is_text=field.item is str, exact=field.wire.exact)

    def _make_reader(self, kind: Any, *, exact: bool) -> Hook:
        hooks = self._user_hooks
        base = int if kind == Uid else kind
        if is_model(kind) or is_enum(kind) or kind is Secret:
            hook = self._get_hook(kind)
            read: Hook = hook.read if isinstance(hook, ModelReader) else _make_hook_reader(hook, kind)
        elif kind is date and date in hooks:
            read = _make_day_reader(_make_hook_reader(hooks[date], date))
        elif kind is dict and str in hooks:
            read = _make_pairs_reader(_make_hook_reader(hooks[str], str))
        else:
            read = _make_hook_reader(hooks[base], base) if base in hooks else READERS[kind]
        return make_exact_reader(read) if exact and kind in TEXT_TYPES else read


def _make_day_reader(read_day: Hook) -> Hook:
    def read(value: Any) -> Any:
        text = READERS[date](value)
        return read_day(value) if isinstance(text, date) else text

    return read


def _make_pairs_reader(read_value: Hook) -> Hook:
    def read(value: Any) -> dict[str, Any]:
        return {key: read_value(text) for key, text in READERS[dict](value).items()}

    return read


def _make_hook_reader(hook: Hook, kind: Any) -> Hook:
    """Return a reader that calls a hook. Exceptions of the hook, which may show the value, become MismatchError."""
    null_values = (None,) if kind in TEXT_TYPES else NULL_VALUES

    def read(value: Any, _: Place = None) -> Any:
        try:
            if value not in null_values:
                return hook(value, kind)
        except (MismatchError, MemoryError, RecursionError):
            raise
        except Exception:  # noqa: BLE001, S110  a hook may raise anything
            pass
        raise MismatchError("a value that the converter's hook accepts")

    return read


def _handle_unreadable(
    field: Field, error: MismatchError, found: Any, document: dict[str, Any], extra: dict[str, Any], place: Place
) -> Any:
    """Raise the error for a required or strict field. Else store the value in `extra`, and return the default."""
    if not field.required and field.is_null(found):
        return field.make_default()
    if field.required or field.wire.strict:
        mismatch = error if field.key in document else MismatchError("present", error.path)
        raise mismatch.prepend_step(f".{field.key}")
    extra[field.key] = found
    count_unreadable(place, f".{field.key}")
    return field.make_default()


def _make_unstructure_hook(cls: Any, converter: cattrs.Converter, user_hooks: Mapping[Any, Hook]) -> Hook:
    """Return the function that writes a model.

    A field that has its default, or is None, is omitted, unless it is required or `Wire.always_written` is set. A value
    in `extra` under a field's JSON name is an unreadable one, and is written instead of the default.
    """
    plan = [(field, None if field.required else field.make_default()) for field in get_model_fields(cls)]
    plain_types = {str, int, float, bool, type(None)} - user_hooks.keys()

    def write_list(values: list[Any]) -> list[Any]:
        return [each if type(each) in plain_types else write(each) for each in values]

    writers: dict[Any, Callable[[Any], Any]] = {list: write_list}

    def write(value: Any) -> Any:
        kind = value.__class__
        if kind not in writers:
            bases = [base for base in _WRITERS if issubclass(kind, base) and kind not in user_hooks]
            writers[kind] = _WRITERS[bases[0]] if bases else converter.get_unstructure_hook(kind)
        return writers[kind](value)

    def unstructure(model: Any) -> dict[str, Any]:
        document: dict[str, Any] = {}
        for field, default in plan:
            value = getattr(model, field.name)
            is_always_written = field.required or (field.wire.always_written and field.key not in model.extra)
            if is_always_written or (value is not None and value != default):
                if field.kind is date and isinstance(value, datetime):
                    value = value.date()
                document[field.key] = value if type(value) in plain_types else write(value)
        for key, value in model.extra.items():
            document.setdefault(key, value)
        return document

    return unstructure


def _write_pairs(pairs: dict[str, str]) -> dict[str, str] | list[dict[str, str]]:
    # `read_pairs` would read an object with exactly these keys as one pair.
    return [{"key": key, "value": value} for key, value in pairs.items()] if pairs.keys() == PAIR_MEMBERS else pairs


_WRITERS: Mapping[Any, Callable[[Any], Any]] = {
    bytes: pybase64.b64encode_as_string,
    datetime: write_datetime,
    date: date.isoformat,
    dict: _write_pairs,
}
"""The writers by type. Other values are written with the converter's hook."""
