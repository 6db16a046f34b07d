"""The synchronisation against the machine."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.examples import scale_examples

from .machine import DeliveringMachine, RejectingMachine, SyncMachine

QUICK_SETTINGS = settings(
    max_examples=scale_examples(60),
    stateful_step_count=25,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
LONG_SETTINGS = settings(QUICK_SETTINGS, max_examples=3000, stateful_step_count=40, derandomize=False, print_blob=True)


@pytest.mark.parametrize(
    ("machine", "number"),
    [
        pytest.param(SyncMachine, 60, marks=pytest.mark.wide),
        pytest.param(DeliveringMachine, 20, marks=pytest.mark.wide),
        (RejectingMachine, 20),
    ],
)
def test_the_sink_equals_the_mailbox(machine: type[SyncMachine], number: int) -> None:
    run_state_machine_as_test(machine, settings=settings(QUICK_SETTINGS, max_examples=scale_examples(number)))


def test_a_rejected_message_that_is_lost_is_not_fetched_in_every_round() -> None:
    machine = RejectingMachine()
    machine.begin(folders=1, named=False, metadata_form="date to the second")
    machine.round_with_a_sink_that_is_away(act=("twins", ("INBOX",)), calls=4)
    machine.world.act(("twins", ("INBOX",)))
    machine.world.act(("spoil", ("INBOX", 0)))
    machine.converge_for_days()
    machine.teardown()


def test_uids_that_are_permuted_between_two_requests_are_corrected() -> None:
    machine = SyncMachine()
    machine.begin(folders=1, named=False, metadata_form="date to the second")
    machine.world.act(("deliver", ("INBOX", 11, "strong")))
    machine.world.act(("spoil", ("INBOX", 0)))
    machine.disturbed_round(act=("permute", ("INBOX", None)), before=10, first=("twins", ("INBOX",)), last=True)
    machine.converge_for_days()
    machine.teardown()


@pytest.mark.slow
@pytest.mark.parametrize("machine", [SyncMachine, DeliveringMachine, RejectingMachine])
def test_the_sink_equals_the_mailbox_in_long_runs(machine: type[SyncMachine]) -> None:
    run_state_machine_as_test(machine, settings=LONG_SETTINGS)
