"""Types of the registration service, in the order of the specification (2.D), what a type is made of before it."""

from __future__ import annotations

from datetime import date, datetime
from typing import Annotated, ClassVar

import attrs

from directsuite.core.privacy import scrub_class
from directsuite.secret import Secret, as_optional_secret, as_secret
from directsuite.wire.models import Model, OpenEnum, Wire, require_text, validate_text, validate_whole_number

SUCCESS_CODE = "000"


class DirectUserType(OpenEnum):
    """How a Direct user's mail is reached."""

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
    """How far a Direct user's address has come (specification section 3)."""

    INIT = "init"
    """Record created, address not provisioned."""
    PROVISIONED = "provisioned"
    """Address created."""
    PROVISIONED_CERT_PENDING = "provisioned_cert_pending"
    """Certificate requested, not issued."""
    ACTIVATED = "activated"
    """Active and ready for delivery to the customer."""
    DISABLED = "disabled"
    """Inbound messages still reach the mailbox; the user cannot connect."""
    PROVISIONED_CERT_EXPIRED = "provisioned_cert_expired"
    """The user can connect; inbound and outbound messages are rejected."""
    PROVISIONED_CERT_REVOKED = "provisioned_cert_revoked"
    """As expired."""
    UNKNOWN = "Unknown"
    """The service failed to check the state."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class ResellerAPIResponse(Model):
    """The base of the service's answers."""

    _shown: ClassVar[tuple[str, ...]] = ("code", "success")

    code: str | None = None
    """`000`, or one of the specification's section 7."""
    success: bool | None = None
    """True if the service did what it was asked for."""
    error_message: Annotated[str | None, Wire(aliases=("message",))] = None
    """The service's own text, which may name patients."""


@scrub_class
@attrs.frozen(repr=False, eq=False)
class Login(Model):
    """Reseller or T-User credentials (LoginRequest)."""

    username: str = attrs.field(validator=validate_text)
    """The name of the reseller or T-User."""
    password: Secret = attrs.field(converter=as_secret, validator=validate_text)
    """The password; a text becomes a Secret."""


LoginRequest = Login


@attrs.frozen(kw_only=True, repr=False, eq=False)
class LoginResponse(ResellerAPIResponse):
    """A new session."""

    session_id: Annotated[Secret, Wire(strict=True)] = attrs.field(converter=as_secret)
    """Expires 10 minutes after the login; never empty."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class BaseUser(Model):
    """A person who uses a Direct address."""

    first_name: str | None = None
    """The given name."""
    last_name: str | None = None
    """The family name."""
    email: str | None = None
    """The regular email address, not the Direct one."""
    phone: str | None = None
    """The telephone number."""
    dea: str | None = None
    """The DEA number."""
    npi: str | None = None
    """The NPI number."""
    same_as_organization_address: bool | None = None
    """True if the organization's address is the person's."""
    address: str | None = None
    """The street."""
    city: str | None = None
    """The city."""
    state: str | None = None
    """The full name of the state."""
    country: str | None = None
    """Two letters."""
    zipcode: str | None = None
    """The postal code."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class DirectUser(BaseUser):
    """A person with a Direct address."""

    _shown: ClassVar[tuple[str, ...]] = ("user_type",)

    username: str | None = None
    """The local part of the Direct address."""
    user_type: DirectUserType | None = None
    """How the person's mail is reached."""
    endpoint: str | None = None
    """A URL, for XD and FTP* users; the fields after it are for FTP* users."""
    endpoint_directory: str | None = None
    """The directory at the endpoint."""
    endpoint_username: str | None = None
    """Who logs in at the endpoint."""
    endpoint_password: Secret | None = attrs.field(default=None, converter=as_optional_secret)
    """The password at the endpoint."""


@scrub_class
@attrs.frozen(kw_only=True, repr=False, eq=False)
class DirectUserDetail(DirectUser):
    """A Direct user and the state of the Direct address, which `direct_address` gives."""

    _shown: ClassVar[tuple[str, ...]] = ("user_type", "user_state")

    user_state: Annotated[UserStateType | None, Wire("UserStateType", aliases=("userState",))] = None
    """How far the Direct address has come."""

    def direct_address(self, domain: str) -> str:
        """The address to write to, in the domain that was asked about.

        Raises ValueError where the answer has no username.
        """
        if not self.username:
            raise ValueError("this DirectUserDetail has no username")
        return f"{self.username}@{require_text(domain, 'domain')}"


@attrs.frozen(kw_only=True, repr=False, eq=False)
class AddUsersResponse(ResellerAPIResponse):
    """The newly added users."""

    users: list[DirectUserDetail] = attrs.field(factory=list[DirectUserDetail])
    """The users who were added."""


@scrub_class
@attrs.frozen(kw_only=True, repr=False, eq=False)
class Product(Model):
    """One line of an order."""

    name: str | None = None
    """The name of the product."""
    description: str | None = None
    """What it is."""
    quantity: int | None = None
    """How many were ordered."""
    offer_price: float | None = None
    """The price of one for a whole year."""
    sale_price: float | None = None
    """`offer_price` for the part of a year until the certificate expires."""
    amount: float | None = None
    """`sale_price` times `quantity`."""
    start_date: date | str | None = None
    """The first day; a text where it isn't an ISO 8601 date."""
    expire_date: date | str | None = None
    """The last day; a text where it isn't an ISO 8601 date."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class PaymentConfirmation(Model):
    """What was ordered and debited."""

    _shown: ClassVar[tuple[str, ...]] = ("order_id", "order_time")

    order_id: int | None = None
    """The number of the order."""
    amount: float | None = None
    """The order's total."""
    order_time: datetime | None = None
    """When it was ordered."""
    products: list[Product] = attrs.field(factory=list[Product])
    """The lines of the order."""
    detail: str | None = None
    """The service's remark about the payment."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class AddUsersResponseV2(AddUsersResponse):
    """The newly added users and the payment for them (AddUsersResponseV2Type)."""

    payment_confirmation: PaymentConfirmation | None = None
    """What was paid. The service gives it once: no later call asks for it."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class GetPatientAddressesResponse(ResellerAPIResponse):
    """Patients' Direct addresses that match."""

    patient: Annotated[list[DirectUserDetail], Wire(aliases=("addresses",))] = attrs.field(
        factory=list[DirectUserDetail]
    )


@scrub_class
@attrs.frozen(repr=False, eq=False)
class UserPassword(Model):
    """A patient's Direct username and the password to set."""

    username: str = attrs.field(validator=validate_text)
    """The local part of the patient's Direct address."""
    password: Secret = attrs.field(converter=as_secret, validator=validate_text)
    """The password to set; a text becomes a Secret."""


@scrub_class
@attrs.frozen(kw_only=True, repr=False, eq=False)
class IDProofedIndividual(Model):
    """An identity-proofed person: by the id of the proofing record, or by name, last four SSN digits and birth date."""

    id: int | None = attrs.field(default=None, validator=validate_whole_number)
    """Of the identity-proofing record; without it the other fields are required."""
    first_name: str | None = None
    """The given name."""
    last_name: str | None = None
    """The family name."""
    ssn4: str | None = None
    """The last four digits of the social security number."""
    dob: date | str | None = None
    """The date of birth: a date, or a text that is sent as it is."""


@scrub_class
@attrs.frozen(kw_only=True, repr=False, eq=False)
class IDProofedIndividualRESTful(IDProofedIndividual):
    """An identity-proofed person, and the Direct username and password wanted."""

    direct_username: str | None = None
    """The local part that the Direct address is to have. Give one, so that a lost answer can be found out."""
    direct_password: Secret | None = attrs.field(default=None, converter=as_optional_secret)
    """The password that the mailbox is to have; a text becomes a Secret."""
