"""Which later changes leave a signature valid: pyHanko's rules, and the removal of unsigned signature fields.

ClearUnsignedFields takes empty signature fields out of a document that others have signed already. pyHanko calls
every removal of a field suspicious; this policy accepts it when the field was a signature field, was empty, and
nothing else went with it. A certified document does not allow it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from pyhanko.pdf_utils import generic
from pyhanko.sign.diff_analysis import (
    DEFAULT_DIFF_POLICY,
    FormUpdatingRule,
    GenericFieldModificationRule,
    ModificationLevel,
    SigFieldCreationRule,
    SigFieldModificationRule,
    StandardDiffPolicy,
    SuspiciousModification,
)
from pyhanko.sign.diff_analysis.commons import compare_dicts
from pyhanko.sign.diff_analysis.constants import VALUE_UPDATE_KEYS
from pyhanko.sign.diff_analysis.form_rules_api import (
    FieldComparisonContext,
    FieldComparisonSpec,
    FieldMDPRule,
    FormUpdate,
)
from pyhanko.sign.diff_analysis.rules.form_field_rules import BaseFieldModificationRule

_Updates = Iterator[tuple[ModificationLevel, FormUpdate]]
_creation_rule: Any = SigFieldCreationRule  # its __init__ has no types
_Specs = dict[str, FieldComparisonSpec]


class SigFieldCreationOrRemovalRule(FieldMDPRule):
    """Accepts new signature fields as pyHanko does, and the removal of those that were never signed."""

    def apply(self, context: FieldComparisonContext) -> Iterable[tuple[ModificationLevel, FormUpdate]]:
        """The updates that are in order; raises SuspiciousModification for a change that is not."""
        removed = {name: spec for name, spec in context.field_specs.items() if _removed(spec)}
        if not removed:
            yield from _creation_rule(approve_widget_bindings=True).apply(context)
            return
        for name, spec in removed.items():
            if spec.field_type not in ("/Sig", None) or "/V" in _dictionary(spec.old_field):
                raise SuspiciousModification(f"the field {name} was removed after signing, and was in use")
        kept = {name: spec for name, spec in context.field_specs.items() if name not in removed}
        yield from _page_updates(context, removed, kept)
        yield from _parent_updates(kept)
        without = replace(context, field_specs=kept)
        yield from _creation_rule(approve_widget_bindings=False).apply(without)


def _removed(spec: FieldComparisonSpec) -> bool:
    return spec.old_field_ref is not None and spec.new_field_ref is None


def _page_updates(context: FieldComparisonContext, removed: _Specs, kept: _Specs) -> _Updates:
    """Pages may lose the widgets of removed fields and gain those of new signature fields, nothing else."""
    may_go = {ref for spec in removed.values() for ref in _widgets(spec.old_field_ref, spec.old_field)}
    may_come = {
        ref
        for spec in kept.values()
        if spec.field_type == "/Sig" and spec.old_field_ref is None
        for ref in _widgets(spec.new_field_ref, spec.new_field)
    }
    for old_page, new_page, page_ref in _page_pairs(context.old.root["/Pages"], context.new.root["/Pages"]):
        before, after = _references(old_page, "/Annots"), _references(new_page, "/Annots")
        if before == after:
            continue
        if before - after - may_go or after - before - may_come:
            raise SuspiciousModification("annotations other than unsigned signature fields were added or removed")
        compare_dicts(old_page, new_page, frozenset(["/Annots"]))
        touched = [page_ref]
        array = new_page.raw_get("/Annots") if "/Annots" in new_page else None
        if isinstance(array, generic.IndirectObject):
            touched.append(array.reference)
        for ref in touched:
            yield (
                ModificationLevel.FORM_FILLING,
                FormUpdate(updated_ref=ref, field_name=None, valid_when_certifying=not before - after),
            )


def _parent_updates(kept: _Specs) -> _Updates:
    """Parents of removed fields may lose them from their /Kids."""
    for name, spec in kept.items():
        if not _lost_subfields(spec):
            continue
        touched = [spec.new_field_ref]
        array = _dictionary(spec.new_field).raw_get("/Kids")
        if isinstance(array, generic.IndirectObject):
            touched.append(array.reference)
        for ref in touched:
            assert ref is not None  # noqa: S101  a field that lost kids is still there
            yield (
                ModificationLevel.FORM_FILLING,
                FormUpdate(updated_ref=ref, field_name=name, valid_when_certifying=False),
            )


def _lost_subfields(spec: FieldComparisonSpec) -> bool:
    """Whether a field's /Kids differ only in fields that are no longer there, each of which is judged by its name.

    A kid without a name is a widget, not a field: losing it is a change of this field, which the other rules judge.
    """
    if spec.old_field_ref is None or spec.new_field_ref is None:
        return False
    before, after = _references(_dictionary(spec.old_field), "/Kids"), _references(_dictionary(spec.new_field), "/Kids")
    return after < before and all("/T" in lost.get_object() for lost in before - after)


class _AllowsLostSubfields(BaseFieldModificationRule):
    def compare_fields(self, spec: FieldComparisonSpec) -> bool:
        if not _lost_subfields(spec):
            return super().compare_fields(spec)
        compare_dicts(spec.old_field, spec.new_field, VALUE_UPDATE_KEYS | {"/Kids"})
        return False


class _GenericFieldRule(_AllowsLostSubfields, GenericFieldModificationRule):
    pass


class _SigFieldRule(_AllowsLostSubfields, SigFieldModificationRule):
    pass


def _widgets(field_ref: generic.Reference | None, field: Any) -> set[Any]:
    return {field_ref, *_references(_dictionary(field), "/Kids")}


def _references(container: Any, key: str) -> set[Any]:
    array: Any = container[key] if key in container else []  # noqa: SIM401  get() does not follow references
    items = (array.raw_get(position) for position in range(len(array)))
    return {item.reference for item in items if isinstance(item, generic.IndirectObject)}


def _page_pairs(old: Any, new: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Each page as it was and as it is, with its reference; the page tree itself cannot have changed."""
    for position in range(len(old["/Kids"])):
        before, after = old["/Kids"].raw_get(position), new["/Kids"].raw_get(position)
        if "/Kids" in before.get_object():
            yield from _page_pairs(before.get_object(), after.get_object())
        else:
            yield before.get_object(), after.get_object(), after.reference


def _dictionary(field: Any) -> Any:
    empty: dict[str, Any] = {}
    return field if field is not None else empty


POLICY = StandardDiffPolicy(
    global_rules=DEFAULT_DIFF_POLICY.global_rules,
    form_rule=FormUpdatingRule(field_rules=[SigFieldCreationOrRemovalRule(), _SigFieldRule(), _GenericFieldRule()]),
)
