"""The rows of the matrix: everything of the specification that must not happen twice, in all its variants.

The list is kept by hand, so that an operation whose record is wrong stands out.
"""

from __future__ import annotations

from typing import Any

import directsuite as ds

from .matrix_messaging_rows import MESSAGING_ROWS
from .matrix_row import DOMAIN, Effect, MatrixContext, MatrixRow, PlainRequest
from .matrix_signing_rows import SIGNING_ROWS


async def _log_in(context: MatrixContext) -> str:
    return (await context.suite.registration.login()).session_id.reveal()


def _has_address(answer: Any, effect: Effect) -> bool:
    return bool(f"{answer.users[0].username}@{DOMAIN}" == effect["subject"])


def _make_provisioning_row(*, with_names: bool) -> MatrixRow:
    async def call(context: MatrixContext, _: str) -> Any:
        names: dict[str, Any] = {"first_name": "Ada", "last_name": "Example", "direct_username": f"ada{context.number}"}
        individual = ds.IDProofedIndividualRESTful(id=7, **(names if with_names else {}))
        return await context.suite.registration.provision_id_proofed_patient(DOMAIN, individual)

    async def plain(context: MatrixContext, session: str) -> PlainRequest:
        url = f"{context.sandbox.registration_url}/ProvisionIDProofedPatient/{session}/{DOMAIN}"
        return PlainRequest(method="POST", url=url, json={"id": 7, "directUsername": f"ada{context.number}"})

    return MatrixRow(
        operation="ProvisionIDProofedPatient",
        variant="with user name and names" if with_names else "by id",
        prepare=_log_in,
        call=call,
        plain_request=plain,
        is_consistent=_has_address,
    )


ROWS: list[MatrixRow] = [
    *SIGNING_ROWS,
    *MESSAGING_ROWS,
    *(_make_provisioning_row(with_names=with_names) for with_names in (True, False)),
]
