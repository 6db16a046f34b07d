"""Changes whose answer got lost, where Save, the updates and GetDocInfo need not spell a version's digest alike."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import attrs
import pytest

import directsuite as ds

from .test_verification_signing import UPDATES
from .verification_scenario import VerificationScenario, await_outcome, open_scenario

pytestmark = pytest.mark.wide


@pytest.fixture
async def scenario() -> AsyncIterator[VerificationScenario]:
    async with open_scenario() as running:
        yield running


def _looks_spell(monkeypatch: pytest.MonkeyPatch, spelling: Callable[[str], str]) -> None:
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
async def test_change_is_disproved_if_info_spells_digest_differently(
    scenario: VerificationScenario, monkeypatch: pytest.MonkeyPatch, operation: str, spelling: Callable[[str], str]
) -> None:
    _looks_spell(monkeypatch, spelling)
    document = await scenario.save()
    await scenario.signing.get_doc_info(document)
    update = await UPDATES[operation](scenario.signing, document)
    scenario.sandbox.inject_fault(operation, "reset_before")
    with pytest.raises(ds.OutcomeUnknownError) as caught:
        await UPDATES[operation](scenario.signing, update)
    assert (caught.value.looked, caught.value.happened) == (True, False)


@pytest.mark.parametrize("operation", UPDATES)
async def test_digest_of_get_doc_info_verifies_in_any_spelling(
    scenario: VerificationScenario, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    _looks_spell(monkeypatch, _other_algorithm)
    info = await scenario.signing.get_doc_info(await scenario.save())
    scenario.sandbox.inject_fault(operation, "reset_after")
    update = await UPDATES[operation](scenario.signing, info)
    assert update.document_digest == (await scenario.signing.get_doc_info(update)).document_digest


@pytest.mark.parametrize("operation", UPDATES)
async def test_digest_of_save_verifies_without_an_earlier_get_doc_info(
    scenario: VerificationScenario, operation: str
) -> None:
    scenario.sandbox.inject_fault(operation, "reset_after")
    reported = await await_outcome(UPDATES[operation](scenario.signing, await scenario.save()))
    assert isinstance(reported, ds.DocumentUpdate)
    assert await scenario.count_effects(operation) == 1
