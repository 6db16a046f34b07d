"""Step four: PDFs signed at the same time, and pyHanko's word on each of them.

save ──► sign_and_pull, or multi_sign and download ──► GetDocInfo ──► pyHanko ──► delete
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from directsuite.cli.demo import pdf, verification
from directsuite.cli.demo.numbered_files import cleared
from directsuite.cli.demo.outcome import Done
from directsuite.cli.demo.scene import NotHeldError, Scene, hold
from directsuite.errors import BadRequestError, NotFoundError
from directsuite.signing.models import Signature, Widget

if TYPE_CHECKING:
    from pathlib import Path

    from directsuite.signing.models import StoredDocument
    from directsuite.signing.service import Signing

_AT_ONCE = 8  # documents under way


async def run(scene: Scene) -> Done:
    """Sign all of them, each with one or two signatures, and have every signature verified apart from the client."""
    count = scene.sizes.documents
    scene.progress.expect(count)
    folder = cleared(scene.output / "signed", r"consent-[0-9]{3}\.pdf")
    files = {number: folder / f"consent-{number:03d}.pdf" for number in range(1, count + 1)}
    under_way = asyncio.Semaphore(_AT_ONCE)
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(_sign(scene, pdf.Form.numbered(number), file, under_way))
            for number, file in files.items()
        ]
    authority = scene.output / "sandbox-ca.pem"
    authority.write_bytes(await asyncio.to_thread(_authority, scene))
    return Done(
        count=count,
        thing="document",
        checked=(
            f"{sum(task.result() for task in tasks)} signatures, each intact, valid and trusted (pyHanko)",
            "what was there before signing is unchanged",
            "documents deleted from the service",
        ),
        files=(*files.values(), authority),
    )


async def _sign(scene: Scene, form: pdf.Form, file: Path, under_way: asyncio.Semaphore) -> int:
    """Take one document all the way, once there is room for it; gives the number of its signatures."""
    async with under_way:
        signatures = await _save_to_delete(scene, form, file)
        scene.progress.advance()
        return signatures


async def _save_to_delete(scene: Scene, form: pdf.Form, file: Path) -> int:
    signing = scene.suite.signing
    original = await asyncio.to_thread(pdf.consent_form, form)
    stored = await signing.save(original)
    wanted = _signatures(form)
    if len(wanted) == 1:
        await signing.sign_and_pull(stored, wanted[0], destination=file)
    else:
        await signing.multi_sign(stored, wanted)
        await signing.download(stored, file)
    names = {signature.name for signature in wanted}
    told = {signature.name for signature in (await signing.get_doc_info(stored)).signatures if signature.is_signed}
    hold(told == names, f"{file.name}: GetDocInfo tells of other signatures than were made")
    await _verify(scene, file, original, names)
    await _delete(signing, stored)
    return len(wanted)


def _signatures(form: pdf.Form) -> list[Signature]:
    """The patient signs in the form's own field; every other document is signed by the clinic as well, beside it."""
    patient = Signature(
        name=pdf.PATIENT_FIELD, gs_name="Ada Example", reason="I consent to the treatment", timezone="America/New_York"
    )
    if not form.countersigned:
        return [patient]
    x, y, width, height = form.clinic_place
    clinic = Signature(
        name="ClinicSignature",
        gs_name="Example Clinic",
        reason="Witnessed",
        timezone="UTC",
        widget=Widget(x=x, y=y, width=width, height=height, page=1),
        graphical_signature=pdf.handwriting(),
    )
    return [patient, clinic]


async def _verify(scene: Scene, file: Path, original: bytes, names: set[str | None]) -> None:
    content = await asyncio.to_thread(file.read_bytes)
    hold(content.startswith(original), f"{file.name}: what was there before signing has been changed")
    authority = await asyncio.to_thread(_authority, scene)
    verdicts = await asyncio.to_thread(verification.verify, content, authority)
    hold({verdict.field for verdict in verdicts} == names, f"{file.name}: pyHanko finds other signatures")
    for verdict in verdicts:
        hold(verdict.good, f"{file.name}: pyHanko does not accept {verdict}")


async def _delete(signing: Signing, stored: StoredDocument) -> None:
    deleted = await signing.delete(stored)
    hold(deleted.document_digest == "", "the digest is not empty after deletion")
    try:
        await signing.get_doc(stored)
    except (BadRequestError, NotFoundError):  # such services say either of a document that is not there
        return
    raise NotHeldError("a document can still be read after its deletion")


def _authority(scene: Scene) -> bytes:
    return scene.sandbox.authority_pem()
