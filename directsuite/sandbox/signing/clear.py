"""Remove unsigned signature fields from a document, without invalidating its signatures.

The fields are removed in an incremental update. pyHanko considers every removal of a field suspicious. POLICY accepts
the removal of empty signature fields if nothing else is removed with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyhanko.pdf_utils import generic
from pyhanko.pdf_utils.generic import pdf_name
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
from pyhanko.sign.fields import enumerate_sig_fields

from directsuite.sandbox.signing.document import open_incremental_writer

if TYPE_CHECKING:
    from pathlib import Path

_Updates = Iterator[tuple[ModificationLevel, FormUpdate]]
_creation_rule: Any = SigFieldCreationRule  # its __init__ has no types
_Specs = dict[str, FieldComparisonSpec]


def clear_unsigned_fields(source: Path, target: Path) -> list[str]:
    """Write the document without its empty signature fields to `target`, and return their names.

    If it has none, return [] and write nothing.
    """
    with source.open("rb") as document:
        writer: Any = open_incremental_writer(document)
        enumerate_fields: Any = enumerate_sig_fields
        empty: list[tuple[str, Any, Any]] = list(enumerate_fields(writer, filled_status=False))
        if not empty:
            return []
        removed = {
            reference
            for _, _, field in empty
            for reference in _collect_widget_references(field.reference, field.get_object())
        }
        _prune_fields(writer, writer.root["/AcroForm"], "/Fields", removed)
        _prune_pages(writer, removed)
        with target.open("wb") as output:
            writer.write(output)
        return [str(name) for name, _, _ in empty]


def _prune_fields(writer: Any, container: Any, key: str, removed: set[Any]) -> bool:
    before = _list_raw_items(container[key])
    after = [item for item in before if not _prune_item(writer, item, removed)]
    if len(after) < len(before) and (after or key == "/Fields"):
        # A new object, because qpdf reports an invalid /Size for an update that adds none.
        container[pdf_name(key)] = writer.add_object(generic.ArrayObject(after))
        writer.update_container(container)
    return not after


def _prune_item(writer: Any, item: Any, removed: set[Any]) -> bool:
    if getattr(item, "reference", None) in removed:
        return True
    node: Any = item.get_object()
    has_subfields = "/Kids" in node and any("/T" in kid.get_object() for kid in _list_raw_items(node["/Kids"]))
    return has_subfields and _prune_fields(writer, node, "/Kids", removed)


def _prune_pages(writer: Any, removed: set[Any]) -> None:
    for number in range(int(writer.root["/Pages"]["/Count"])):
        page: Any = writer.find_page_for_modification(number)[0].get_object()
        if "/Annots" not in page:
            continue
        before = _list_raw_items(page["/Annots"])
        after = [
            item for item in before if not (isinstance(item, generic.IndirectObject) and item.reference in removed)
        ]
        if len(after) == len(before):
            continue
        if after:
            page[pdf_name("/Annots")] = generic.ArrayObject(after)
        else:
            del page["/Annots"]
        writer.update_container(page)


def _list_raw_items(array: Any) -> list[Any]:
    return [array.raw_get(position) for position in range(len(array))]


class _SigFieldCreationOrRemovalRule(FieldMDPRule):
    def apply(self, context: FieldComparisonContext) -> Iterable[tuple[ModificationLevel, FormUpdate]]:
        removed = {
            name: spec
            for name, spec in context.field_specs.items()
            if spec.old_field_ref is not None and spec.new_field_ref is None
        }
        if not removed:
            yield from _creation_rule(approve_widget_bindings=True).apply(context)
            return
        for name, spec in removed.items():
            if spec.field_type not in ("/Sig", None) or "/V" in (spec.old_field or ()):
                raise SuspiciousModification(f"the field {name} was removed after signing, and was in use")
        remaining = {name: spec for name, spec in context.field_specs.items() if name not in removed}
        yield from _iter_page_updates(context, removed, remaining)
        for name, spec in remaining.items():
            if _has_lost_subfields(spec):
                yield from _iter_array_updates(spec.new_field_ref, spec.new_field, "/Kids", field_name=name)
        without = replace(context, field_specs=remaining)
        yield from _creation_rule(approve_widget_bindings=False).apply(without)


def _iter_page_updates(context: FieldComparisonContext, removed: _Specs, remaining: _Specs) -> _Updates:
    """Yield the changes of pages that only lose widgets of removed fields or gain those of new signature fields."""
    may_go = {
        ref for spec in removed.values() for ref in _collect_widget_references(spec.old_field_ref, spec.old_field)
    }
    may_come = {
        ref
        for spec in remaining.values()
        if spec.field_type == "/Sig" and spec.old_field_ref is None
        for ref in _collect_widget_references(spec.new_field_ref, spec.new_field)
    }
    for old_page, new_page, page_ref in _pair_pages(context.old.root["/Pages"], context.new.root["/Pages"]):
        before, after = _list_references(old_page, "/Annots"), _list_references(new_page, "/Annots")
        if before == after:
            continue
        if before - after - may_go or after - before - may_come:
            raise SuspiciousModification("annotations other than unsigned signature fields were added or removed")
        compare_dicts(old_page, new_page, frozenset(["/Annots"]))
        yield from _iter_array_updates(page_ref, new_page, "/Annots", valid_when_certifying=not before - after)


def _iter_array_updates(
    owner: Any, dictionary: Any, key: str, *, field_name: str | None = None, valid_when_certifying: bool = False
) -> _Updates:
    """Yield the update of an object whose array has changed and, if the array is a separate object, of the array."""
    array = dictionary.raw_get(key) if key in dictionary else None
    for reference in [owner, *([array.reference] if isinstance(array, generic.IndirectObject) else [])]:
        update = FormUpdate(updated_ref=reference, field_name=field_name, valid_when_certifying=valid_when_certifying)
        yield ModificationLevel.FORM_FILLING, update


def _has_lost_subfields(spec: FieldComparisonSpec) -> bool:
    """Return True if a field still exists, has lost only kids with a name (subfields), and has gained none."""
    if spec.old_field_ref is None or spec.new_field_ref is None:
        return False
    before, after = _list_references(spec.old_field, "/Kids"), _list_references(spec.new_field, "/Kids")
    return after < before and all("/T" in lost.get_object() for lost in before - after)


class _LostSubfieldsMixin(BaseFieldModificationRule):
    def compare_fields(self, spec: FieldComparisonSpec) -> bool:
        if not _has_lost_subfields(spec):
            return super().compare_fields(spec)
        compare_dicts(spec.old_field, spec.new_field, VALUE_UPDATE_KEYS | {"/Kids"})
        return False


class _GenericFieldRule(_LostSubfieldsMixin, GenericFieldModificationRule):
    pass


class _SigFieldRule(_LostSubfieldsMixin, SigFieldModificationRule):
    pass


def _collect_widget_references(field_ref: generic.Reference | None, field: Any) -> set[Any]:
    return {field_ref, *_list_references(field, "/Kids")}


def _list_references(container: Any, key: str) -> set[Any]:
    if container is None or key not in container:
        return set()
    items = _list_raw_items(container[key])
    return {item.reference for item in items if isinstance(item, generic.IndirectObject)}


def _pair_pages(old: Any, new: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Yield each page before and after the change, and its reference. The page tree itself cannot change."""
    for position in range(len(old["/Kids"])):
        before, after = old["/Kids"].raw_get(position), new["/Kids"].raw_get(position)
        if "/Kids" in before.get_object():
            yield from _pair_pages(before.get_object(), after.get_object())
        else:
            yield before.get_object(), after.get_object(), after.reference


POLICY = StandardDiffPolicy(
    global_rules=DEFAULT_DIFF_POLICY.global_rules,
    form_rule=FormUpdatingRule(field_rules=[_SigFieldCreationOrRemovalRule(), _SigFieldRule(), _GenericFieldRule()]),
)
