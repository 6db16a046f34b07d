"""The types of service D of the specification, patient registration (section 2.D), in its order and spelling."""

from __future__ import annotations

from directsuite.sandbox.openapi.json_schema import (
    Schema,
    all_nullable,
    array_of,
    boolean,
    date,
    extending,
    integer,
    long,
    nullable,
    number,
    obj,
    one_of,
    ref,
    text,
)
from directsuite.sandbox.openapi.moments import moment
from directsuite.sandbox.registration.user_states import USER_STATES

CODES = {
    "000": "success",
    "002": "invalid user when provisioning a new Direct mailbox account",
    "003": "registrar offer error",
    "010": "invalid API argument or argument missing",
    "011": "authentication failed",
    "012": "organization missing",
    "013": "organization permission denied",
    "014": "Direct user account error",
    "021": "debit account authorize failed",
    "022": "debit account capture failed",
    "099": "other error",
    "201": "Direct domain has been used",
    "202": "no verified organization record found",
    "203": "organization not verified as healthcare provider",
    "204": "invalid state name",
    "205": "failed to validate ID-proofed individuals",
    "206": "invalid organization type",
    "207": "unsupported address type",
    "208": "no organization found for the domain",
    "209": "Direct Organization object is empty",
    "210": "Direct address not found",
    "999": "other error",
}
"""Every code of the registration service and what it means (specification 7)."""


def _answer(description: str, **added: Schema) -> Schema:
    return extending("ResellerAPIResponseType", obj(description, optional=all_nullable(added)))


_answers: dict[str, Schema] = {
    "ResellerAPIResponseType": obj(
        "What every answer of the registration service has.",
        required={
            "code": one_of(CODES, "; ".join(f"{code} {meaning}" for code, meaning in CODES.items()) + "."),
            "success": boolean("Whether the action succeeded."),
        },
        optional={"errorMessage": nullable(text("What went wrong."))},
    ),
    "LoginResponseType": _answer("A new session.", sessionId=text("Expires in 10 minutes.", minLength=1)),
    "AddUsersResponse": _answer("Users that were added.", users=array_of(ref("DirectUserDetail"))),
    "AddUsersResponseV2Type": extending(
        "AddUsersResponse",
        obj(
            "Users that were added, and what they cost.",
            optional={"paymentConfirmation": nullable(ref("PaymentConfirmation"))},
        ),
    ),
    "GetPatientAddressesResponseType": _answer(
        "Patients' Direct addresses.", patient=array_of(ref("DirectUserDetail"), "The matching addresses.")
    ),
}

_requests: dict[str, Schema] = {
    "LoginRequest": obj(
        "Credentials of a reseller or a T-User.",
        optional={"username": text("User name."), "password": text("Password.")},
    ),
    "UserPassword": obj(
        "A user's new password.", required={"username": text("Direct username."), "password": text("New password.")}
    ),
    "IDProofedIndividual": {
        **obj(
            "An identity-proofed person: by the record's id, or by name, date of birth and end of the SSN.",
            optional={
                "id": long("Unique id of the identity-proofing record."),
                "firstName": text("First name."),
                "lastName": text("Last name."),
                "ssn4": text("Last four digits of the SSN.", pattern="^[0-9]{4}$"),
                "dob": date("Date of birth."),
            },
        ),
        "anyOf": [{"required": ["id"]}, {"required": ["firstName", "lastName", "ssn4", "dob"]}],
    },
    "IDProofedIndividualRESTful": extending(
        "IDProofedIndividual",
        obj(
            "An identity-proofed person and the account to make.",
            optional={
                "directUsername": text("Local part of the Direct address."),
                "directPassword": text("Password of the Direct address."),
            },
        ),
    ),
}

_users: dict[str, Schema] = {
    "BaseUser": obj(
        "What all users have.",
        required={
            "firstName": text("First name."),
            "lastName": text("Last name."),
            "email": text("Regular email address."),
        },
        optional=all_nullable(
            {
                "phone": text("Phone number."),
                "dea": text("DEA number."),
                "npi": text("NPI number."),
                "sameAsOrganizationAddress": boolean("Whether the organization's address is the user's."),
                "address": text("Street."),
                "city": text("City."),
                "state": text("Full name of the state."),
                "country": text("Two-letter country code."),
                "zipcode": text("ZIP code."),
            }
        ),
    ),
    "AdminUser": extending(
        "BaseUser", obj("An administrator. No operation uses it.", required={"phone": text("Phone number.")})
    ),
    "DirectUser": extending(
        "BaseUser",
        obj(
            "A user with a Direct address.",
            required={
                "username": text("Direct username: the local part of the Direct address.", minLength=1),
                "userType": ref("DirectUserType"),
            },
            optional=all_nullable(
                {
                    "endpoint": text("Endpoint URL of XD and FTP* users."),
                    "endpointDirectory": text("Directory of FTP* users."),
                    "endpointUsername": text("User name of FTP* users."),
                    "endpointPassword": text("Password of FTP* users."),
                }
            ),
        ),
    ),
    "DirectUserType": one_of(
        ["XD", "SMTP", "FTP", "FTPS", "SFTP"],
        "XD: XDR endpoint; SMTP: hosted mailbox; FTP, FTPS, SFTP: file endpoint.",
    ),
    "DirectUserDetail": extending(
        "DirectUser",
        obj("A user with a Direct address, and its state.", required={"UserStateType": ref("UserStateType")}),
    ),
    "UserStateType": one_of(USER_STATES, "State of a Direct user."),
}

_payment: dict[str, Schema] = {
    "PaymentConfirmation": obj(
        "What was paid.",
        optional=all_nullable(
            {
                "orderId": integer("Order number."),
                "amount": number("Order total."),
                "orderTime": moment("When the order was placed."),
                "products": array_of(ref("Product"), "What was bought."),
                "detail": text("Details."),
            }
        ),
    ),
    "Product": obj(
        "One line of an order.",
        optional=all_nullable(
            {
                "name": text("Name."),
                "description": text("Description."),
                "quantity": integer("Quantity."),
                "offerPrice": number("Price for one year."),
                "salePrice": number("offerPrice * (expireDate - today) / one year."),
                "amount": number("salePrice * quantity."),
                "startDate": date("First day."),
                "expireDate": date("Last day."),
            }
        ),
    ),
}

_unreferenced: dict[str, Schema] = {
    "ResellerDomainsResponse": _answer("Domains. No operation uses it.", domains=array_of(text())),
    "ResellerCreditCardsResponse": _answer("Credit cards. No operation uses it.", cards=array_of(ref("CreditCard"))),
    "CreditCard": obj("A credit card, whose members the specification does not show. No operation uses it."),
}

SCHEMAS: dict[str, Schema] = {**_answers, **_requests, **_users, **_payment, **_unreferenced}
