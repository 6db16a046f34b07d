"""The sandbox's signing service, which stores and processes PDFs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from pyhanko.sign.signers import Signer

Certificate: TypeAlias = Any  # asn1crypto's, which has no types


class KeySource(Protocol):
    """A source of pyHanko signers, and of the root certificates for their signatures. Called in worker threads.

    Its methods raise KeyUnavailableError if the key cannot be used.
    """

    def signer(self) -> Signer:
        """Return a new signer for the calling thread."""
        ...

    def trust_roots(self) -> Sequence[Certificate]:
        """Return the root certificates that signatures are verified against."""
        ...

    def authority_pem(self) -> bytes:
        """Return the root certificate as PEM, for other tools."""
        ...
