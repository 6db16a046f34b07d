"""All checks: those of the services side by side, those of one service one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import attrs
from yarl import URL

from directsuite.cli.credentials import MailboxAccess
from directsuite.cli.doctor.answering import Answer
from directsuite.cli.doctor.credentials import Credentials
from directsuite.cli.doctor.findings import Finding, Found, Result, failed, not_checked, ok
from directsuite.cli.doctor.given import Given, GivenSettings
from directsuite.cli.doctor.reaching import Way
from directsuite.registration.models import Login
from directsuite.secret import Secret

Check = tuple[str, Callable[[], Awaitable[Found]]]

_NAMES = {"signing": "signing", "fax": "fax", "message": "messaging", "registration": "registration"}
_BY_PROXY = "connections go by the proxy of the settings"


@attrs.frozen(kw_only=True)
class Examination:
    """What is examined. limit: seconds for each check."""

    given: GivenSettings
    token: Given[Secret]
    login: Given[Login]
    mailbox: Given[MailboxAccess]
    limit: float

    async def findings(self) -> list[Finding]:
        """Of the proxy, where there is one, and of all services."""
        settings, behind = self.given.settings, list[Finding]()
        if settings.proxy is not None:
            way = Way(URL(settings.proxy), limit=self.limit)
            behind = await self._in_turn("proxy", [("name", way.name), ("connection", way.connection)])
            way.close()
            if any(each.result is Result.FAILED for each in behind):
                unreached = not_checked("the proxy can't be reached")
                return [*behind, *(unreached.of(name, "connection") for name in _NAMES.values())]
        credentials = Credentials(settings=settings, limit=self.limit)
        last: dict[str, Check] = {
            "signing": _tried("token", self.token, credentials.signing),
            "fax": _tried("token", self.token, credentials.fax),
            "message": _tried("mailbox", self.mailbox, credentials.mailbox),
            "registration": _tried("login", self.login, credentials.registration),
        }
        found = await asyncio.gather(*(self._service(service, check) for service, check in last.items()))
        return [*behind, *(each for some in found for each in some)]

    async def _service(self, service: str, last: Check) -> list[Finding]:
        name, url = _NAMES[service], getattr(self.given.settings, f"{service}_url")
        if url is None:
            return [self._without_url(service).of(name, "URL")]
        proxy = self.given.settings.proxy
        way, answer = Way(URL(url), limit=self.limit), Answer(url, proxy=proxy)
        reaching: list[Check] = [("name", way.name), ("connection", way.connection), ("TLS", way.tls)]
        if proxy is not None:
            reaching = [("connection", partial(_at_once, not_checked(_BY_PROXY)))]
        checks: list[Check] = [
            ("URL", partial(_at_once, ok(url, url=url))),
            *reaching,
            ("answer", answer.answer),
            ("clock", answer.clock),
            last,
        ]
        try:
            return await self._in_turn(name, checks)
        finally:
            way.close()

    def _without_url(self, service: str) -> Found:
        problem = self.given.problems.get(service)
        variable = f"DIRECTSUITE_{service.upper()}_URL"
        if problem is not None:
            return failed(f"{variable}, or {service}_url in the file of DIRECTSUITE_CONFIG, {problem}")
        if self.given.lacks_file:
            return not_checked("its URL may stand in the file of DIRECTSUITE_CONFIG: see to that one first")
        wanted = f"set {variable}, or {service}_url in the file of DIRECTSUITE_CONFIG"
        if service == "message" and (self.mailbox.found is None or self.mailbox.found.result is Result.FAILED):
            return failed(f"there is no URL for the mailbox: {wanted}")
        return not_checked(f"there is no URL; if you use this service, {wanted}")

    async def _in_turn(self, subject: str, checks: Sequence[Check]) -> list[Finding]:
        findings, broken = list[Finding](), ""
        for name, check in checks:
            if broken:
                found = not_checked(f"the check of {broken} failed")
            else:
                found = await self._in_time(check)
            if found.result is Result.FAILED:
                broken = broken or name
            findings.append(found.of(subject, name))
        return findings

    async def _in_time(self, check: Callable[[], Awaitable[Found]]) -> Found:
        try:
            async with asyncio.timeout(self.limit):
                return await check()
        except TimeoutError:
            return failed(
                f"it took more than {self.limit:g} s: see to the network and to the service, or give --timeout SECONDS"
            )


def _tried(
    name: str, given: Given[Secret] | Given[Login] | Given[MailboxAccess], check: Callable[..., Awaitable[Found]]
) -> Check:
    """The check of a secret, or why there is none."""
    if given.value is None:
        return name, partial(_at_once, given.found or not_checked("there is none"))
    return name, partial(check, given.value)


async def _at_once(found: Found) -> Found:
    return found
