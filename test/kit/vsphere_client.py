"""A plain vSphere client for tests of the kit: what an outsider sees, without our own driver."""

import ssl
import uuid
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlsplit

from pyVmomi import SoapAdapter, vim, vmodl

from test.kit.waiting import wait_until

VERSION: Final = "vim.version.v8_0_3_0"

_PC: Final = vmodl.query.PropertyCollector


class VSphereClient:
    """One session with its own connections.

    Attributes:
        content: The service content.
    """

    def __init__(
        self, url: str, *, ca_pem: str = "", timeout: float = 30.0, connections: int = 8
    ) -> None:
        """Connect without logging in.

        Args:
            url: The SOAP endpoint.
            ca_pem: Authority that its certificate must come from; anything goes when empty.
            timeout: Seconds for connecting and for each read.
            connections: How many threads may call at once without waiting for handshakes.
        """
        context = ssl.create_default_context(cadata=ca_pem or None)
        if not ca_pem:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        parts = urlsplit(url)
        self._stub = SoapAdapter.SoapStubAdapter(
            host=parts.hostname,
            port=parts.port,
            path=parts.path,
            version=VERSION,
            sslContext=context,
            httpConnectionTimeout=timeout,
            poolSize=connections,
        )
        self.content: Any = vim.ServiceInstance("ServiceInstance", self._stub).RetrieveContent()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stub.DropConnections()

    def login(self, username: str, password: str) -> Self:
        """Open a session; raises vim.fault.InvalidLogin."""
        self.content.sessionManager.Login(username, password)
        return self

    def at(self, path: str) -> Any:  # noqa: ANN401 - whatever managed object it is
        """The object at an inventory path such as DC0/vm, or None."""
        return self.content.searchIndex.FindByInventoryPath(path)

    def reference(self, kind: type[Any], mo_ref: str) -> Any:  # noqa: ANN401 - same
        """An object by its moRef, without asking whether it is there."""
        return kind(mo_ref, self._stub)

    def by_uuid(self, instance_uuid: str) -> list[Any]:
        """The machines with that instance UUID."""
        search = self.content.searchIndex
        return list(search.FindAllByUuid(None, instance_uuid, vmSearch=True, instanceUuid=True))

    def read(self, obj: Any, *paths: str) -> dict[str, Any]:  # noqa: ANN401 - a managed object
        """Properties of one object; unset ones are absent. Raises the fault of what is missing."""
        answer = self.content.propertyCollector.RetrievePropertiesEx(
            [filter_of([obj], {type(obj): paths})], _PC.RetrieveOptions()
        )
        for missing in answer.objects[0].missingSet:
            raise missing.fault
        return {item.name: item.val for item in answer.objects[0].propSet}

    def clone_spec(self, **config: Any) -> Any:  # noqa: ANN401 - fields of ConfigSpec
        """A spec for a clone into the first cluster, with fresh UUIDs, powered on."""
        identity = str(uuid.uuid4())
        config = {"uuid": identity, "instanceUuid": identity, **config}
        return vim.vm.CloneSpec(
            location=vim.vm.RelocateSpec(
                pool=self.at("DC0/host/DC0_C0/Resources"),
                datastore=self.at("DC0/datastore/LocalDS_0"),
            ),
            config=vim.vm.ConfigSpec(**config),
            powerOn=True,
            template=False,
        )

    def clone(self, name: str, *, template: str = "ubuntu", spec: Any = None) -> Any:  # noqa: ANN401 - vim types
        """Start to clone a template into DC0/vm; returns the task."""
        source = self.at(f"DC0/vm/templates/{template}")
        return source.CloneVM_Task(self.at("DC0/vm"), name, spec or self.clone_spec())

    def outcome(self, task: Any, timeout: float = 30.0) -> Any:  # noqa: ANN401 - vim types
        """Wait for a task; returns its result or raises its fault."""

        def finished() -> Mapping[str, Any] | None:
            info = self.read(task, "info.state", "info.result", "info.error")
            return info if info["info.state"] in {"success", "error"} else None

        info = wait_until(finished, timeout, "a task")
        if info["info.state"] == "error":
            raise info["info.error"]
        return info.get("info.result")


def filter_of(objects: list[Any], paths: Mapping[type[Any], tuple[str, ...]]) -> Any:  # noqa: ANN401 - vim types
    """A filter spec over these very objects."""
    return _PC.FilterSpec(
        objectSet=[_PC.ObjectSpec(obj=obj, skip=False) for obj in objects],
        propSet=[_PC.PropertySpec(type=kind, pathSet=list(names)) for kind, names in paths.items()],
    )
