"""Removing unsigned signature fields in an incremental update, so that signatures already there stay valid."""

from __future__ import annotations

import io
from typing import Any

from pyhanko.pdf_utils import generic
from pyhanko.pdf_utils.generic import pdf_name
from pyhanko.sign.fields import enumerate_sig_fields

from directsuite.sandbox.signing.document import incremental_writer
from directsuite.sandbox.signing.refusals import InvalidActionError


def clear_unsigned_fields(content: bytes) -> tuple[bytes, list[str]]:
    """The document without its empty signature fields, and their names; unchanged if it has none.

    Raises InvalidActionError for a certified document: its certificate does not allow fields to be removed.
    """
    writer: Any = incremental_writer(content)
    enumerate_fields: Any = enumerate_sig_fields
    found: list[tuple[str, Any, Any]] = list(enumerate_fields(writer, filled_status=False))
    if not found:
        return content, []
    if _certified(writer.root):
        raise InvalidActionError("the document is certified, which does not allow fields to be removed")
    gone = _with_widgets(reference for _, _, reference in found)
    _prune_fields(writer, writer.root["/AcroForm"], "/Fields", gone)
    _prune_pages(writer, gone)
    output = io.BytesIO()
    writer.write(output)
    return output.getvalue(), [str(name) for name, _, _ in found]


def _certified(root: Any) -> bool:
    permissions: Any = root["/Perms"] if "/Perms" in root else None  # noqa: SIM401  get() does not follow references
    return (
        isinstance(permissions, generic.DictionaryObject)
        and "/DocMDP" in permissions
        and isinstance(permissions["/DocMDP"], generic.DictionaryObject)
    )


def _with_widgets(fields: Any) -> set[Any]:
    gone: set[Any] = set()
    for field in fields:
        gone.add(field.reference)
        dictionary = field.get_object()
        if "/Kids" in dictionary:
            gone.update(item.reference for item in _raw_items(dictionary["/Kids"]))
    return gone


def _prune_fields(writer: Any, container: Any, key: str, gone: set[Any]) -> bool:
    """Take the removed fields out of a level of the form; whether that level is left without any field."""
    before = _raw_items(container[key])
    after = [item for item in before if not _is_gone(writer, item, gone)]
    if len(after) < len(before) and (after or key == "/Fields"):
        # an object of its own, since an update that adds no object makes qpdf complain of its /Size
        container[pdf_name(key)] = writer.add_object(generic.ArrayObject(after))
        writer.update_container(container)
    return not after


def _is_gone(writer: Any, item: Any, gone: set[Any]) -> bool:
    if getattr(item, "reference", None) in gone:
        return True
    node: Any = item.get_object()
    has_subfields = "/Kids" in node and any("/T" in kid.get_object() for kid in _raw_items(node["/Kids"]))
    return has_subfields and _prune_fields(writer, node, "/Kids", gone)


def _prune_pages(writer: Any, gone: set[Any]) -> None:
    for number in range(int(writer.root["/Pages"]["/Count"])):
        page: Any = writer.find_page_for_modification(number)[0].get_object()
        if "/Annots" not in page:
            continue
        before = _raw_items(page["/Annots"])
        after = [item for item in before if not (isinstance(item, generic.IndirectObject) and item.reference in gone)]
        if len(after) == len(before):
            continue
        if after:
            page[pdf_name("/Annots")] = generic.ArrayObject(after)
        else:
            del page["/Annots"]
        writer.update_container(page)


def _raw_items(array: Any) -> list[Any]:
    return [array.raw_get(position) for position in range(len(array))]
