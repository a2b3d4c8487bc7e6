"""One login to a vCenter, shared by two stubs: one for calls, one for the long poll."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import SecretStr
from pyVmomi import VmomiSupport, vim

from banlieue.api.reasons import Reason
from banlieue.providers.vsphere.client import faults
from banlieue.providers.vsphere.client.creates import CALL_TIMEOUT
from banlieue.providers.vsphere.client.transport import Endpoint, Stub, Trust, operation
from banlieue.sdk.driver import Connection
from banlieue.sdk.errors import NeedsOperator, Unreachable

T = TypeVar("T")

FLOOR_VERSION = VmomiSupport.versionMap["vim25/6.5"]
"""What every server understands well enough to say which version it is."""

OLDEST = (7, 0)

_LOGOUT_TIMEOUT = 5.0


@dataclass(frozen=True, slots=True)
class Timings:
    """Limits in seconds; tests shorten them.

    Attributes:
        read: longest silence of a call.
        longest_poll: longest wait of one long poll; below the idle cut of proxies.
        poll_slack: how much later than its limit the answer of a poll may come.
        coalesce: how long requests that can share a call are gathered before it is sent.
        gather: longest time that changes are gathered while much is going on.
        stream: the same while VMs are made one after the other.
        inventory: age at which the placement inventory is read again.
    """

    read: float = CALL_TIMEOUT
    longest_poll: float = 10.0
    poll_slack: float = 8.0
    coalesce: float = 0.03
    gather: float = 1.0
    stream: float = 2.0
    inventory: float = 300.0


@dataclass(frozen=True, slots=True)
class Content:
    """The service's own objects, by managed object id, and what it says about itself."""

    identity: str
    version: str
    api_version: str
    root_folder: str
    property_collector: str
    session_manager: str
    search_index: str
    view_manager: str
    task_manager: str
    authorization_manager: str
    disk_manager: str
    file_manager: str
    storage_resource_manager: str = ""
    custom_fields: str = ""
    ovf_manager: str = ""


@dataclass(frozen=True, slots=True)
class Login:
    """A session that is open, or was; `number` grows with every renewal."""

    number: int
    key: str = field(repr=False)
    content: Content
    ops: Stub
    watch: Stub


class Session:
    """Calls with a login that is renewed once when the server ended it. Thread-safe.

    A renewed login that reaches another vCenter is refused for good: every managed object id known
    here would mean something else there.
    """

    def __init__(self, to: Connection, timings: Timings) -> None:
        self._endpoints = tuple(Endpoint.parse(url) for url in to.endpoints)
        self._trust = Trust.of(to)
        self._username, self._password = _credentials(to)
        self._timings = timings
        self._lock = threading.Lock()
        self._login: Login | None = None
        self._spent: dict[str, int] = {}
        self._closed = False

    def __repr__(self) -> str:
        return f"Session({', '.join(endpoint.host for endpoint in self._endpoints)})"

    # Opening and closing

    def open(self) -> None:
        """Log in at the first endpoint that answers.

        Raises:
            DriverError: none answers, the certificate is not trusted, the version is too old, or
                the credentials are refused.
        """
        with faults.translated(Reason.PROVIDER_UNREACHABLE), operation("login"):
            self._login = self._log_in(number=1)

    def close(self) -> None:
        """Log out and end every call that waits; never raises."""
        with self._lock:
            self._closed = True
            login = self._login
        if login is None:
            return
        self._end(login)

    def _end(self, login: Login) -> None:
        """End calls that wait, and log out if that works; if not, idleness ends the session."""
        login.watch.abort()
        login.ops.abort()
        stub = self._stub(login.ops.endpoint, login.ops.version, _LOGOUT_TIMEOUT)
        stub.SetSessionId(login.ops.GetSessionId())
        with contextlib.suppress(*faults.NATIVE), operation("logout"):
            vim.SessionManager(login.content.session_manager, stub).Logout()
        stub.DropConnections()
        self._keep_count(stub)

    def _log_in(self, number: int) -> Login:
        failure: Exception = Unreachable("the Provider names no endpoint; set connection.endpoint")
        for endpoint in self._endpoints:
            try:
                return self._log_in_at(endpoint, number)
            except faults.NATIVE as error:
                failure = error
                if not isinstance(faults.driver_error(error), Unreachable):
                    raise
        raise failure

    def _log_in_at(self, endpoint: Endpoint, number: int) -> Login:
        first = self._stub(endpoint, FLOOR_VERSION, self._timings.read)
        try:
            raw = vim.ServiceInstance("ServiceInstance", first).RetrieveContent()
        finally:
            first.DropConnections()
            self._keep_count(first)
        version = _check_version(raw.about)
        content = _content(raw)
        ops = self._stub(endpoint, version, self._timings.read)
        ops.SetSessionId(first.GetSessionId())
        try:
            session = vim.SessionManager(content.session_manager, ops).Login(
                userName=self._username.get_secret_value(),
                password=self._password.get_secret_value(),
                locale=None,
            )
        # Whatever ended the login, its connections are closed; raised again.
        except BaseException:
            ops.DropConnections()
            self._keep_count(ops)
            raise
        patience = self._timings.longest_poll + self._timings.poll_slack
        watch = self._stub(endpoint, version, patience)
        watch.SetSessionId(ops.GetSessionId())
        return Login(number, session.key, content, ops, watch)

    def _stub(self, endpoint: Endpoint, version: str, timeout: float) -> Stub:
        return Stub(endpoint, self._trust, version=version, timeout=timeout)

    # Calling

    @property
    def credentials(self) -> tuple[SecretStr, SecretStr]:
        """Username and password of the login."""
        return self._username, self._password

    @property
    def trust(self) -> Trust:
        """Which certificates are accepted."""
        return self._trust

    @property
    def login(self) -> Login:
        """The login in use; raises `Unreachable` when the session was closed."""
        if self._login is None or self._closed:
            raise Unreachable("the session was closed")
        return self._login

    def run(self, call: Callable[[Login], T], *, reads: bool = False) -> T:
        """Make calls within the login, and once more within a new one when it was ended.

        `NotAuthenticated` leads to the repetition, which tells that nothing was carried out, and
        for calls that only read also that another thread renewed the login, which ends the calls
        of the old one. Raises what the vendor library raises.
        """
        login = self.login
        try:
            return call(login)
        except vim.fault.NotAuthenticated:
            return call(self.renew(login))
        except faults.LOST:
            renewed = self.login
            if not reads or renewed.number == login.number:
                raise
            return call(renewed)

    def renew(self, ended: Login) -> Login:
        """Log in again unless another thread already did.

        Raises:
            NeedsOperator: another vCenter answers now.
        """
        with self._lock:
            if self._closed:
                raise Unreachable("the session was closed")
            login = self.login
            if login.number != ended.number:
                return login
            with operation("login"):
                renewed = self._log_in(login.number + 1)
            if renewed.content.identity != login.content.identity:
                self._end(renewed)
                raise NeedsOperator(
                    Reason.BACKEND_IDENTITY_CHANGED,
                    "another vCenter answers at the Provider's endpoint; correct the endpoint",
                )
            self._login = renewed
        ended.watch.abort()
        ended.ops.abort()
        self._keep_count(ended.ops)
        self._keep_count(ended.watch)
        return renewed

    def ask_about(self) -> Content:
        """What the endpoint says about itself now, without relying on the session."""
        login = self.login
        raw = vim.ServiceInstance("ServiceInstance", login.ops).RetrieveContent()
        return _content(raw)

    @contextlib.contextmanager
    def lent(self, stub: Stub) -> Iterator[Stub]:
        """A stub of another service of this vCenter, for a few calls; they are counted here."""
        try:
            yield stub
        finally:
            stub.DropConnections()
            with self._lock:
                self._keep_count(stub)

    # Counting

    def calls(self) -> Mapping[str, int]:
        """SOAP calls sent so far, by method, over all logins."""
        with self._lock:
            total = dict(self._spent)
            login = self._login
        for stub in (login.ops, login.watch) if login else ():
            for method, count in stub.count().items():
                total[method] = total.get(method, 0) + count
        return total

    def _keep_count(self, stub: Stub) -> None:
        for method, count in stub.count().items():
            self._spent[method] = self._spent.get(method, 0) + count


def _credentials(to: Connection) -> tuple[SecretStr, SecretStr]:
    username, password = to.credentials.get("username"), to.credentials.get("password")
    if username is None or password is None:
        raise NeedsOperator(
            Reason.SECRET_INVALID,
            "spec.connection.credentialsRef has to name a Secret with the keys username and "
            "password; add what is missing",
        )
    return username, password


def _check_version(about: Any) -> str:  # noqa: ANN401 - vim.AboutInfo
    """The newest protocol version both sides know; refuses servers that are too old or no vCenter.

    A field newer than this version would be left out of requests without an error, so a server
    older than what the driver relies on is refused here.
    """
    if about.apiType != "VirtualCenter":
        raise NeedsOperator(
            Reason.PROVIDER_VERSION_UNSUPPORTED,
            "the endpoint is a single ESXi host; a vCenter is needed",
        )
    offered = version_tuple(about.apiVersion)
    if offered < OLDEST:
        raise NeedsOperator(
            Reason.PROVIDER_VERSION_UNSUPPORTED,
            f"vCenter {about.version} is too old; 7.0 or later is needed",
        )
    known = {
        version_tuple(name.removeprefix("vim25/")): version
        for name, version in VmomiSupport.versionMap.items()
        if name.startswith("vim25/") and version_tuple(name.removeprefix("vim25/"))
    }
    return str(known[max(number for number in known if number <= offered)])


def version_tuple(text: str) -> tuple[int, ...]:
    """`8.0.3.0` as numbers; empty when it is not made of numbers."""
    parts = text.split(".")
    return tuple(int(part) for part in parts) if all(part.isdigit() for part in parts) else ()


def _content(raw: Any) -> Content:  # noqa: ANN401 - vim.ServiceInstanceContent
    def moid(managed: Any) -> str:  # noqa: ANN401 - any managed object
        return str(managed._moId)  # noqa: SLF001 - pyVmomi offers no other way

    return Content(
        identity=raw.about.instanceUuid,
        version=raw.about.version,
        api_version=raw.about.apiVersion,
        root_folder=moid(raw.rootFolder),
        property_collector=moid(raw.propertyCollector),
        session_manager=moid(raw.sessionManager),
        search_index=moid(raw.searchIndex),
        view_manager=moid(raw.viewManager),
        task_manager=moid(raw.taskManager),
        authorization_manager=moid(raw.authorizationManager),
        disk_manager=moid(raw.virtualDiskManager),
        file_manager=moid(raw.fileManager),
        storage_resource_manager=moid(raw.storageResourceManager),
        custom_fields=moid(raw.customFieldsManager),
        ovf_manager=moid(raw.ovfManager) if raw.ovfManager else "",
    )
