"""What the demo sends and signs: consent forms and a clinical document."""

from __future__ import annotations

import io
from typing import Any

import pikepdf
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from directsuite.cli.demo.context import CheckFailedError
from directsuite.cli.demo.documents import (
    PATIENT_FIELD,
    Form,
    build_clinical_summary,
    build_consent_form,
    check_clinical_summary,
    draw_handwriting,
)
from tests.examples import scale_examples

numbers = st.integers(min_value=1, max_value=500)


@given(numbers)
@settings(max_examples=scale_examples(40))
def test_consent_form_is_valid_pdf_with_two_signature_fields(number: int) -> None:
    form = Form.from_number(number)
    with pikepdf.open(io.BytesIO(build_consent_form(form))) as opened:
        pdf: Any = opened
        assert pdf.check_pdf_syntax() == []
        assert len(pdf.pages) == form.pages
        fields = {str(field.T): field for field in pdf.Root.AcroForm.Fields}
        assert set(fields) == {"patient_name", PATIENT_FIELD}
        assert str(fields["patient_name"].V) == "Ada Example"
        assert "/V" not in fields[PATIENT_FIELD]
        assert all(page.obj.get("/Rotate", 0) == (90 if form.is_rotated else 0) for page in pdf.pages)
        width, height = (float(corner) for corner in list(pdf.pages[0].obj.MediaBox)[2:])
        assert (height, width) if form.is_rotated else (width, height) == (form.width, form.height)
        for field in fields.values():
            left, bottom, right, top = (float(corner) for corner in field.Rect)
            assert 0 <= left < right <= width
            assert 0 <= bottom < top <= height


@given(numbers)
@settings(max_examples=scale_examples(40))
def test_clinic_signs_on_the_page_beside_the_patient(number: int) -> None:
    form = Form.from_number(number)
    width, height = (form.height, form.width) if form.is_rotated else (form.width, form.height)
    left, top, across, down = form.clinic_signature_rect
    assert min(left, top) >= 0
    assert left + across <= width
    assert top + down <= height
    assert sorted((across, down)) == sorted((form.signature_width, 64.0))
    patient = _signature_rectangle(form)
    clinic = (left, height - top - down, left + across, height - top)
    in_line = (0, 2) if form.is_rotated else (1, 3)  # the edges that both have in common
    assert [patient[edge] for edge in in_line] == pytest.approx([clinic[edge] for edge in in_line])
    beside = 1 if form.is_rotated else 0
    assert clinic[beside] - patient[beside + 2] == pytest.approx(18.0)


@given(numbers)
@settings(max_examples=scale_examples(40))
def test_text_is_turned_with_the_page(number: int) -> None:
    form = Form.from_number(number)
    left, bottom, right, top = _signature_rectangle(form)
    with pikepdf.open(io.BytesIO(build_consent_form(form))) as pdf:
        matrix: tuple[float, ...] = (1.0, 0.0, 0.0, 1.0, 0.0, 0.0)
        place = (0.0, 0.0)
        for instruction in pikepdf.parse_content_stream(pdf.pages[0]):
            operands: Any = instruction.operands
            if str(instruction.operator) == "cm":
                matrix = tuple(float(operand) for operand in operands)
            elif str(instruction.operator) == "Td":
                place = (float(operands[0]), float(operands[1]))
            elif str(instruction.operator) == "Tj" and str(operands[0]) == "Patient":
                break
    x = matrix[0] * place[0] + matrix[2] * place[1] + matrix[4]
    y = matrix[1] * place[0] + matrix[3] * place[1] + matrix[5]
    assert (x, y) == pytest.approx((left - 6, bottom) if form.is_rotated else (left, top + 6))
    assert right > left


def _signature_rectangle(form: Form) -> tuple[float, ...]:
    """Where the patient signs, as the file has it."""
    with pikepdf.open(io.BytesIO(build_consent_form(form))) as opened:
        pdf: Any = opened
        return tuple(
            float(corner)
            for field in pdf.Root.AcroForm.Fields
            if str(field.T) == PATIENT_FIELD
            for corner in field.Rect
        )


def test_a_dozen_forms_differ_in_size_pages_turn_and_signers() -> None:
    forms = [Form.from_number(number) for number in range(1, 13)]
    assert len({(form.width, form.height) for form in forms}) == 4
    assert {form.pages for form in forms} == {1, 2, 3}
    assert {form.is_rotated for form in forms} == {form.is_countersigned for form in forms} == {True, False}
    assert len({build_consent_form(form) for form in forms}) == 12
    assert build_consent_form(forms[0]) == build_consent_form(forms[0])


def test_handwriting_is_a_picture_with_ink_on_nothing() -> None:
    with Image.open(io.BytesIO(draw_handwriting())) as picture:
        assert picture.format == "PNG"
        assert picture.getchannel("A").getextrema() == (0, 255)


def test_summary_passes_its_own_check() -> None:
    check_clinical_summary(build_clinical_summary())


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (b"<title>", b"<titel>", "not a ClinicalDocument"),
        (b"ClinicalDocument", b"OtherDocument", "not a ClinicalDocument"),
        (b"urn:hl7-org:v3", b"urn:hl7-org:v2", "not a ClinicalDocument"),
        (b"family", b"surname", "no patient"),
        (b"section", b"part", "no section"),
    ],
)
def test_spoilt_summary_is_noticed(old: bytes, new: bytes, problem: str) -> None:
    with pytest.raises(CheckFailedError, match=problem):
        check_clinical_summary(build_clinical_summary().replace(old, new))
