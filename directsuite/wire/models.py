"""What the models of all services share: base classes, open enums, validators, and their fields on the wire.

A model is a frozen, slotted, keyword-only attrs class. Its fields are snake_case here and camelCase on the wire;
`Annotated[..., Wire("GMTOffset")]` gives the specification's spelling where it is another. Fields that the
specification doesn't know stay in `extra` and go back out. A `repr` shows the values of those fields alone that
`_shown` lists: never a name, an address, a subject or a body.
"""

from __future__ import annotations

import enum
import functools
import sys
import types
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, ClassVar, Self, TypeVar, cast, get_args, get_origin, get_type_hints

import attrs
import msgspec

from directsuite.errors import InvalidArgumentError
from directsuite.secret import Secret
from directsuite.wire.parsing import Elements

T = TypeVar("T")


@attrs.frozen
class Wire:
    """How a field stands on the wire, where that isn't its own name in camelCase."""

    name: str | None = None
    """The specification's spelling."""
    also: tuple[str, ...] = ()
    """Other spellings, which real servers send: read but never written."""
    always: bool = False
    """Whether it is written even where it has its default value, because the specification requires it."""
    local: bool = False
    """Whether it is never on the wire."""
    exact: bool = False
    """True if a text with broken UTF-8 is unreadable, because it names something."""
    strict: bool = False
    """True if an unreadable value is an error, because a later call needs the value. Such a text is exact too."""


@attrs.frozen(eq=False, repr=False)
class ValueSemantics:
    """A base for attrs classes that are made with eq=False and repr=False; it does what attrs' own methods would.

    attrs generates these methods for each class anew, which takes a third of the time in which a class is made: of a
    hundred of them, a good part of the time in which a program starts.
    """

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return all(getattr(self, field.name) == getattr(other, field.name) for field in _compared(self))

    def __hash__(self) -> int:
        return hash((type(self), *(getattr(self, field.name) for field in _compared(self))))

    def __repr__(self) -> str:
        shown = (f"{field.name}={getattr(self, field.name)!r}" for field in attrs.fields(type(self)) if field.repr)
        return f"{type(self).__name__}({', '.join(shown)})"


def _compared(record: ValueSemantics) -> list[attrs.Attribute[Any]]:
    return [field for field in attrs.fields(type(record)) if field.eq]


@attrs.frozen(kw_only=True, repr=False, eq=False)
class Model(ValueSemantics):
    """The base of every type of the specification."""

    _shown: ClassVar[tuple[str, ...]] = ()
    """Fields and properties whose values a `repr` shows."""

    extra: dict[str, Any] = attrs.field(factory=dict[str, Any])
    """Members of the JSON object that the specification does not list, and those whose values could not be read."""

    def __repr__(self) -> str:
        """The fields that are set; those that `_shown` doesn't list as placeholders with their sizes."""
        names = dict.fromkeys((*self._shown, *_names_of(self)))
        return _text_of(self, names, lambda name, value: repr(value) if name in self._shown else _placeholder(value))


def reveal(value: object) -> str:
    """All that a model holds, or the models in a list, as text: what `repr` gives, with every value in clear.

    It shows patient data and secrets: print it, and don't log it.
    """
    if isinstance(value, Model):
        return _text_of(value, _names_of(value), lambda _, field: reveal(field))
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(reveal, cast('Iterable[object]', value)))}]"
    return repr(value.reveal() if isinstance(value, Secret) else value)


def _names_of(model: Model) -> list[str]:
    return [field.name for field in attrs.fields(type(model))]


def _text_of(model: Model, names: Iterable[str], shown: Callable[[str, object], str]) -> str:
    values = ((name, getattr(model, name)) for name in names)
    fields = (f"{name}={shown(name, value)}" for name, value in values if value not in (None, "", b"", [], {}))
    return f"{type(model).__name__}({', '.join(fields)})"


def _placeholder(value: object) -> str:
    """What tells that a value is there, and how large it is, and not what it is."""
    match value:
        case str():
            return f"<{len(value)} chars>"
        case bytes():
            return f"<{len(value)} bytes>"
        case list() | dict():
            return f"<{len(cast('list[object]', value))}>"
        case Model() | Secret() | bool():
            return repr(value)
        case _:
            return "<set>"


Uid = Annotated[int, "uid"]
"""A message's number in its folder, where an answer without a good one is of no use."""
MAX_UID = 2**63 - 1


def lacks_uid(message: object) -> bool:
    """Return True if the message has no uid by which a later call could name it."""
    uid = getattr(message, "uid", 0)  # a hook of the program's own may return anything in place of a message
    return uid is None or (type(uid) is int and not 0 <= uid <= MAX_UID)


class OpenEnum(enum.StrEnum):
    """An enum that keeps a value it doesn't know: a member of its own, equal to its text, with `is_known` False."""

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        if not isinstance(value, str):
            return None
        member = str.__new__(cls, value)
        member._name_ = value
        member._value_ = value
        return member

    @property
    def is_known(self) -> bool:
        """Whether the specification lists this value."""
        return self._value_ in type(self)._value2member_map_


def require_text(value: object, parameter: str) -> str:
    """The argument, if it is a text that is not empty; else InvalidArgumentError."""
    if not isinstance(value, str) or not value:
        raise InvalidArgumentError("give a text that is not empty", parameter=parameter)
    return value


def require_instance(value: object, cls: type[T], parameter: str) -> T:
    """The argument, if it is an instance of this class; else InvalidArgumentError."""
    if not isinstance(value, cls):
        raise InvalidArgumentError(f"give a {cls.__name__}", parameter=parameter)
    return value


def require_instances(values: object, cls: type[T], parameter: str) -> list[T]:
    """The argument as a list, if it holds instances of this class only; else InvalidArgumentError."""
    listed = list(cast("Iterable[object]", values)) if isinstance(values, Iterable) else [None]
    if not all(isinstance(value, cls) for value in listed):
        raise InvalidArgumentError(f"give a list of {cls.__name__}", parameter=parameter)
    return cast("list[T]", listed)


def is_number(value: object) -> bool:
    """Return True for an int or a float, but not for True, False, NaN and what is too large for a float."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def needs_text(_model: object, field: attrs.Attribute[Any], value: object) -> None:
    """A validator: the field, or the secret in it, is a text that is not empty."""
    require_text(value.reveal() if isinstance(value, Secret) else value, field.name)


def needs_bytes(_model: object, field: attrs.Attribute[Any], value: object) -> None:
    """A validator: the field is bytes, or None where that is its default. A text would go out as it stands."""
    if not isinstance(value, bytes) and not (value is None and field.default is None):
        raise InvalidArgumentError("give bytes", parameter=field.name)


def needs_number(_model: object, field: attrs.Attribute[Any], value: object) -> None:
    """A validator: the field is a finite number, or None. JSON has no other, and null would go out in its place."""
    if value is not None and not is_number(value):
        raise InvalidArgumentError("give a finite number", parameter=field.name)


def needs_whole_number(_model: object, field: attrs.Attribute[Any], value: object) -> None:
    """A validator: the field is a whole number, or None."""
    if value is not None and not (isinstance(value, int) and is_number(value)):
        raise InvalidArgumentError("give a whole number", parameter=field.name)


NOTHING = (None, "null")
"""What stands for no value."""
TEXTS = (str, bytes, Secret)
"""Types whose values are texts on the wire, where "null" is a text like any other (and the base64 of three bytes)."""


def is_nothing(value: Any, kind: Any) -> bool:
    """Return True if it stands for no value of this type: null, or the text "null" where that can't be a value."""
    return value is None or (kind not in TEXTS and value in NOTHING)


def is_model(cls: Any) -> bool:
    """Return True if this is a model's class."""
    return isinstance(cls, type) and issubclass(cls, Model)


def once_per_class(make: Callable[[Any], T]) -> Callable[[Any], T]:
    """The same function of a class, which makes its result once."""
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
    counts = Counter(map(_canonical, first))
    counts.subtract(map(_canonical, second))
    lacking = Counter({text: -count for text, count in counts.items() if count < 0})
    more: list[Any] = []
    for element in reversed(second):
        if lacking[_canonical(element)] > 0:
            lacking[_canonical(element)] -= 1
            more.append(element)
    return [*first, *reversed(more)]


def _listed(value: Any) -> list[Any]:
    return list(cast("Iterable[Any]", value)) if isinstance(value, list | Elements) else [value]


def _canonical(element: Any) -> bytes:
    return msgspec.json.encode(element, enc_hook=str, order="sorted")


@once_per_class
def fields_of(cls: type[Any]) -> tuple[Field, ...]:
    """A model's fields that stand on the wire, `extra` apart."""
    hints = get_type_hints(cls, include_extras=True)
    fields = [_field(attribute, hints[attribute.name]) for attribute in attrs.fields(cls) if attribute.name != "extra"]
    return tuple(field for field in fields if not field.wire.local)


def _field(attribute: attrs.Attribute[Any], annotation: Any) -> Field:
    marks = [mark for mark in getattr(annotation, "__metadata__", ()) if isinstance(mark, Wire)]
    kind = get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
    return Field(attribute.name, marks[0] if marks else Wire(), kind, attribute.default)


def plain_type(kind: Any) -> Any:
    """The type that a program knows: `list[int]` for a list of uids."""
    if get_origin(kind) is list:
        return list[plain_type(get_args(kind)[0])]  # type: ignore[misc]  # a type made when it runs
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def wire_name(cls: type[Model], name: str) -> str:
    """How a model's field is spelled on the wire."""
    return next(field.key for field in fields_of(cls) if field.name == name)


def find_unnamed_lists(cls: type[Model], document: Mapping[str, Any]) -> dict[str, str]:
    """Return which absent lists of a response are there under other names: the field's name, then the other one.

    An array is taken for a list if most names in each of its objects are names of the list's elements, and if no other
    array and no other list fits.
    """
    fields = fields_of(cls)
    unknown = document.keys() - {name for field in fields for name in field.keys}
    arrays = {name: document[name] for name in unknown if isinstance(document[name], list)}
    absent = [field for field in fields if field.is_list and document.keys().isdisjoint(field.keys)]
    found = [(field.key, name) for name, array in arrays.items() for field in absent if _may_list(field, array)]
    return dict(found) if len(found) == 1 else {}


def _may_list(field: Field, array: list[Any]) -> bool:
    item = get_args(field.annotation)[0]
    names = {name for inner in fields_of(item) for name in inner.keys} if is_model(item) else set[str]()
    objects = [element for element in array if element is not None]
    return bool(objects) and all(
        isinstance(element, dict) and 2 * len(names & element.keys()) > len(cast("dict[str, Any]", element))
        for element in objects
    )
