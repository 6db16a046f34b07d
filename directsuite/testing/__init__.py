"""Test support for users: a pytest plugin with the sandbox, and mock responses of the services.

    async def test_mine(directsuite_suite):         # requires directsuite[sandbox]
        stored = await directsuite_suite.signing.save(PDF)

`directsuite.testing.plugin` describes the fixtures. `mocked_services` and `response` need neither pytest nor a socket.
Use `mocked_services` instead of a bare `aioresponses()`, which fails with aiohttp 3.14 and newer.
"""

from __future__ import annotations

TYPE_CHECKING = False  # the imports are deferred, because pytest loads this package in every run

if TYPE_CHECKING:
    from directsuite.testing.clock import LeapingClock
    from directsuite.testing.mocked import MockedServices, mocked_services
    from directsuite.testing.responses import ServiceResponse, response
else:
    _ORIGIN = {
        "LeapingClock": "directsuite.testing.clock",
        "MockedServices": "directsuite.testing.mocked",
        "ServiceResponse": "directsuite.testing.responses",
        "mocked_services": "directsuite.testing.mocked",
        "response": "directsuite.testing.responses",
    }

    def __getattr__(name: str) -> object:
        from importlib import import_module

        if name not in _ORIGIN:
            raise AttributeError(f"module 'directsuite.testing' has no attribute {name!r}")
        value = getattr(import_module(_ORIGIN[name]), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted(__all__)


__all__ = ["LeapingClock", "MockedServices", "ServiceResponse", "mocked_services", "response"]
