"""Mutations that keep JSON whole: where bytes alone are changed, most inputs end at the parser."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, cast

import msgspec

from benchmarks.fuzz.inputs import HEAD_BYTES
from tests.property.hostile import CODES, NON_INTEGER_DIGITS, VALUES
from tests.property.sample_responses import OPERATIONS, SAMPLE_RESPONSES, Place, list_member_names, list_places

_HOSTILE = [msgspec.Raw(value) for value in (*VALUES, *CODES, *NON_INTEGER_DIGITS)]
_NAMES = sorted(set[str]().union(*map(list_member_names, SAMPLE_RESPONSES.values())) | {"code", "error", "description"})

Mutate = Callable[[bytes, int], bytes]


class Mutator:
    """Changes one place of a JSON body, its operation and status now and then, or leaves all to libFuzzer."""

    def __init__(self, by_bytes: Mutate) -> None:
        self._by_bytes = by_bytes

    def __call__(self, content: bytes, max_size: int, seed: int) -> bytes:
        chance = random.Random(seed)
        head, body = content[:HEAD_BYTES], content[HEAD_BYTES:]
        if chance.random() < 0.4 or len(head) < HEAD_BYTES:
            return self._by_bytes(content, max_size)
        if chance.random() < 0.2:
            spot = chance.randrange(HEAD_BYTES)
            head = head[:spot] + chance.randbytes(1) + head[spot + 1 :]
        try:
            document: Any = msgspec.json.decode(body)
            changed = head + msgspec.json.encode(_change_place(document, chance))
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            operation = OPERATIONS[head[1] % len(OPERATIONS)]
            changed = head + msgspec.json.encode(SAMPLE_RESPONSES[operation.name])
        return changed if len(changed) <= max_size else self._by_bytes(content, max_size)


def _change_place(document: Any, chance: random.Random) -> Any:
    place = chance.choice(list(list_places(document)))
    if not place:
        return {chance.choice(_NAMES): document}
    return _get_at(document, place, chance)


def _get_at(document: Any, place: Place, chance: random.Random) -> Any:
    step, *further = place
    changed: Any = document.copy()
    if further:
        changed[step] = _get_at(document[step], tuple(further), chance)
        return changed
    match chance.randrange(6):
        case 0:
            del changed[step]
        case 1:
            changed[step] = [document[step]]
        case 2 if isinstance(document, dict):
            cast("dict[Any, Any]", changed)[chance.choice(_NAMES)] = changed.pop(step)
        case 3:
            changed[step] = str(document[step])
        case _:
            changed[step] = chance.choice(_HOSTILE)
    return changed
