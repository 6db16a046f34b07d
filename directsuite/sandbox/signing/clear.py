"""Remove unsigned signature fields from a document, without invalidating its signatures.

The fields are removed in an incremental update. pyHanko considers every removal of a field suspicious. POLICY removes
the same empty signature fields from its view of the signed revision, so that pyHanko judges only the other changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyhanko.pdf_utils import generic
from pyhanko.pdf_utils.generic import pdf_name
from pyhanko.pdf_utils.reader import HistoricalResolver
from pyhanko.sign.diff_analysis import DEFAULT_DIFF_POLICY, DiffResult, ModificationLevel, StandardDiffPolicy
from pyhanko.sign.fields import enumerate_sig_fields

from directsuite.sandbox.signing.document import open_incremental_writer

if TYPE_CHECKING:
    from pathlib import Path

    from pyhanko.sign.fields import FieldMDPSpec, MDPPerm

_enumerate_fields: Any = enumerate_sig_fields  # it has no types


def clear_unsigned_fields(source: Path, target: Path) -> list[str]:
    """Write the document without its empty signature fields to `target`, and return their names.

    If it has none, return [] and write nothing.
    """
    with source.open("rb") as document:
        writer: Any = open_incremental_writer(document)
        empty: list[tuple[str, Any, Any]] = list(_enumerate_fields(writer, filled_status=False))
        if not empty:
            return []
        for container in _prune(writer, [field for _, _, field in empty]):
            writer.update_container(container)
        form: Any = writer.root["/AcroForm"]
        # A new object, because qpdf reports an invalid /Size for an update that adds none.
        form[pdf_name("/Fields")] = writer.add_object(generic.ArrayObject(_list_raw_items(form, "/Fields")))
        writer.update_container(form)
        with target.open("wb") as output:
            writer.write(output)
        return [str(name) for name, _, _ in empty]


class _ClearingPolicy(StandardDiffPolicy):
    def apply(
        self,
        old: HistoricalResolver,
        new: HistoricalResolver,
        field_mdp_spec: FieldMDPSpec | None = None,
        doc_mdp: MDPPerm | None = None,
    ) -> DiffResult:
        before, after = (_copy_view(each, HistoricalResolver) for each in (old, new))  # they count no lookups
        remaining = {name for name, _, _ in _enumerate_fields(after)}
        empty = _enumerate_fields(before, filled_status=False)
        removed: dict[str, Any] = {name: field for name, _, field in empty if name not in remaining}
        is_locked = field_mdp_spec is not None and any(map(field_mdp_spec.is_locked, removed))
        if not removed or is_locked or doc_mdp is not None:  # a certification never permits the removal of fields
            return super().apply(old, new, field_mdp_spec, doc_mdp)
        pruned = _copy_view(old, type(old))  # pyHanko uses `old` again for other signatures
        for changed in _prune(pruned, removed.values()):
            is_empty = "/Annots" in changed and not changed["/Annots"]
            if is_empty and "/Annots" not in after.get_object(changed.container_ref):
                del changed["/Annots"]
        result = super().apply(pruned, new, field_mdp_spec, doc_mdp)
        return replace(result, modification_level=max(result.modification_level, ModificationLevel.FORM_FILLING))


POLICY = _ClearingPolicy(DEFAULT_DIFF_POLICY.global_rules, DEFAULT_DIFF_POLICY.form_rule)


def _copy_view(resolver: Any, kind: Any) -> Any:
    return kind(resolver.reader, resolver.revision)


def _prune(document: Any, fields: Iterable[Any]) -> Iterator[Any]:
    """Remove fields and their widgets from a document in memory, and yield the changed objects."""
    removed: set[Any] = set()
    for field in fields:
        removed |= {field.reference, *map(_find_reference, _list_raw_items(field.get_object(), "/Kids"))}
    removed.discard(None)  # of kids that are not references
    yield from _prune_fields(document.root["/AcroForm"], "/Fields", removed)
    for page in _iter_pages(document.root["/Pages"]):
        if _remove_items(page, "/Annots", removed):
            yield page


def _iter_pages(node: Any) -> Iterator[Any]:
    for kid in (item.get_object() for item in node["/Kids"]):
        if "/Kids" in kid:
            yield from _iter_pages(kid)
        else:
            yield kid


def _prune_fields(container: Any, key: str, removed: set[Any]) -> Iterator[Any]:
    """Remove fields from an array, and from its fields. Add a parent that loses all its fields to `removed`."""
    for item in _list_raw_items(container, key):
        node: Any = item.get_object()
        kids = _list_raw_items(node, "/Kids")
        if _find_reference(item) not in removed and any("/T" in kid.get_object() for kid in kids):
            yield from _prune_fields(node, "/Kids", removed)
            if not node["/Kids"]:
                removed.add(_find_reference(item))
    if _remove_items(container, key, removed):
        yield container


def _remove_items(container: Any, key: str, removed: set[Any]) -> bool:
    """Remove references from an array. Return True if it has changed."""
    before = _list_raw_items(container, key)
    after = [item for item in before if _find_reference(item) not in removed]
    if len(after) == len(before):
        return False
    container[pdf_name(key)] = generic.ArrayObject(after)
    return True


def _find_reference(item: Any) -> Any:
    return item.reference if isinstance(item, generic.IndirectObject) else None


def _list_raw_items(container: Any, key: str) -> list[Any]:
    return [container[key].raw_get(position) for position in range(len(container[key]))] if key in container else []
