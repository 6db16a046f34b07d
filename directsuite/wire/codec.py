"""Bytes on the wire to models and back: every answer and every request goes through one cattrs converter.

    Codec().decode(GetCountResponse, b'{"success":true,"count":3}')  ->  a model, or MismatchError with the JSON path
    Codec().encode(model)                                           ->  bytes

A failure is found again by a second, slower walk (`Reader.find`), so that the first one pays nothing for paths.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from directsuite.errors import DirectSuiteError, InvalidArgumentError
from directsuite.secret import Secret
from directsuite.wire.hooks import ModelReader, make_converter, model_reader, register_hooks
from directsuite.wire.models import Model
from directsuite.wire.parsing import MismatchError, Shape, parse_in_parts
from directsuite.wire.values import SKIPPED

if TYPE_CHECKING:
    import cattrs

M = TypeVar("M", bound=Model)

_LONE = re.compile("[\ud800-\udfff]")  # surrogates that came without their other half


class Codec:
    """JSON to models and back, by a converter with the package's hooks: the program's own, or a new one."""

    def __init__(self, converter: cattrs.Converter | None = None) -> None:
        """converter: gets the package's hooks where it hasn't them."""
        self.converter = make_converter() if converter is None else converter
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

    def structure(self, cls: type[M], value: Any, skipped: Callable[[int], None] | None = None) -> M:
        """A model from plain values, as `parse` gives them. skipped: called with the number of null elements."""
        SKIPPED.count = 0
        try:
            model = self.converter.structure(value, cls)
            if SKIPPED.count and skipped is not None:
                skipped(SKIPPED.count)
            return model
        except (MemoryError, RecursionError):
            raise
        except Exception:  # noqa: BLE001, S110  a program's own hooks may raise anything
            pass
        raise model_reader(self.converter, cls).find(value, "$") or MismatchError("readable")

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
        """The JSON value for what a hook of the program's own has left as it was."""
        if isinstance(value, Secret):
            return self.converter.unstructure(value)
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
