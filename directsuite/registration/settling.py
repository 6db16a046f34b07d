"""What became of a provisioning whose answer got lost: the user is looked for, and found or not, it stays unknown.

The answer's payment confirmation can't be had again, and a user of the same name may have been there before.
"""

from __future__ import annotations

import unicodedata

import attrs

from directsuite.core.call import SETTLE, Proof
from directsuite.core.facade import Facade, NothingMoreToSeeError
from directsuite.errors import NotFoundError, OutcomeUnknownError
from directsuite.registration import operations
from directsuite.registration.models import AddUsersResponseV2, DirectUserDetail, IDProofedIndividualRESTful

_RESERVE = 2.0  # seconds: a look can't make it a success, while a late answer may
_HOW_TO_FIND_OUT = (
    "error.found is the user; whether and what the account was debited, the service's provider can tell. "
    "Don't provision again."
)


@attrs.define(eq=False, repr=False)
class PatientSearch:
    """Looks for the user that a provisioning makes. looking: a view of the facade for looks."""

    looking: Facade
    direct_domain: str
    direct_username: str
    names: tuple[str, str]
    found: DirectUserDetail | None = None

    @classmethod
    def of(cls, looking: Facade, direct_domain: str, individual: IDProofedIndividualRESTful) -> PatientSearch | None:
        """None where the user can't be recognized: without a user name, or without both of the patient's names."""
        username, first, last = individual.direct_username, individual.first_name, individual.last_name
        if not username or not first or not last:
            return None
        return cls(looking, direct_domain, username, (_folded(first), _folded(last)))

    def proof(self) -> Proof[AddUsersResponseV2]:
        """The search, as the transport asks for it."""
        return Proof(look=self.look, seconds=SETTLE, reserve=_RESERVE, verdict=self.verdict)

    async def look(self) -> None:
        """Never proof: ends the looking when the user is there."""
        operation = operations.GET_PATIENT_ADDRESS_BY_USERNAME
        try:
            answer = await self.looking._call(operation, self.direct_domain, self.direct_username)
        except NotFoundError:
            return
        for user in answer.patient:
            if (_folded(user.first_name), _folded(user.last_name)) == self.names:
                self.found = user
                raise NothingMoreToSeeError

    def verdict(self, error: OutcomeUnknownError) -> OutcomeUnknownError:
        """What the caller is told, with the user who was found."""
        if self.found is None:
            return error
        text = "it probably happened: a user of this user name and these names is there, its payment confirmation lost"
        return error.knowing(text, how_to_find_out=_HOW_TO_FIND_OUT, found=self.found)


def _folded(name: str | None) -> str:
    return " ".join(unicodedata.normalize("NFKC", name or "").casefold().split())
