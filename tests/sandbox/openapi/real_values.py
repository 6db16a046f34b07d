"""Values that exist in the running sandbox, so that the operations do not reject generated requests.

A value that an operation consumes (a document, a folder, a uid, a username) is created for each request.
"""

from __future__ import annotations

import base64
import itertools
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import requests

from directsuite.sandbox.clock import Clock
from directsuite.sandbox.server import Sandbox
from directsuite.testing.loop_thread import LoopThread
from tests.sandbox.signing.documents import make_consent_form

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Mapping

    from .documented import DocumentedOperation

T = TypeVar("T")

_MESSAGING = "/message-rest/api/message"
_REGISTRATION = "/DirectRegistrationRESTful/rest/Patient"
_DOMAIN = "direct.example.test"
_PASSWORD = "correct-password"
_RAW = (
    b"From: bob@example.test\r\nTo: alice@direct.example.test\r\nCc: carol@example.test\r\n"
    b"Subject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=\r\nMessage-ID: <1@example.test>\r\n"
    b"Reply-To: dave@example.test\r\nDate: Fri, 1 May 2026 12:00:00 +0000\r\n"
    b"MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n"
    b"--b\r\nContent-Type: text/html\r\n\r\n<p>Hello</p>\r\n"
    b'--b\r\nContent-Type: text/xml; name="a b.xml"\r\nContent-Disposition: attachment; filename="a b.xml"\r\n'
    b"Content-Transfer-Encoding: base64\r\n\r\nPGEvPg==\r\n--b--\r\n"
)


PDF: Final = make_consent_form()


@dataclass(frozen=True)
class SandboxThread:
    sandbox: Sandbox
    thread: LoopThread

    @property
    def root(self) -> str:
        return self.sandbox.root_url

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.thread.call(coroutine)


@contextmanager
def run_sandbox() -> Generator[SandboxThread]:
    with LoopThread() as thread:
        clock = Clock()
        clock.freeze()  # otherwise, the session would expire in a run of more than ten minutes
        sandbox = Sandbox(clock=clock)
        thread.call(sandbox.__aenter__())
        yield SandboxThread(sandbox, thread)
        thread.call(sandbox.__aexit__(None, None, None))


class RealValues:
    """Values that the running sandbox knows, for path parameters and bodies."""

    def __init__(self, running: SandboxThread) -> None:
        self.root = running.root
        self.http = requests.Session()
        self.http.trust_env = False
        self._numbers = itertools.count(1)
        self._running = running
        sandbox = running.sandbox
        self.token: str = sandbox.environment["DIRECTSUITE_TOKEN"]
        self._bearer = {"Authorization": f"Bearer {self.token}"}
        self._login = {
            "username": sandbox.environment["DIRECTSUITE_LOGIN_USERNAME"],
            "password": sandbox.environment["DIRECTSUITE_LOGIN_PASSWORD"],
        }
        self._fax_number = "15550100199"
        self._handle = running.call(sandbox.add_fax(self._fax_number))
        self._individual = running.call(sandbox.add_individual("Zoe", "Neil", "0123", "1980-02-29"))
        running.call(sandbox.add_reseller(self._login["username"], self._login["password"], [_DOMAIN]))
        self._address = f"alice@{_DOMAIN}"
        self._mailbox = {"username": self._address, "password": _PASSWORD}
        running.call(sandbox.add_account(self._address, _PASSWORD))
        running.call(sandbox.add_tuser("t-user", _PASSWORD, [self._address]))
        self.session = self._request("POST", f"{_REGISTRATION}/login", self._login)["sessionId"]
        self._patient = self._provision()
        self._create_folder("INBOX.dest")
        self._smtp_id = self._call_messaging("PUT", "Send", {"message": self._make_message()}, "authentication")[
            "smtpId"
        ]

    def credentials(self, operation: DocumentedOperation) -> dict[str, str]:
        if operation.name == "login":
            return self._login
        if operation.name.endswith("WithTuser"):
            return {"username": "t-user", "password": _PASSWORD, "directAddr": self._address}
        return self._mailbox

    def path_parameters(self, operation: DocumentedOperation) -> dict[str, str]:
        utc = operation.name.endswith("UTC")
        values: Mapping[str, Callable[[], str]] = {
            "identifier": self._save_signed_document if operation.name == "GetDocInfo" else self._save_document,
            "fax_number": lambda: self._fax_number,
            "message_handle": lambda: self._handle,
            "folderName": self._new_folder_name if operation.name == "CreateFolder" else self._create_stocked_folder,
            "newFolderName": self._new_folder_name,
            "destFolderName": lambda: "INBOX.dest",
            "rootFolderName": lambda: "INBOX",
            "smtpId": lambda: self._smtp_id,
            "beginTime": lambda: "20000101000000" if utc else "0",
            "endTime": lambda: "20991231235959" if utc else "4102444799000",
            "sessionId": lambda: self.session,
            "directDomain": lambda: _DOMAIN,
            "directUsername": lambda: self._patient,
        }
        return {name: values[name]() for name in operation.path_parameters if name in values}

    def body(self, operation: DocumentedOperation, generated: dict[str, Any]) -> dict[str, Any]:
        real: Mapping[str, Callable[[], Any]] = {
            "uids": lambda: [self._deliver_message()],
            "recipients": lambda: [{"email": self._address, "type": "TO"}],
            "smtpIds": lambda: [self._smtp_id],
            "folders": lambda: [self._create_folder("INBOX.work")],
            "messages": lambda: [{"data": base64.b64encode(_RAW).decode()}],
            "message": lambda: self._add_addresses(generated["message"]),
            "Signatures": lambda: [self._make_signature()],
        }
        body = {name: real[name]() if name in real else value for name, value in generated.items()}
        match operation.name:
            case "Forward":
                body["recipients"] = real["recipients"]()
            case "Sign" | "SignAndPull":
                body = {**body, **self._make_signature()}
                for name in ("graphicalSignature", "timezone", "GMTOffset"):
                    body.pop(name, None)
            case "ProvisionIDProofedPatient":
                body = {"id": self._new_individual(), **self._new_user()}
            case "GetPatientAddressByMeta":
                body = {"id": self._individual}
            case _:
                pass
        return body

    def passwords(self) -> list[dict[str, str]]:
        return [{"username": self._patient, "password": f"new-password-{next(self._numbers)}"}]

    def close(self) -> None:
        self.http.close()

    def _request(self, method: str, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        response: dict[str, Any] = self.http.request(method, self.root + path, json=body, timeout=30).json()
        assert response["success"], response
        return response

    def _call_messaging(
        self, method: str, path: str, members: Mapping[str, Any], member: str = "auth"
    ) -> dict[str, Any]:
        return self._request(method, f"{_MESSAGING}/{path}", {member: self._mailbox, **members})

    def _make_message(self) -> dict[str, Any]:
        return {"sender": self._address, "htmlBody": False, "recipients": [{"email": self._address, "type": "TO"}]}

    def _add_addresses(self, message: Any) -> Any:
        """Return a generated message with a valid sender and recipients, or any other value unchanged."""
        return {**cast("dict[str, Any]", message), **self._make_message()} if isinstance(message, dict) else message

    def _new_folder_name(self) -> str:
        return f"INBOX.new{next(self._numbers)}"

    def _create_folder(self, name: str) -> str:
        self.http.post(f"{self.root}{_MESSAGING}/CreateFolder/{name}", json=self._mailbox, timeout=30)
        return name

    def _create_stocked_folder(self) -> str:
        self._create_folder("INBOX.work")
        response = self.http.post(f"{self.root}{_MESSAGING}/GetMessageCount/INBOX.work", json=self._mailbox, timeout=30)
        if not response.json()["count"]:
            self._deliver_message()
        return "INBOX.work"

    def _deliver_message(self) -> int:
        self._create_folder("INBOX.work")
        return self._running.call(self._running.sandbox.deliver(self._address, _RAW, "INBOX.work"))

    def _save_document(self) -> str:
        headers = {**self._bearer, "Content-Type": "text/plain"}
        identifier: str = self._call_signing("POST", "", headers=headers, data=base64.b64encode(PDF))["identifier"]
        return identifier

    def _save_signed_document(self) -> str:
        """Save a document with a form, a signature and an empty signature field."""
        identifier = self._save_document()
        self._call_signing("PATCH", f"/{identifier}/sign", headers=self._bearer, json=self._make_signature())
        return identifier

    def _call_signing(self, method: str, path: str, **request: Any) -> dict[str, Any]:
        response = self.http.request(method, f"{self.root}/signing/pdf{path}", timeout=30, **request)
        assert response.status_code == 200, response.text
        content: dict[str, Any] = response.json()
        return content

    def _make_signature(self) -> dict[str, Any]:
        number = next(self._numbers)
        return {"name": f"signature{number}", "widget": {"x": 72, "y": 72, "width": 144, "height": 36, "page": 1}}

    def _new_individual(self) -> int:
        number = next(self._numbers)
        return self._running.call(
            self._running.sandbox.add_individual(f"Zoe{number}", "Neil", f"{number % 10000:04}", "1980-02-29")
        )

    def _new_user(self) -> dict[str, str]:
        return {"directUsername": f"patient{next(self._numbers)}", "directPassword": "patient-password-1"}

    def _provision(self) -> str:
        user = self._new_user()
        path = f"{_REGISTRATION}/ProvisionIDProofedPatient/{self.session}/{_DOMAIN}"
        self._request("POST", path, {"id": self._individual, **user})
        return user["directUsername"]
