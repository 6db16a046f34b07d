"""Building blocks for the models of all services: secrets, base classes, open enums, validators, and field metadata.

A model is a frozen, slotted, keyword-only attrs class. A field has a snake_case name in Python and by default the same
name in camelCase in JSON. `Annotated[..., Wire("GMTOffset")]` sets a different JSON name. Members that are not in the
specification are stored in `extra` and written back. A field with `Wire(local=True)` is only in Python.

`repr` shows only bools and the values of the fields in `_shown`, which must not list a name, an address, a subject or
a body.
"""

from __future__ import annotations

import enum
import functools
import itertools
import sys
import types
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Annotated, Any, ClassVar, Final, Self, TypeVar, cast, final, get_args, get_origin, get_type_hints

import attrs
import msgspec

from directsuite.errors import InvalidArgumentError

T = TypeVar("T")


@final
class Secret:
    """A password, token or session id that is not shown by `str`, `repr`, formatting, logs or tracebacks.

    `reveal()` returns the text. Two secrets with the same text are equal. A secret never equals a plain string. An
    empty secret is false.
    """

    __slots__ = ("_text",)
    _text: Final[str]

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text. Call this only to send the secret."""
        return self._text

    def __repr__(self) -> str:
        return "Secret('***')"

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return self._text == other._text if isinstance(other, Secret) else NotImplemented

    def __hash__(self) -> int:
        return hash((Secret, self._text))

    def __bool__(self) -> bool:
        return bool(self._text)


def as_secret(text: str | Secret) -> Secret:
    """Return a Secret."""
    return text if isinstance(text, Secret) else Secret(text)


def as_optional_secret(text: str | Secret | None) -> Secret | None:
    """Return a Secret, or None if `text` is None."""
    return None if text is None else as_secret(text)


@attrs.frozen(repr=False, eq=False)
class Wire:
    """Metadata: how a model's field is read from and written to JSON."""

    name: str | None = None
    """The field's JSON name. None: the field's name in camelCase."""
    aliases: tuple[str, ...] = ()
    """Other JSON names that servers use. They are never written."""
    always_written: bool = False
    """True if the field is written even if it has its default value."""
    local: bool = False
    """True if the field is neither read nor written."""
    exact: bool = False
    """True if a text with broken UTF-8 counts as unreadable, because it identifies something."""
    strict: bool = False
    """True if an unreadable value is an error, because a later call needs it. Implies `exact`."""


@attrs.frozen(eq=False, repr=False)
class ValueSemantics:
    """A base for attrs classes created with eq=False and repr=False. Its methods do the same as those of attrs.

    attrs would generate methods for each class, which noticeably delays the start of a program with a hundred classes.
    """

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return all(getattr(self, field.name) == getattr(other, field.name) for field in _get_compared_fields(self))

    def __hash__(self) -> int:
        return hash((type(self), *(getattr(self, field.name) for field in _get_compared_fields(self))))

    def __repr__(self) -> str:
        shown = (f"{field.name}={getattr(self, field.name)!r}" for field in attrs.fields(type(self)) if field.repr)
        return f"{type(self).__name__}({', '.join(shown)})"


def _get_compared_fields(record: ValueSemantics) -> list[attrs.Attribute[Any]]:
    return [field for field in attrs.fields(type(record)) if field.eq]


@attrs.frozen(kw_only=True, repr=False, eq=False)
class Model(ValueSemantics):
    """The base class of all types of the specification."""

    _shown: ClassVar[tuple[str, ...]] = ()
    """Names of the fields and properties whose values `repr` shows."""

    extra: dict[str, Any] = attrs.field(factory=dict[str, Any])
    """Members of the JSON object that are not in the specification, or that could not be read."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "__slots__" in vars(cls):  # attrs has created the final class
            type.__setattr__(cls, "__slots__", _FieldDocs(cls))

    def __repr__(self) -> str:
        """Return the fields that are not empty. Values not in `_shown` become placeholders."""
        return _format_model(
            self, lambda name, value: repr(value) if name in self._shown else _make_placeholder(value), self._shown
        )


class _FieldDocs(dict[str, str | None]):
    """Maps the slots of a model to the docstrings of its fields, which `help()` shows. They are read when needed."""

    def __init__(self, model: type[Model]) -> None:
        super().__init__(dict.fromkeys(vars(model)["__slots__"]))
        self._model = model

    def __getitem__(self, name: str) -> str | None:
        return self._docs.get(name)

    @functools.cached_property
    def _docs(self) -> dict[str, str]:
        import ast  # only `help()` needs them
        import inspect

        try:
            statements = list(ast.walk(ast.parse(inspect.getsource(self._model))))
        except OSError:  # the source is not installed
            return {}
        docs: dict[str, str] = {}
        for field, following in itertools.pairwise(statements):  # in the order of the class's body
            match field, following:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    docs[name] = inspect.cleandoc(text)
                case _:
                    pass
        return docs


def summarize(model: Model) -> str:
    """Return the `repr` of a model without any text or number, for logs: all values are placeholders."""
    return _format_model(
        model, lambda _, value: summarize(value) if isinstance(value, Model) else _make_placeholder(value)
    )


def reveal(value: object) -> str:
    """Return the `repr` of a model, or of a list of models, with all values readable instead of placeholders.

    The text contains patient data and secrets. Do not log it.
    """
    if isinstance(value, Model):
        return _format_model(value, lambda _, field: reveal(field))
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(reveal, cast('Iterable[object]', value)))}]"
    return repr(value.reveal() if isinstance(value, Secret) else value)


def _format_model(model: Model, format_value: Callable[[str, object], str], first_names: Iterable[str] = ()) -> str:
    names = dict.fromkeys((*first_names, *(field.name for field in attrs.fields(type(model)))))
    values = ((name, getattr(model, name)) for name in names)
    fields = (f"{name}={format_value(name, value)}" for name, value in values if value not in (None, "", b"", [], {}))
    return f"{type(model).__name__}({', '.join(fields)})"


def _make_placeholder(value: object) -> str:
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
"""A message's number in its folder. An invalid one makes the response unusable."""
MAX_UID = 2**63 - 1


def has_no_uid(message: object) -> bool:
    """Return True if the uid of a message is None or not from 0 to MAX_UID. Return False for other objects."""
    uid = getattr(message, "uid", 0)  # a user's converter hook may return any object instead of a message
    return uid is None or (type(uid) is int and not 0 <= uid <= MAX_UID)


class OpenEnum(enum.StrEnum):
    """An enum that accepts unknown texts. Each becomes a member that equals the text."""

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
        """True if the specification lists this value."""
        return self._value_ in type(self)._value2member_map_


def require_text(value: object, parameter: str) -> str:
    """Return the argument. Raise InvalidArgumentError if it is not a text, or is empty."""
    if not isinstance(value, str) or not value:
        found = "an empty one" if isinstance(value, str) else name_type(value)
        raise InvalidArgumentError(f"give a non-empty string, not {found}", parameter=parameter)
    return value


def require_instance(value: object, cls: type[T], parameter: str) -> T:
    """Return the argument. Raise InvalidArgumentError if it is not an instance of the class."""
    if not isinstance(value, cls):
        article = "an" if cls.__name__[0] in "AEIO" else "a"
        raise InvalidArgumentError(f"give {article} {cls.__name__}, not {name_type(value)}", parameter=parameter)
    return value


def require_instances(values: object, cls: type[T], parameter: str) -> list[T]:
    """Return the argument as a list. Raise InvalidArgumentError unless it is an iterable of instances of the class."""
    problem = f", not {'a single one' if isinstance(values, cls) else name_type(values)}"
    is_list = isinstance(values, Iterable) and not isinstance(values, str | bytes)
    listed = list(cast("Iterable[object]", values)) if is_list else [None]
    invalid = [value for value in listed if not isinstance(value, cls)]
    if invalid and is_list:
        problem = f": an element is {name_type(invalid[0])}"
    if invalid:
        values = listed = invalid = []  # tracebacks expose local variables
        raise InvalidArgumentError(f"give a list of {cls.__name__}{problem}", parameter=parameter)
    return cast("list[T]", listed)


def name_type(value: object) -> str:
    """Return the name of a value's type, for messages about another type that is expected."""
    return "None" if value is None else type(value).__name__


def is_number(value: object) -> bool:
    """Return True for a finite int or float that is not a bool. Return False for ints too large for a float."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def validate_text(_model: object, field: attrs.Attribute[Any], value: object) -> None:
    """Raise InvalidArgumentError unless a field is a text or secret that is not empty."""
    require_text(value.reveal() if isinstance(value, Secret) else value, field.name)


def _make_validator(is_valid: Callable[[object], bool], expected: str) -> Callable[..., None]:
    def validate(_model: object, field: attrs.Attribute[Any], value: object) -> None:
        if not is_valid(value) and not (value is None and field.default is None):
            found = f", not {name_type(value)}" if not isinstance(value, int | float) else ""
            raise InvalidArgumentError(f"give {expected}{found}", parameter=field.name)

    return validate


validate_bytes = _make_validator(
    lambda value: isinstance(value, bytes), 'bytes, such as `Path("FILE").read_bytes()` returns'
)
validate_number = _make_validator(is_number, "a finite number")  # JSON has no NaN or infinity
validate_whole_number = _make_validator(lambda value: isinstance(value, int) and is_number(value), "a whole number")


NULL_VALUES = (None, "null")
"""JSON values that mean "no value"."""
TEXT_TYPES = (str, bytes, Secret)
"""Types that are texts in JSON. For them "null" is an ordinary text, or base64."""


def is_model(kind: Any) -> bool:
    """Return True if `kind` is Model or a subclass of it."""
    return isinstance(kind, type) and issubclass(kind, Model)


def is_enum(kind: Any) -> bool:
    """Return True if `kind` is a subclass of OpenEnum."""
    return isinstance(kind, type) and issubclass(kind, OpenEnum)


@attrs.frozen(repr=False, eq=False)
class Field:
    """A field of a model in JSON."""

    name: str
    key: str
    """The main JSON name, under which the field is written."""
    wire: Wire
    kind: Any
    """The type without None: `date` for `date | str`, and `list` or `dict` without the types inside."""
    item: Any
    """The type of a list's elements. None for other fields."""
    default: Any
    """The default, or attrs.NOTHING for a required field. None if there is a `factory`."""
    factory: Callable[[], Any] | None
    """Creates a new default for each model."""

    @property
    def required(self) -> bool:
        """True if the field has no default."""
        return self.default is attrs.NOTHING

    def make_default(self) -> Any:
        """Return the default, from the factory if there is one."""
        return self.default if self.factory is None else self.factory()

    def is_null(self, value: Any) -> bool:
        """Return True for null, and for "null" unless the type is in TEXT_TYPES."""
        return value is None or (self.kind not in TEXT_TYPES and value in NULL_VALUES)

    def merge_aliases(self, value: Any, extra: dict[str, Any]) -> Any:
        """Return the field's JSON value, also from the names in `Wire.aliases`. Remove used members from `extra`.

        value: the value under the main name, or None.
        extra: the members of the JSON object whose names are not the main name of any field.

        An empty value is replaced by the first value under another name that is not empty. Lists are combined, without
        duplicates of elements that both contain.
        """
        for name in self.wire.aliases:
            other = extra.get(name)
            is_wrong_type = self.item is not None and not isinstance(other, list | dict)
            if is_wrong_type or other == "" or other == [] or self.is_null(other):
                continue
            if value == "" or value == [] or self.is_null(value):
                value = extra.pop(name)
            elif self.item is not None:
                value = _merge_lists(value, extra.pop(name))
        return value


def _merge_lists(value: Any, other: Any) -> list[Any]:
    merged, duplicates = list[Any](), Counter[bytes]()
    for added in (value, other):
        known, duplicates = duplicates, Counter[bytes]()
        for element in cast("Iterable[Any]", added) if isinstance(added, list) else [added]:
            text = msgspec.json.encode(element, enc_hook=str, order="sorted")
            duplicates[text] += 1
            if duplicates[text] > known[text]:
                merged.append(element)
    return merged


def get_model_fields(cls: Any) -> tuple[Field, ...]:
    """Return the fields of a model that are read from and written to JSON."""
    return _make_fields(cls)


@functools.cache  # mypy does not accept a class of models as its argument
def _make_fields(cls: Any) -> tuple[Field, ...]:
    hints = get_type_hints(cls, include_extras=True)
    fields = [_make_field(each, hints[each.name]) for each in attrs.fields(cls) if each.name != "extra"]
    return tuple(field for field in fields if not field.wire.local)


def _make_field(attribute: attrs.Attribute[Any], annotation: Any) -> Field:
    wire = next((mark for mark in getattr(annotation, "__metadata__", ()) if isinstance(mark, Wire)), Wire())
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    kind = annotation
    if isinstance(kind, types.UnionType):
        kind = next(each for each in get_args(kind) if each is not type(None))
    origin = get_origin(kind)
    default: Any = attribute.default
    factory = default.factory if isinstance(default, attrs.Factory) else None  # type: ignore[arg-type]  # it is a class
    head, *tail = attribute.name.split("_")
    return Field(
        name=attribute.name,
        key=wire.name or head + "".join(part.capitalize() for part in tail),
        wire=attrs.evolve(wire, exact=wire.exact or wire.strict),
        kind=origin or kind,
        item=get_args(kind)[0] if origin is list else None,
        default=default if factory is None else None,
        factory=factory,
    )


def get_wire_name(cls: type[Model], name: str) -> str:
    """Return the main JSON name of a model's field. Raise StopIteration if it has no such field in JSON."""
    return next(field.key for field in get_model_fields(cls) if field.name == name)
