"""No error of a public callable shows its arguments: not in its texts, and not in the locals of any frame."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import importlib
import inspect
import pkgutil
import re
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from types import FunctionType
from typing import Any

import attrs
import pytest

import directsuite as ds
import directsuite.jobs
from directsuite import types
from directsuite.core.privacy import SCRUBBED_DUNDERS, is_scrubbed
from directsuite.jobs import delivery, signing
from directsuite.sync import (
    ChangeStream,
    Deliver,
    MailboxProgress,
    MaildirSink,
    SqliteSink,
    SqliteStore,
    Store,
    Synchronizer,
    SyncProgress,
    SyncStatus,
)
from directsuite.sync.fleet import Fleet
from directsuite.sync.postgres import PostgresStore
from directsuite.sync.shared_limits import SharedLimits
from directsuite.testing import LeapingClock, MockedServices
from directsuite.wire.models import as_optional_secret, as_secret
from tests.chaos.leak_capture import collect_error_texts, collect_frame_locals
from tests.core import responses
from tests.core.scripted_server import ScriptedServer
from tests.core.scripted_suite import LOGIN, make_settings

MARKER = "sentinel-jane-doe"
_IMPORT = re.compile(r"^\s*from (directsuite[\w.]*) import ", re.MULTILINE)
_MODULES = (
    "directsuite",
    "directsuite.types",
    "directsuite.sync",
    "directsuite.sync.fleet",
    "directsuite.sync.postgres",
    "directsuite.sync.shared_limits",
    "directsuite.testing",
)


@attrs.frozen
class PublicCallable:
    """A function, a constructor or a method that users may call."""

    owner: type[Any] | None
    """The public class of a method or constructor."""
    name: str
    function: Callable[..., Any]
    """The function as defined in the class or module, without `self` bound."""
    is_bound_to_class: bool = False

    def __str__(self) -> str:
        return self.name if self.owner is None else f"{self.owner.__qualname__}.{self.name}"


def list_public_modules() -> list[str]:
    """Return the modules that users import from: the list above, the jobs, and the imports in guides."""
    jobs = [each.name for each in pkgutil.iter_modules(directsuite.jobs.__path__, "directsuite.jobs.")]
    guides = Path(ds.__file__).parent / "guides"
    named = {name for guide in guides.glob("*.md") for name in _IMPORT.findall(guide.read_text(encoding="utf-8"))}
    client = {name for name in named if not name.startswith("directsuite.sandbox")}
    return sorted({*_MODULES, *jobs, *client})


def list_public_objects() -> list[object]:
    """Return the public classes and functions of the package, each once."""
    found: dict[int, object] = {}
    for name in list_public_modules():
        module = importlib.import_module(name)
        for each in module.__all__:
            value = getattr(module, each)
            found.setdefault(id(value), value)
    return [each for each in found.values() if inspect.isclass(each) or inspect.isfunction(each)]


def list_public_callables() -> Iterator[PublicCallable]:
    """Yield every public callable, without those of exceptions, enums and protocols."""
    for each in list_public_objects():
        if inspect.isfunction(each):
            yield PublicCallable(None, each.__name__, each)
        elif inspect.isclass(each) and not _is_plain(each):
            yield from _list_members(each)


def _is_plain(cls: type[Any]) -> bool:
    return issubclass(cls, BaseException | enum.Enum) or getattr(cls, "_is_protocol", False)


def _list_members(cls: type[Any]) -> Iterator[PublicCallable]:
    names = {name for base in cls.__mro__ if base.__module__.startswith("directsuite") for name in vars(base)}
    for name in sorted(names):
        if name.startswith("_") and name not in SCRUBBED_DUNDERS:
            continue
        member = inspect.getattr_static(cls, name)
        function: object = getattr(member, "__func__", member)
        if isinstance(function, FunctionType):
            yield PublicCallable(cls, name, function, is_bound_to_class=member is not function)


def make_arguments(
    function: Callable[..., Any], plant: Callable[[inspect.Parameter], object]
) -> inspect.BoundArguments:
    """Return arguments for every parameter of a function but `self`, made by `plant`."""
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())
    if parameters and parameters[0].name in ("self", "cls"):
        parameters = parameters[1:]
    bound = signature.replace(parameters=parameters).bind_partial()
    for each in parameters:
        value = plant(each)
        if each.kind is each.VAR_POSITIONAL:
            bound.arguments[each.name] = (value,)
        elif each.kind is each.VAR_KEYWORD:
            bound.arguments[each.name] = {MARKER.replace("-", "_"): value}
        else:
            bound.arguments[each.name] = value
    return bound


async def finish(outcome: object) -> None:
    """Await, iterate or enter what a callable returned, as its user would."""
    if inspect.isawaitable(outcome):
        outcome = await outcome
    if isinstance(outcome, AbstractAsyncContextManager):
        async with outcome as entered:  # pyright: ignore[reportUnknownVariableType]
            outcome = entered  # pyright: ignore[reportUnknownVariableType]
            if isinstance(outcome, AsyncIterable):
                async for _ in outcome:  # pyright: ignore[reportUnknownVariableType]
                    break
        return
    if isinstance(outcome, AsyncIterable) and not isinstance(outcome, ds.DirectSuite):
        iterator = aiter(outcome)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        with contextlib.suppress(StopAsyncIteration):
            await anext(iterator)  # pyright: ignore[reportUnknownArgumentType]
        close = getattr(iterator, "aclose", None)  # pyright: ignore[reportUnknownArgumentType]
        if close is not None:
            await close()
    elif isinstance(outcome, AbstractContextManager):
        with outcome:
            pass


def find_leaks(error: BaseException) -> list[str]:
    """Return the places in which an error shows a planted value."""
    texts = (*collect_error_texts(error), *collect_frame_locals(error))
    return [place for place, text in texts if MARKER in text]


def make_plain_value(parameter: inspect.Parameter) -> object:
    """Return a value of the kind that a parameter expects, with the marker in it."""
    if parameter.name == "timeout":
        return 20.0
    expected = str(parameter.annotation)
    if expected.startswith(("Iterable[int", "Sequence[int", "list[int")):
        return [7]
    if "[str]" in expected or "str | AsyncIterable" in expected:
        return [MARKER]
    for name, value in _BY_TYPE.items():
        if re.search(rf"\b{name}\b", expected):
            return value() if callable(value) else value
    return MARKER


_BY_TYPE: dict[str, Any] = {
    "datetime": datetime(2026, 1, 1, tzinfo=UTC),
    "timedelta": -1,
    "MessageWithHeader": lambda: ds.MessageWithHeader(subject=MARKER, recipients=[ds.Recipient("a@b.test")]),
    "Message": lambda: ds.Message(subject=MARKER, body=MARKER, recipients=[ds.Recipient("a@b.test")]),
    "Recipient": lambda: [ds.Recipient(f"{MARKER}@direct.example.test")],
    "RawMessage": lambda: [ds.RawMessage(data=MARKER.encode())],
    "UserPassword": lambda: [ds.UserPassword(MARKER, MARKER)],
    "IDProofedIndividualRESTful": lambda: ds.IDProofedIndividualRESTful(first_name=MARKER),
    "IDProofedIndividual": lambda: ds.IDProofedIndividual(first_name=MARKER),
    "Source": f"%PDF-1.7 {MARKER}".encode(),
    "bytes": MARKER.encode(),
    "bool": True,
    "int": 7,
    "float": 0.001,
}


NO_POSTGRES = "postgresql://user@127.0.0.1:1/none"
EVERY = {str(each): each for each in list_public_callables()}


class Shown:
    """An object of a wrong type whose text is the marker."""

    def __repr__(self) -> str:
        return MARKER


KINDS: dict[str, Callable[[inspect.Parameter], object]] = {
    "expected": make_plain_value,
    "list": lambda _: [MARKER],
    "text": lambda _: MARKER,
    "object": lambda _: Shown(),
    "dict": lambda _: {MARKER: MARKER},
}
LIFE_CYCLE = {"__aenter__", "__aexit__", "aclose", "open"}
ENDLESS = {"DeliveryTracker.changes", "Synchronizer.run"}
"""Public callables that wait until they are cancelled, or for an event that these tests do not cause."""


@attrs.define
class PublicInstances:
    """The suite and the folder that instances of public classes use."""

    suite: ds.DirectSuite
    folder: Path
    file_count: int = 0
    cached: dict[type[Any], Any] = attrs.field(factory=dict[type[Any], Any])

    def make_path(self) -> Path:
        """Return the path of a new file."""
        self.file_count += 1
        return self.folder / str(self.file_count)

    async def get_instance(self, cls: type[Any]) -> Any:
        """Return an instance of a public class, which is open if it has to be; the same each time."""
        if cls not in self.cached:
            self.cached[cls] = INSTANCES[cls](self)
            if cls in CONTEXTS:
                await self.cached[cls].__aenter__()
        return self.cached[cls]

    async def close(self) -> None:
        for cls in CONTEXTS & self.cached.keys():
            await self.cached[cls].__aexit__(None, None, None)

    @property
    def mailbox(self) -> ds.Mailbox:
        return self.suite.mailbox("clinic@direct.example.test", "password")

    def job(self) -> signing.SigningJob:
        """Return a job whose journal is closed."""
        journal = signing.SigningJournal(self.make_path())
        source, target = signing.Folder(self.folder), signing.TargetFolder(self.folder / "out")
        return signing.SigningJob(self.suite.signing, source, target, [ds.Signature(name="S")], journal=journal)

    def fleet(self) -> signing.SigningFleet:
        """Return a fleet whose database cannot be reached."""
        journal = signing.SigningJournal(conninfo=NO_POSTGRES, job="job")
        journal._job = 1
        target = signing.TargetFolder(self.folder / "out")
        signatures = [ds.Signature(name="S")]
        return signing.SigningFleet(
            self.suite.signing, signing.Folder(self.folder).named, target, signatures, journal=journal
        )

    def tracker(self) -> delivery.DeliveryTracker:
        """Return a tracker whose journal is closed."""
        return delivery.DeliveryTracker(self.mailbox, journal=delivery.DeliveryJournal(self.make_path()))

    def synchronizer(self) -> Synchronizer:
        """Return a synchronizer of one mailbox, whose store is closed."""
        store = SqliteStore(self.make_path(), sink=SqliteSink())
        return Synchronizer(self.suite, store, [f"{MARKER}@direct.example.test"], password)


async def password(_: str) -> str:
    """Return the password of each mailbox."""
    return "password"


async def no_items() -> AsyncGenerator[Any]:
    """Fail at the first item."""
    for item in [MARKER]:
        if item:
            raise LookupError(len(item))
        yield item


def make_change_stream(_: object) -> ChangeStream:
    """Return a stream that ends at its first step."""

    async def run(_: Deliver) -> None:
        """Deliver nothing."""

    return ChangeStream(run)


async def no_content() -> bytes:
    """Fail to read a document."""
    raise LookupError(len(MARKER))


INSTANCES: dict[type[Any], Callable[[PublicInstances], object]] = {
    ds.Attachment: lambda _: ds.Attachment(content=MARKER.encode(), filename=MARKER),
    ds.AuthorizationRequest: lambda _: ds.AuthorizationRequest(
        client_id="id", redirect_uri="https://app.example.test/", state="state", code_verifier="verifier"
    ),
    ds.DirectSuite: lambda _: ds.DirectSuite(ds.Settings()),
    ds.DirectUserDetail: lambda _: ds.DirectUserDetail(),
    ds.Fax: lambda scenario: scenario.suite.fax,
    ds.FreshConnector: lambda _: ds.FreshConnector(),
    ds.Listing: lambda _: ds.Listing(no_items()),
    ds.Mailbox: lambda scenario: scenario.mailbox,
    ds.Message: lambda _: ds.Message(subject=MARKER),
    ds.MessageWithHeader: lambda _: ds.MessageWithHeader(subject=MARKER),
    ds.OpenTelemetry: lambda _: ds.OpenTelemetry(),
    ds.RawMessage: lambda _: ds.RawMessage(data=MARKER.encode()),
    ds.Registration: lambda scenario: scenario.suite.registration,
    ds.RetryPolicy: lambda _: ds.RetryPolicy(),
    ds.Secret: lambda _: ds.Secret(MARKER),
    ds.Settings: lambda _: ds.Settings(),
    ds.Signing: lambda scenario: scenario.suite.signing,
    ds.TUser: lambda scenario: scenario.suite.tuser("tuser", "password", "clinic@direct.example.test"),
    ds.DefaultWait: lambda _: ds.DefaultWait(),
    ChangeStream: make_change_stream,
    MailboxProgress: lambda _: MailboxProgress(name=MARKER),
    SyncProgress: lambda _: SyncProgress({MARKER: MailboxProgress(name=MARKER, status=SyncStatus.FAILING)}),
    MaildirSink: lambda scenario: MaildirSink(scenario.make_path()),
    SqliteSink: lambda _: SqliteSink(),
    SqliteStore: lambda scenario: SqliteStore(scenario.make_path(), sink=SqliteSink()),
    PostgresStore: lambda _: PostgresStore(NO_POSTGRES),
    Synchronizer: PublicInstances.synchronizer,
    Fleet: lambda scenario: Fleet(scenario.suite, PostgresStore(NO_POSTGRES), password),
    SharedLimits: lambda _: SharedLimits(NO_POSTGRES, processes=1),
    signing.SigningEntry: lambda _: signing.SigningEntry(number=1, name=MARKER),
    signing.Folder: lambda scenario: signing.Folder(scenario.folder),
    signing.SigningJournal: lambda scenario: signing.SigningJournal(scenario.make_path()),
    signing.Pdf: lambda _: signing.Pdf(MARKER, no_content),
    signing.SigningFleet: PublicInstances.fleet,
    signing.SigningJob: PublicInstances.job,
    signing.StorageFolder: lambda scenario: signing.StorageFolder(f"file://{scenario.make_path()}"),
    signing.StorageTarget: lambda scenario: signing.StorageTarget(f"file://{scenario.make_path()}"),
    signing.TargetFolder: lambda scenario: signing.TargetFolder(scenario.make_path()),
    delivery.DeliveryTracker: PublicInstances.tracker,
    delivery.DeliveryJournal: lambda scenario: delivery.DeliveryJournal(scenario.make_path()),
    LeapingClock: lambda _: LeapingClock(),
}

CONTEXTS = {ds.DirectSuite, SqliteStore, delivery.DeliveryJournal, signing.SigningJournal}
"""Classes that are open while their methods are called."""
HARMLESS = {
    "FreshConnector.connect": "aiohttp calls it, within a call that is scrubbed",
    "Secret.__init__": "it only assigns",
    "Secret.reveal": "it only returns",
    "mocked_services": "it is for tests, whose data is made up",
    "group_calls": "it takes the number of a group",
    "make_converter": "it takes a converter",
    "register_hooks": "it takes a converter",
    "response": "it is for tests, whose data is made up",
    "reveal": "it shows what its caller asks it to show",
}
"""Public callables that are not scrubbed, with the reason."""
NAMED_IN_TEXTS = {
    "Settings.from_toml": "the name of the settings file",
    "SqliteStore.bind": "the name of the sink",
    "TargetFolder.publish": "its OSError names the file",
}
"""Public callables whose messages contain an argument by design, with the argument."""
ABSTRACT = (types.Content, types.RawResponses, signing.RemoteFile, Store, MockedServices)
"""Classes that users do not create: base classes, results of facades, and mocked responses."""


def test_every_public_callable_is_scrubbed_or_harmless() -> None:
    unscrubbed = {name for name, each in EVERY.items() if not is_scrubbed(each.function) and not is_generated(each)}
    abstract = {name for name, each in EVERY.items() if each.owner in ABSTRACT}
    assert unscrubbed - abstract == HARMLESS.keys()


def is_generated(public: PublicCallable) -> bool:
    """Return True for an `__init__` by attrs that only assigns: then a wrong call fails before it begins."""
    if public.name != "__init__" or public.owner is None or not attrs.has(public.owner):
        return False
    fields: tuple[Any, ...] = attrs.fields(public.owner)
    converters = [each.converter for each in fields]
    is_checked = any(each.validator is not None for each in fields) or not HARMLESS_CONVERTERS.issuperset(converters)
    return not is_checked and not hasattr(public.owner, "__attrs_post_init__")


HARMLESS_CONVERTERS: set[object] = {None, as_secret, as_optional_secret}


def test_every_public_class_with_methods_has_an_instance_to_walk() -> None:
    with_methods = {each.owner for each in EVERY.values() if each.owner is not None and each.name != "__init__"}
    assert with_methods - INSTANCES.keys() - set(ABSTRACT) == set()
    assert {each for each in list_public_objects() if inspect.isfunction(each)} == {
        each.function for each in EVERY.values() if each.owner is None
    }


@pytest.fixture
async def public_instances(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[PublicInstances]:
    monkeypatch.chdir(tmp_path)  # some planted values are paths
    async with (
        ScriptedServer(responses.respond({"message": MARKER}, 500)) as server,
        ds.DirectSuite(make_settings(server, retry=ds.RetryPolicy.none()), token="token", login=LOGIN) as suite,
    ):
        made = PublicInstances(suite, tmp_path)
        yield made
        await made.close()


@pytest.mark.exhaustive(limit=2)
@pytest.mark.parametrize("kind", KINDS)
async def test_no_public_callable_shows_its_arguments(kind: str, public_instances: PublicInstances) -> None:
    walked, found = set[str](), dict[str, list[str]]()
    for name, each in EVERY.items():
        if each.owner not in ABSTRACT and name not in HARMLESS:
            walked.add(name)
            error = await failure_of(each, kind, public_instances)
            places = [] if error is None else find_leaks(error)
            if name in NAMED_IN_TEXTS:
                places = [place for place in places if " in " in place]  # a local in a frame
            if places:
                found[name] = places
    assert found == {}
    assert walked == {name for name, each in EVERY.items() if each.owner not in ABSTRACT} - HARMLESS.keys()


def test_leaks_are_found_in_texts_locals_and_contexts() -> None:
    names = dict[str, Any]()
    program = """def fail(argument):
    try:
        raise KeyError(argument)
    except KeyError:
        raise ValueError("no such key") from None
"""
    exec(compile(program, "made_up.py", "exec"), names)  # noqa: S102  frames of a file in this folder are ignored
    with pytest.raises(ValueError, match="no such key") as caught:
        names["fail"](MARKER)
    assert {"str of KeyError", "repr of KeyError", "argument in fail (made_up.py)"} <= set(find_leaks(caught.value))


async def failure_of(public: PublicCallable, kind: str, scenario: PublicInstances) -> BaseException | None:
    """Return what a public callable raised. Endless calls are cancelled."""
    task = asyncio.create_task(call(public, kind, scenario))
    if str(public) in ENDLESS:
        await asyncio.wait([task], timeout=0.1)
        task.cancel()
    await asyncio.wait([task], timeout=20)
    assert task.done(), str(public)
    return asyncio.CancelledError() if task.cancelled() else task.exception()


async def call(public: PublicCallable, kind: str, scenario: PublicInstances) -> None:
    """Call a public callable with planted values, and use what it returns."""
    bound = make_arguments(public.function, KINDS[kind])
    if public.owner is None:
        await finish(public.function(*bound.args, **bound.kwargs))
    elif public.name == "__init__":
        await finish(public.owner(*bound.args, **bound.kwargs))
    elif public.is_bound_to_class:
        await finish(getattr(public.owner, public.name)(*bound.args, **bound.kwargs))
    elif public.name in LIFE_CYCLE:
        instance: Any = INSTANCES[public.owner](scenario)
        try:
            await getattr(instance, public.name)(*bound.args, **bound.kwargs)
        finally:
            await instance.__aexit__(None, None, None)
    else:
        instance = await scenario.get_instance(public.owner)
        await finish(getattr(instance, public.name)(*bound.args, **bound.kwargs))
