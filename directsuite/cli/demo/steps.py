"""The steps of the demo: the table of them, and how one is run and timed."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, cast

import attrs

from directsuite.cli.demo import fax, mailbox, message, patient, signing
from directsuite.cli.demo.scene import NotHeldError, Scene
from directsuite.cli.errors import ending_of
from directsuite.errors import DirectSuiteError

if TYPE_CHECKING:
    from directsuite.cli.demo.outcome import Done


@attrs.frozen
class Step:
    """One row of the table. name: for machines; title: for people."""

    name: str
    title: str
    run: Callable[[Scene], Awaitable[Done]]


STEPS = (
    Step("patient", "Provision a patient", patient.run),
    Step("message", "Send a message, follow its delivery", message.run),
    Step("mailbox", "Read a mailbox", mailbox.run),
    Step("signing", "Sign PDFs", signing.run),
    Step("fax", "Walk fax records", fax.run),
)


@attrs.frozen(kw_only=True)
class StepResult:
    """What became of a step. seconds: how long it took. problem: why it did not hold, None where it did."""

    step: Step
    seconds: float
    done: Done | None = None
    problem: str | None = None

    @property
    def held(self) -> bool:
        """Whether all that the step checked came out as it should."""
        return self.problem is None


async def run_step(step: Step, scene: Scene) -> StepResult:
    """Run one step; what goes wrong in it is in its result."""
    began = time.monotonic()
    done: Done | None = None
    problem: str | None = None
    try:
        done = await step.run(scene)
    except Exception as error:  # noqa: BLE001  whatever it is, the report names the step that met it
        problem = _explanation(error)
    scene.return_to_present()
    return StepResult(step=step, seconds=time.monotonic() - began, done=done, problem=problem)


def _explanation(error: Exception) -> str:
    if isinstance(error, ExceptionGroup):  # tasks that ran side by side: the first that failed speaks for them
        return _explanation(cast("ExceptionGroup[Exception]", error).exceptions[0])
    if isinstance(error, NotHeldError | DirectSuiteError):
        return str(error)
    if isinstance(error, OSError):
        return ending_of(error)[1]
    return f"{type(error).__name__}: {error}"
