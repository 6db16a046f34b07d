"""Flatten a document: draw its form fields into the pages, and remove the fields.

Links, notes and empty signature fields are preserved, so that a flattened document can still be signed. Hidden fields
are not drawn. A missing or outdated appearance (the drawing of a widget) is generated here, because qpdf's generator
writes question marks for characters outside Latin-1 and loses borders. Size and color come from the default appearance
(/DA); border, background and rotation from the appearance characteristics (/MK).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pikepdf
from pikepdf import Array, Dictionary, Name, Rectangle

from directsuite.sandbox.rejections import InvalidActionError
from directsuite.sandbox.signing import document
from directsuite.sandbox.signing.appearance import (
    Drawing,
    TextStyle,
    draw_comb,
    draw_item_list,
    draw_line,
    draw_paragraph,
    fill_rectangle,
    find_font,
)
from directsuite.sandbox.signing.document import FieldFlag, PdfField

if TYPE_CHECKING:
    from pathlib import Path

_FONT_SIZE = re.compile(r"/[^\s/]++\s++(-?[\d.]++)\s++Tf")
_PAINT_OPERATORS = {1: ("g", "G"), 3: ("rg", "RG"), 4: ("k", "K")}  # for filling and stroking, by number of components
_INVISIBLE, _HIDDEN, _NO_VIEW, _READ_ONLY, _LOCKED = 1, 2, 32, 64, 128  # annotation flags (ISO 32000-1, 12.5.3)
_MAX_COVERED = 100  # rectangles compared on a page; on pages with more, every widget counts as covering one
_MARKS = {"checkbox": "\N{HEAVY CHECK MARK}", "radio": "\N{BLACK CIRCLE}"}  # in ZapfDingbats


def flatten(source: Path, target: Path) -> list[str]:
    """Write the flattened document to `target`, and return the names of removed fields.

    If there is nothing to flatten, return [] and write nothing.
    """
    with document.open_pdf(source) as pdf:
        signatures = document.count_signatures(pdf)
        if signatures:
            raise InvalidActionError(
                f"the document has {signatures} signature(s), which flattening would invalidate: flatten before signing"
            )
        form = document.find_acro_form(pdf)
        names = [field.name for field in document.iter_fields(pdf) if field.kind != "signature"]
        if form is None or not names:
            return []
        complete_appearances(pdf)
        roots = list(form.get("/Fields", Array([])))  # flattening removes the form
        stashed = _stash_annotations(pdf)
        pdf.flatten_annotations("screen")
        for page, annotations in zip(pdf.pages, stashed, strict=True):
            if annotations:
                page.obj["/Annots"] = Array(annotations)
            elif "/Annots" in page.obj:
                del page.obj["/Annots"]
        seen = set[tuple[int, int]]()
        remaining = [field for field in roots if _prune_to_signature_fields(field, seen)]
        if "/AcroForm" in pdf.Root:
            del pdf.Root["/AcroForm"]
        if remaining:
            pdf.Root["/AcroForm"] = pdf.make_indirect(Dictionary(Fields=Array(remaining)))
        document.rewrite(pdf, target)
        return names


def _stash_annotations(pdf: pikepdf.Pdf) -> list[list[pikepdf.Object]]:
    """Reduce the annotations of the pages to the widgets to flatten. Return the annotations to restore on each page.

    Page content is below annotations. Therefore a widget above another annotation becomes a stamp annotation instead.
    """
    signatures = {
        widget.objgen for field in document.iter_fields(pdf) if field.kind == "signature" for widget in field.widgets
    }
    stashed: list[list[pikepdf.Object]] = []
    for page in pdf.pages:
        notes = page.obj.get("/Annots")
        items = notes if isinstance(notes, pikepdf.Array) else Array([])
        restored: list[pikepdf.Object] = []
        baked: list[pikepdf.Object] = []
        covered: list[Rectangle] = []
        for note in (item for item in items if isinstance(item, pikepdf.Dictionary)):
            rectangle = document.parse_rectangle(note.get("/Rect"))
            if str(note.get("/Subtype")) != "/Widget" or note.objgen in signatures:
                restored.append(note)
            else:
                _prepare_widget(pdf, note)
                is_above = rectangle is not None and (
                    len(covered) > _MAX_COVERED or any(document.overlap(rectangle, other) for other in covered)
                )
                if not (is_above and _is_drawn(note)):
                    baked.append(note)
                    continue
                stamp = Dictionary(Type=Name.Annot, Subtype=Name.Stamp, Rect=note["/Rect"], P=page.obj)
                stamp["/AP"] = Dictionary(N=_find_appearance(note))
                stamp["/F"] = document.to_integer(note.get("/F")) | _READ_ONLY | _LOCKED
                restored.append(pdf.make_indirect(stamp))
            if rectangle is not None and _is_drawn(note):
                covered.append(rectangle)
        stashed.append(restored)
        page.obj["/Annots"] = Array(baked)
    return stashed


def _prepare_widget(pdf: pikepdf.Pdf, widget: pikepdf.Object) -> None:
    """Clear a widget's Invisible flag. Add its optional content group, if any, to a copy of its appearance."""
    flags = document.to_integer(widget.get("/F"))
    if flags & _INVISIBLE:  # affects only annotations of unknown types
        widget["/F"] = flags & ~_INVISIBLE
    layer, appearance = widget.get("/OC"), _find_appearance(widget)
    if layer is None or appearance is None:
        return
    # A copy, because other widgets may share the original.
    in_layer = pikepdf.Stream(pdf, appearance.read_raw_bytes())
    for key, entry in appearance.items():
        if key != "/Length":
            in_layer[key] = entry
    in_layer["/OC"] = layer
    widget["/AP"] = Dictionary(N=in_layer)


def _find_appearance(note: pikepdf.Object) -> pikepdf.Stream | None:
    appearances = note.get("/AP")
    normal = appearances.get("/N") if isinstance(appearances, pikepdf.Dictionary) else None
    if isinstance(normal, pikepdf.Dictionary) and not isinstance(normal, pikepdf.Stream):
        normal = normal.get(str(note.get("/AS", "/Off")))
    return normal if isinstance(normal, pikepdf.Stream) else None


def _is_drawn(note: pikepdf.Object) -> bool:
    return _find_appearance(note) is not None and not document.to_integer(note.get("/F")) & (_HIDDEN | _NO_VIEW)


def _prune_to_signature_fields(node: pikepdf.Object, seen: set[tuple[int, int]]) -> bool:
    if document.is_seen(node, seen):
        return False
    below = document.list_subfields(node)
    if not below:
        return PdfField("", node, []).kind == "signature"
    remaining = [kid for kid in below if _prune_to_signature_fields(kid, seen)]
    node["/Kids"] = Array(remaining)
    return bool(remaining)


def complete_appearances(pdf: pikepdf.Pdf) -> None:
    """Draw the missing appearances of text, choice and button fields, except push buttons with an icon.

    If /NeedAppearances is set, also replace existing appearances that contain text, and remove the entry. Make check
    boxes and radio buttons show the values of their fields.
    """
    form = document.find_acro_form(pdf)
    if form is None:
        return
    outdated = str(form.get("/NeedAppearances", False)).lower() == "true"
    for field in document.iter_fields(pdf):
        for widget in field.widgets:
            if "/Rect" not in widget:
                continue
            if field.kind in _MARKS:
                _show_state(pdf, field, widget, outdated=outdated)
            elif (outdated or not isinstance(widget.get("/AP", Dictionary()).get("/N"), pikepdf.Stream)) and (
                field.kind in ("text", "choice") or _find_caption(field, widget) is not None
            ):
                _draw_text(pdf, form, field, widget)
    if "/NeedAppearances" in form:
        del form["/NeedAppearances"]


def _draw_text(pdf: pikepdf.Pdf, form: pikepdf.Object, field: PdfField, widget: pikepdf.Object) -> None:
    caption = _find_caption(field, widget)
    options = _list_options(field) if field.kind == "choice" else []
    text = _build_shown_text(field, options) if caption is None else caption
    font = find_font(text)
    if font is None:
        raise InvalidActionError(
            f"the form field {field.name} contains characters that no font on the sandbox's machine has: install a"
            " font that covers them, or add an appearance to the document"
        )
    drawing = _draw_frame(widget)
    default = document.value_to_text(widget.get("/DA") or field.get("/DA") or form.get("/DA")) or "/Helv 0 Tf 0 g"
    sized = _FONT_SIZE.search(default)
    style = TextStyle(
        font=font,
        size=abs(float(sized.group(1))) if sized else 0.0,
        colour=_FONT_SIZE.sub("", default).strip() or "0 g",
        alignment=1
        if caption is not None
        else document.to_integer(widget.get("/Q") or field.get("/Q") or form.get("/Q")),
        width=drawing.width,
        height=drawing.height,
    )
    cells = document.to_integer(field.get("/MaxLen"))
    if field.kind == "choice" and FieldFlag.COMBO not in field.flags:
        chosen, first = _find_chosen(field, options), document.to_integer(field.get("/TI"))
        draw_item_list(drawing.canvas, style, [shown for _, shown in options], chosen, first)
    elif FieldFlag.MULTILINE in field.flags and field.kind == "text":
        draw_paragraph(drawing.canvas, style, text)
    elif FieldFlag.COMB in field.flags and cells > 0:
        draw_comb(drawing.canvas, style, text, cells)
    else:
        draw_line(drawing.canvas, style, text)
    widget["/AP"] = Dictionary(N=drawing.to_form_object(pdf))
    if "/AS" in widget:
        del widget["/AS"]


def _find_caption(field: PdfField, widget: pikepdf.Object) -> str | None:
    looks = widget.get("/MK")
    if field.kind != "pushbutton" or looks is None or "/I" in looks:
        return None
    return document.value_to_text(looks.get("/CA"))


def _build_shown_text(field: PdfField, options: list[tuple[str, str]]) -> str:
    if field.kind == "choice":
        if FieldFlag.COMBO not in field.flags:
            return "".join(shown for _, shown in options)
        return dict(options).get(field.value, field.value)
    return "*" * len(field.value) if FieldFlag.PASSWORD in field.flags else field.value


def _list_options(field: PdfField) -> list[tuple[str, str]]:
    options = field.get("/Opt")
    pairs: list[tuple[str, str]] = []
    for item in options if isinstance(options, pikepdf.Array) else ():
        values = item if isinstance(item, pikepdf.Array) and len(item) == 2 else (item,)
        pairs.append((document.value_to_text(values[0]), document.value_to_text(values[-1])))
    return pairs


def _find_chosen(field: PdfField, options: list[tuple[str, str]]) -> set[int]:
    value = field.get("/V")
    values = {document.value_to_text(item) for item in (value if isinstance(value, pikepdf.Array) else (value,))}
    return {position for position, (exported, shown) in enumerate(options) if {exported, shown} & values}


def _show_state(pdf: pikepdf.Pdf, field: PdfField, widget: pikepdf.Object, *, outdated: bool) -> None:
    """Make a check box or radio button show the value of its field, and draw the state if necessary."""
    own = widget.get("/AS")
    expected = str(own or Name.Off) if field.get("/V") is None else f"/{field.value or 'Off'}"
    appearance = widget.get("/AP")
    states = appearance.get("/N") if appearance is not None else None
    if isinstance(states, pikepdf.Dictionary) and not isinstance(states, pikepdf.Stream):
        names = list(states.keys())
        drawn: dict[str, pikepdf.Object] = {
            name: state for name, state in states.items() if isinstance(state, pikepdf.Stream)
        }
    else:  # only /AS has the name of the state
        names = [str(own)] if own is not None else [expected] * (len(field.widgets) == 1)
        drawn = {}
    shown = expected if expected in names else "/Off"
    if shown not in drawn and (outdated or not drawn):
        drawn[shown] = _draw_mark(pdf, field, widget, is_on=shown != "/Off")
        widget["/AP"] = Dictionary(N=Dictionary(drawn))
    widget["/AS"] = Name(shown)


def _draw_mark(pdf: pikepdf.Pdf, field: PdfField, widget: pikepdf.Object, *, is_on: bool) -> pikepdf.Object:
    drawing = _draw_frame(widget)
    if is_on:
        size = min(drawing.width, drawing.height) * 0.8
        drawing.canvas.setFont("ZapfDingbats", size)
        drawing.canvas.drawCentredString(drawing.width / 2, (drawing.height - size * 0.7) / 2, _MARKS[field.kind])
    return drawing.to_form_object(pdf)


def _draw_frame(widget: pikepdf.Object) -> Drawing:
    """Return a drawing for a widget, with its background and border."""
    rectangle = document.parse_rectangle(widget["/Rect"]) or Rectangle(0, 0, 0, 0)
    looks, border = widget.get("/MK", Dictionary()), widget.get("/BS", Dictionary())
    turned = document.to_integer(looks.get("/R")) // 90 * 90 % 360
    drawing = Drawing(rectangle.width, rectangle.height, turned)
    background, line = _format_colour(looks, "/BG", 0), _format_colour(looks, "/BC", 1)
    if background:
        fill_rectangle(drawing.canvas, background, 0, 0, drawing.width, drawing.height)
    thickness = float(str(border.get("/W", 1)))
    if line and thickness > 0:
        drawing.canvas.saveState()
        drawing.canvas.addLiteral(line)
        drawing.canvas.setLineWidth(thickness)
        inset = thickness / 2
        drawing.canvas.rect(inset, inset, drawing.width - thickness, drawing.height - thickness)
        drawing.canvas.restoreState()
    return drawing


def _format_colour(looks: pikepdf.Object, key: str, use: int) -> str:
    colour = looks.get(key)
    if not isinstance(colour, pikepdf.Array) or len(colour) not in _PAINT_OPERATORS:
        return ""
    return f"{' '.join(map(str, colour))} {_PAINT_OPERATORS[len(colour)][use]}"
