"""Changes whose answer got lost, where Save, the updates and GetDocInfo need not spell a version's digest alike."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import attrs
import pytest

import directsuite as ds

from .settling_scene import Scene, outcome_of, scene
from .test_settling_signing import UPDATES


@pytest.fixture
async def world() -> AsyncIterator[Scene]:
    async with scene() as running:
        yield running


def _looks_spell(monkeypatch: pytest.MonkeyPatch, spelling: Callable[[str], str]) -> None:
    """Let GetDocInfo tell digests in a spelling of its own."""
    call: Callable[..., Awaitable[Any]] = ds.Signing._call

    async def respelled(self: ds.Signing, *args: Any, **options: Any) -> Any:
        answer = await call(self, *args, **options)
        if isinstance(answer, ds.DocumentInfo):
            return attrs.evolve(answer, document_digest=spelling(answer.document_digest or ""))
        return answer

    monkeypatch.setattr(ds.Signing, "_call", respelled)


def _other_algorithm(digest: str) -> str:
    return hashlib.sha512(digest.encode()).hexdigest()


@pytest.mark.parametrize("spelling", [_other_algorithm, str.upper])
@pytest.mark.parametrize("operation", ["Flatten", "ClearUnsignedFields"])
async def test_digests_spelled_in_two_ways_prove_nothing_of_a_document_that_looked_so_before(
    world: Scene, monkeypatch: pytest.MonkeyPatch, operation: str, spelling: Callable[[str], str]
) -> None:
    _looks_spell(monkeypatch, spelling)
    document = await world.save()
    await world.signing.get_doc_info(document)
    update = await UPDATES[operation](world.signing, document)
    world.sandbox.inject_fault(operation, "reset_before")
    with pytest.raises(ds.OutcomeUnknownError) as caught:
        await UPDATES[operation](world.signing, update)
    assert (caught.value.looked, caught.value.happened) == (True, False)


@pytest.mark.parametrize("operation", UPDATES)
async def test_a_digest_that_was_looked_up_settles_in_any_spelling(
    world: Scene, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    _looks_spell(monkeypatch, _other_algorithm)
    info = await world.signing.get_doc_info(await world.save())
    world.sandbox.inject_fault(operation, "reset_after")
    update = await UPDATES[operation](world.signing, info)
    assert update.document_digest == (await world.signing.get_doc_info(update)).document_digest


@pytest.mark.parametrize("operation", UPDATES)
async def test_what_save_told_settles_without_any_look_before(world: Scene, operation: str) -> None:
    world.sandbox.inject_fault(operation, "reset_after")
    told = await outcome_of(UPDATES[operation](world.signing, await world.save()))
    assert isinstance(told, ds.DocumentUpdate)
    assert await world.effects(operation) == 1
