"""The names of directsuite.testing, which are imported when they are used."""

from __future__ import annotations

import subprocess
import sys

import pytest

from directsuite import testing


@pytest.mark.parametrize("name", testing.__all__)
def test_every_name_can_be_had(name: str) -> None:
    assert callable(getattr(testing, name))
    assert name in dir(testing)


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        getattr(testing, "nothing")  # noqa: B009  type checkers refuse the attribute


@pytest.mark.process
def test_importing_it_loads_nothing_heavy() -> None:
    program = "import sys, directsuite.testing; print({'aiohttp', 'asyncio', 'pytest', 'attrs'} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == "set()\n"
