"""Models of the registration service, in the order of the specification (2.D)."""

from __future__ import annotations

from datetime import date, datetime
from typing import Annotated, ClassVar

import attrs

from directsuite.core.privacy import scrub_class
from directsuite.wire.models import (
    Model,
    OpenEnum,
    Secret,
    Wire,
    as_optional_secret,
    as_secret,
    require_text,
    validate_text,
    validate_whole_number,
)

SUCCESS_CODE = "000"


class DirectUserType(OpenEnum):
    """The way in which a Direct user receives mail."""

    XD = "XD"
    """XDR endpoint user."""
    SMTP = "SMTP"
    """Hosted SMTP user."""
    FTP = "FTP"
    """FTP endpoint user."""
    FTPS = "FTPS"
    """FTP endpoint user over FTPS."""
    SFTP = "SFTP"
    """FTP endpoint user over SFTP."""


class UserStateType(OpenEnum):
    """The state of a Direct user's address (specification section 3)."""

    INIT = "init"
    """The record was created, but the address is not provisioned."""
    PROVISIONED = "provisioned"
    """The address was created."""
    PROVISIONED_CERT_PENDING = "provisioned_cert_pending"
    """The certificate was requested, but is not issued."""
    ACTIVATED = "activated"
    """The address is active and ready for delivery to the customer."""
    DISABLED = "disabled"
    """The user cannot connect. Inbound messages still reach the mailbox."""
    PROVISIONED_CERT_EXPIRED = "provisioned_cert_expired"
    """The certificate has expired. The user can connect, but inbound and outbound messages are rejected."""
    PROVISIONED_CERT_REVOKED = "provisioned_cert_revoked"
    """The certificate was revoked. The effects are those of an expired one."""
    UNKNOWN = "Unknown"
    """The service could not determine the state."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class ResellerAPIResponse(Model):
    """The fields that all responses of the service have."""

    _shown: ClassVar[tuple[str, ...]] = ("code", "success")

    code: str | None = None
    """`000`, or a code of specification section 7."""
    success: bool | None = None
    """True if the request succeeded."""
    error_message: Annotated[str | None, Wire(aliases=("message",))] = None
    """The service's own text, which may contain patient names."""


@scrub_class
@attrs.frozen(repr=False, eq=False)
class Login(Model):
    """Reseller or T-User credentials (LoginRequest)."""

    username: str = attrs.field(validator=validate_text)
    """The name of the reseller or T-User, such as `front-desk`."""
    password: Secret = attrs.field(converter=as_secret, validator=validate_text)
    """The password. A str becomes a Secret."""


LoginRequest = Login


@attrs.frozen(kw_only=True, repr=False, eq=False)
class LoginResponse(ResellerAPIResponse):
    """A new session."""

    session_id: Annotated[Secret, Wire(strict=True)] = attrs.field(converter=as_secret)
    """The session id, never empty. It expires 10 minutes after the login."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class BaseUser(Model):
    """A person who uses a Direct address."""

    first_name: str | None = None
    """The given name."""
    last_name: str | None = None
    """The family name."""
    email: str | None = None
    """The email address, not the Direct address."""
    phone: str | None = None
    """The telephone number."""
    dea: str | None = None
    """The DEA number."""
    npi: str | None = None
    """The NPI number."""
    same_as_organization_address: bool | None = None
    """True if the following address is the organization's."""
    address: str | None = None
    """The street."""
    city: str | None = None
    """The city."""
    state: str | None = None
    """The full name of the state."""
    country: str | None = None
    """The two-letter country code."""
    zipcode: str | None = None
    """The postal code."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class DirectUser(BaseUser):
    """A person with a Direct address."""

    _shown: ClassVar[tuple[str, ...]] = ("user_type",)

    username: str | None = None
    """The local part of the Direct address."""
    user_type: DirectUserType | None = None
    """The way in which the person receives mail."""
    endpoint: str | None = None
    """A URL, for XD and the FTP types. The following fields are for the FTP types."""
    endpoint_directory: str | None = None
    """The directory at the endpoint."""
    endpoint_username: str | None = None
    """The user name at the endpoint."""
    endpoint_password: Secret | None = attrs.field(default=None, converter=as_optional_secret)
    """The password at the endpoint."""


@scrub_class
@attrs.frozen(kw_only=True, repr=False, eq=False)
class DirectUserDetail(DirectUser):
    """A Direct user, and the state of the Direct address."""

    _shown: ClassVar[tuple[str, ...]] = ("user_type", "user_state")

    user_state: Annotated[UserStateType | None, Wire("UserStateType", aliases=("userState",))] = None
    """The state of the Direct address."""

    def direct_address(self, domain: str) -> str:
        """Return the Direct address. Raises ValueError if the response has no username.

        domain: the domain of the request.
        """
        if not self.username:
            raise ValueError("This DirectUserDetail has no username, so it has no Direct address.")
        return f"{self.username}@{require_text(domain, 'domain')}"


@attrs.frozen(kw_only=True, repr=False, eq=False)
class AddUsersResponse(ResellerAPIResponse):
    """The response with added users."""

    users: list[DirectUserDetail] = attrs.field(factory=list[DirectUserDetail])
    """The added users."""


@scrub_class
@attrs.frozen(kw_only=True, repr=False, eq=False)
class Product(Model):
    """One line of an order."""

    name: str | None = None
    """The name of the product."""
    description: str | None = None
    """The description of the product."""
    quantity: int | None = None
    """The number ordered."""
    offer_price: float | None = None
    """The price of one product for a full year."""
    sale_price: float | None = None
    """`offer_price` for the part of a year until the certificate expires."""
    amount: float | None = None
    """`sale_price` times `quantity`."""
    start_date: date | str | None = None
    """The first day; a str if it is not an ISO 8601 date."""
    expire_date: date | str | None = None
    """The last day; a str if it is not an ISO 8601 date."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class PaymentConfirmation(Model):
    """The order and the debited amount."""

    _shown: ClassVar[tuple[str, ...]] = ("order_id", "order_time")

    order_id: int | None = None
    """The number of the order."""
    amount: float | None = None
    """The order's total."""
    order_time: datetime | None = None
    """The time of the order."""
    products: list[Product] = attrs.field(factory=list[Product])
    """The lines of the order."""
    detail: str | None = None
    """The service's remark about the payment."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class AddUsersResponseV2(AddUsersResponse):
    """The added users and their payment (AddUsersResponseV2Type)."""

    payment_confirmation: PaymentConfirmation | None = None
    """The payment. No later call returns it."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class GetPatientAddressesResponse(ResellerAPIResponse):
    """The patients' Direct addresses that match a search."""

    patient: Annotated[list[DirectUserDetail], Wire(aliases=("addresses",))] = attrs.field(
        factory=list[DirectUserDetail]
    )
    """The users whose addresses match. Empty if none was found."""


@scrub_class
@attrs.frozen(repr=False, eq=False)
class UserPassword(Model):
    """A patient's Direct username and new password."""

    username: str = attrs.field(validator=validate_text)
    """The local part of the patient's Direct address, such as `ada` for `ada@direct.example.org`."""
    password: Secret = attrs.field(converter=as_secret, validator=validate_text)
    """The new password. A str becomes a Secret."""


@scrub_class
@attrs.frozen(kw_only=True, repr=False, eq=False)
class IDProofedIndividual(Model):
    """An identity-proofed person: the id of the proofing record, or name, last four SSN digits and birth date."""

    id: int | None = attrs.field(default=None, validator=validate_whole_number)
    """The whole number of the proofing record, such as 4711. None: the following four fields are required instead."""
    first_name: str | None = None
    """The given name, such as `Ada`."""
    last_name: str | None = None
    """The family name, such as `Example`."""
    ssn4: str | None = None
    """The last four digits of the social security number, as text, such as `0042`."""
    dob: date | str | None = None
    """The date of birth, such as `date(1980, 2, 29)`, which is sent as `1980-02-29`. A str is sent unchanged."""


@scrub_class
@attrs.frozen(kw_only=True, repr=False, eq=False)
class IDProofedIndividualRESTful(IDProofedIndividual):
    """An identity-proofed person, with the requested Direct username and password."""

    direct_username: str | None = None
    """The requested local part of the Direct address, such as `ada` for `ada@direct.example.org`. Required to find the
    user if the response is lost.
    """
    direct_password: Secret | None = attrs.field(default=None, converter=as_optional_secret)
    """The password of the new mailbox. A str becomes a Secret."""
