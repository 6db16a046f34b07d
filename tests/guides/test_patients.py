"""The programs of the guide `patients`."""

from __future__ import annotations

from typing import Any

import directsuite as ds
from directsuite.sandbox import Sandbox
from tests.guides.documents import execute_programs, find_code_blocks

DOMAIN = "direct.example.test"


async def test_patient_is_provisioned_once_and_found() -> None:
    provisioning, finding = find_code_blocks("patients")
    programs: dict[str, Any] = execute_programs(provisioning) | execute_programs(finding)
    async with Sandbox() as sandbox:
        await sandbox.add_reseller("clinic", "secret", [DOMAIN])
        await sandbox.add_individual("Ada", "Example", "1234", "1980-02-29")
        settings = ds.Settings(registration_url=sandbox.registration_url)
        async with ds.DirectSuite(settings, login=ds.Login("clinic", "secret")) as suite:
            for _ in range(2):
                assert await programs["provision"](suite, DOMAIN) == f"ada@{DOMAIN}"
            assert await programs["find"](suite, DOMAIN) == [f"ada@{DOMAIN}"]
        assert len(await sandbox.ledger("ProvisionIDProofedPatient")) == 1
