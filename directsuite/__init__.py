"""directsuite: asyncio client SDK for four services of secure health communication.

Each name is imported when it is first used, so that `import directsuite` is fast. `directsuite.types` has all types of
the specification.
"""

from __future__ import annotations

from directsuite._version import __version__ as __version__

TYPE_CHECKING = False  # type checkers assume True; importing typing would be slow

if TYPE_CHECKING:
    from directsuite.core.call_log import configure_logging as configure_logging
    from directsuite.core.credentials import AccessToken as AccessToken
    from directsuite.core.credentials import TokenSource as TokenSource
    from directsuite.core.events import AttemptFailed as AttemptFailed
    from directsuite.core.events import AttemptStarted as AttemptStarted
    from directsuite.core.events import AttemptSucceeded as AttemptSucceeded
    from directsuite.core.events import CallEvent as CallEvent
    from directsuite.core.events import CallFinished as CallFinished
    from directsuite.core.events import CallStarted as CallStarted
    from directsuite.core.events import CircuitClosed as CircuitClosed
    from directsuite.core.events import CircuitOpened as CircuitOpened
    from directsuite.core.events import Event as Event
    from directsuite.core.events import Listener as Listener
    from directsuite.core.events import OutcomeLeftUnknown as OutcomeLeftUnknown
    from directsuite.core.events import Progress as Progress
    from directsuite.core.events import RenewalFailed as RenewalFailed
    from directsuite.core.events import Renewed as Renewed
    from directsuite.core.events import RetryScheduled as RetryScheduled
    from directsuite.core.events import ServicePaused as ServicePaused
    from directsuite.core.events import SessionRenewed as SessionRenewed
    from directsuite.core.events import TokenRefreshed as TokenRefreshed
    from directsuite.core.events import ValuesSkipped as ValuesSkipped
    from directsuite.core.events import group_calls as group_calls
    from directsuite.core.facade import RawResponse as RawResponse
    from directsuite.core.iteration import Listing as Listing
    from directsuite.core.retry import DefaultWait as DefaultWait
    from directsuite.core.retry import RetryPolicy as RetryPolicy
    from directsuite.core.session import FreshConnector as FreshConnector
    from directsuite.errors import AddressError as AddressError
    from directsuite.errors import AuthenticationError as AuthenticationError
    from directsuite.errors import BadRequestError as BadRequestError
    from directsuite.errors import CircuitOpenError as CircuitOpenError
    from directsuite.errors import ClosedError as ClosedError
    from directsuite.errors import ConfigurationError as ConfigurationError
    from directsuite.errors import ConflictError as ConflictError
    from directsuite.errors import ConnectFailedError as ConnectFailedError
    from directsuite.errors import ConnectionLostError as ConnectionLostError
    from directsuite.errors import DeadlineExceededError as DeadlineExceededError
    from directsuite.errors import DirectSuiteError as DirectSuiteError
    from directsuite.errors import DocumentNotFoundError as DocumentNotFoundError
    from directsuite.errors import InvalidArgumentError as InvalidArgumentError
    from directsuite.errors import MissingFileError as MissingFileError
    from directsuite.errors import NotFoundError as NotFoundError
    from directsuite.errors import Outcome as Outcome
    from directsuite.errors import OutcomeUnknownError as OutcomeUnknownError
    from directsuite.errors import PaymentError as PaymentError
    from directsuite.errors import PermissionDeniedError as PermissionDeniedError
    from directsuite.errors import RateLimitedError as RateLimitedError
    from directsuite.errors import ResponseDecodeError as ResponseDecodeError
    from directsuite.errors import ServerError as ServerError
    from directsuite.errors import ServiceError as ServiceError
    from directsuite.errors import TransportError as TransportError
    from directsuite.errors import UnreadableFileError as UnreadableFileError
    from directsuite.fax.models import FaxMessage as FaxMessage
    from directsuite.fax.models import FaxMessageInformation as FaxMessageInformation
    from directsuite.fax.models import FaxRecipient as FaxRecipient
    from directsuite.fax.models import FaxStatus as FaxStatus
    from directsuite.fax.service import Fax as Fax
    from directsuite.messaging.models import Attachment as Attachment
    from directsuite.messaging.models import DirectMessageLog as DirectMessageLog
    from directsuite.messaging.models import DirectMessageStatusReportResponse as DirectMessageStatusReportResponse
    from directsuite.messaging.models import Message as Message
    from directsuite.messaging.models import MessageDetail as MessageDetail
    from directsuite.messaging.models import MessageHeader as MessageHeader
    from directsuite.messaging.models import MessageStatus as MessageStatus
    from directsuite.messaging.models import MessageWithHeader as MessageWithHeader
    from directsuite.messaging.models import RawMessage as RawMessage
    from directsuite.messaging.models import Recipient as Recipient
    from directsuite.messaging.models import RecipientType as RecipientType
    from directsuite.messaging.models import SendMessageResponse as SendMessageResponse
    from directsuite.messaging.sending import Delivery as Delivery
    from directsuite.messaging.sending import TUser as TUser
    from directsuite.messaging.service import Mailbox as Mailbox
    from directsuite.oauth.grants import AuthorizationCode as AuthorizationCode
    from directsuite.oauth.grants import AuthorizationRequest as AuthorizationRequest
    from directsuite.oauth.grants import ClientAuth as ClientAuth
    from directsuite.oauth.grants import ClientCredentials as ClientCredentials
    from directsuite.oauth.grants import OnRotated as OnRotated
    from directsuite.oauth.grants import RefreshToken as RefreshToken
    from directsuite.otel import OpenTelemetry as OpenTelemetry
    from directsuite.registration.models import AddUsersResponseV2 as AddUsersResponseV2
    from directsuite.registration.models import DirectUserDetail as DirectUserDetail
    from directsuite.registration.models import DirectUserType as DirectUserType
    from directsuite.registration.models import IDProofedIndividual as IDProofedIndividual
    from directsuite.registration.models import IDProofedIndividualRESTful as IDProofedIndividualRESTful
    from directsuite.registration.models import Login as Login
    from directsuite.registration.models import LoginResponse as LoginResponse
    from directsuite.registration.models import PaymentConfirmation as PaymentConfirmation
    from directsuite.registration.models import Product as Product
    from directsuite.registration.models import UserPassword as UserPassword
    from directsuite.registration.models import UserStateType as UserStateType
    from directsuite.registration.service import Registration as Registration
    from directsuite.settings import Settings as Settings
    from directsuite.signing.models import DocumentInfo as DocumentInfo
    from directsuite.signing.models import DocumentSignature as DocumentSignature
    from directsuite.signing.models import DocumentUpdate as DocumentUpdate
    from directsuite.signing.models import FormField as FormField
    from directsuite.signing.models import Page as Page
    from directsuite.signing.models import Signature as Signature
    from directsuite.signing.models import StoredDocument as StoredDocument
    from directsuite.signing.models import Widget as Widget
    from directsuite.signing.service import Signing as Signing
    from directsuite.suite import DirectSuite as DirectSuite
    from directsuite.wire.codec import make_converter as make_converter
    from directsuite.wire.codec import register_hooks as register_hooks
    from directsuite.wire.models import Model as Model
    from directsuite.wire.models import OpenEnum as OpenEnum
    from directsuite.wire.models import Secret as Secret
    from directsuite.wire.models import reveal as reveal
else:
    _NAMES = {
        "core.call_log": "configure_logging",
        "core.credentials": "AccessToken TokenSource",
        "core.events": (
            "AttemptFailed AttemptStarted AttemptSucceeded CallEvent CallFinished CallStarted CircuitClosed "
            "CircuitOpened Event Listener OutcomeLeftUnknown RenewalFailed Renewed RetryScheduled "
            "Progress ServicePaused SessionRenewed TokenRefreshed ValuesSkipped group_calls"
        ),
        "core.facade": "RawResponse",
        "core.iteration": "Listing",
        "core.retry": "RetryPolicy DefaultWait",
        "core.session": "FreshConnector",
        "errors": (
            "AddressError AuthenticationError BadRequestError CircuitOpenError ClosedError ConfigurationError "
            "ConflictError ConnectFailedError ConnectionLostError DeadlineExceededError DirectSuiteError "
            "DocumentNotFoundError InvalidArgumentError MissingFileError NotFoundError Outcome OutcomeUnknownError "
            "PaymentError PermissionDeniedError RateLimitedError ResponseDecodeError ServerError ServiceError "
            "TransportError UnreadableFileError"
        ),
        "fax.models": "FaxMessage FaxMessageInformation FaxRecipient FaxStatus",
        "fax.service": "Fax",
        "messaging.models": (
            "Attachment DirectMessageLog DirectMessageStatusReportResponse Message MessageDetail MessageHeader "
            "MessageStatus MessageWithHeader RawMessage Recipient RecipientType SendMessageResponse"
        ),
        "messaging.service": "Mailbox",
        "messaging.sending": "Delivery TUser",
        "oauth.grants": "AuthorizationCode AuthorizationRequest ClientAuth ClientCredentials OnRotated RefreshToken",
        "otel": "OpenTelemetry",
        "registration.models": (
            "AddUsersResponseV2 DirectUserDetail DirectUserType IDProofedIndividual IDProofedIndividualRESTful "
            "Login LoginResponse PaymentConfirmation Product UserPassword UserStateType"
        ),
        "registration.service": "Registration",
        "settings": "Settings",
        "signing.models": (
            "DocumentInfo DocumentSignature DocumentUpdate FormField Page Signature StoredDocument Widget"
        ),
        "signing.service": "Signing",
        "suite": "DirectSuite",
        "wire.codec": "make_converter register_hooks",
        "wire.models": "Model OpenEnum Secret reveal",
    }
    _MODULES = {name: f"directsuite.{module}" for module, names in _NAMES.items() for name in names.split()}
    __all__ = sorted([*_MODULES, "__version__"])

    def __getattr__(name: str) -> object:
        from importlib import import_module

        module = _MODULES.get(name)
        if module is None:
            raise AttributeError(f"module 'directsuite' has no attribute {name!r}")
        value = getattr(import_module(module), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return __all__
