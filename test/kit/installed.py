"""banlieue installed on a control plane and registered with a backend, as an admin would do it.

Works for any backend that has a `ConformanceTarget`: Provider, class and image are made from what
the target says of itself, so one test runs on all of them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from banlieue.sdk.testing.conformance_target import ConformanceTarget, RawVm
from test.kit.kube import Kube
from test.kit.stack import (
    Object,
    Stack,
    credentials,
    is_ready,
    provider_class,
    virtual_machine,
    vm_class,
    vm_image,
)

READY_SECONDS = 60.0
GONE_SECONDS = 60.0


@dataclass
class Registered:
    """A backend registered as a Provider, with a class and an image that fit it."""

    stack: Stack
    target: ConformanceTarget
    provider: str = "backend"
    namespace: str = "team-a"
    kind: str = field(init=False)

    def __post_init__(self) -> None:
        self.kind = self.target.backend.machine.kind

    @property
    def kube(self) -> Kube:
        """A client with all rights."""
        return self.stack.kube

    def register(self) -> None:
        """Provider class, Provider with its Secret, class, image and a tenant's namespace."""
        backend = self.target.backend
        self.kube.apply(self.provider_class_object())
        self.kube.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}}
        )
        self.apply_credentials()
        self.kube.apply(self.provider_object())
        declared = self.target.connection().capabilities
        storage, network = declared.storage_classes[0].name, declared.network_classes[0].name
        made = vm_class(disks=[{"name": "root", "storageClass": storage}])
        made["spec"]["network"]["interfaces"] = [{"name": "eth0", "networkClass": network}]
        self.kube.apply(made)
        self.kube.apply(vm_image({backend.name: self.target.image_source().ref}))

    def provider_class_object(self) -> Object:
        """The class of the target's backend."""
        return provider_class(self.target.backend.name, self.kind.removesuffix("Machine"))

    def apply_credentials(self, password: str | None = None) -> None:
        """Store the login; another password makes it a wrong one."""
        found = self.target.connection().credentials
        self.kube.apply(
            credentials(
                self.stack.namespace,
                f"{self.provider}-creds",
                found["username"].get_secret_value(),
                password or found["password"].get_secret_value(),
            )
        )

    def provider_object(self, **connection: object) -> Object:
        """The Provider; keyword arguments replace parts of its connection."""
        to = self.target.connection()
        spec: dict[str, Any] = {
            "endpoint": to.endpoints[0],
            "credentialsRef": {"name": f"{self.provider}-creds"},
        }
        if to.thumbprints:
            spec["thumbprints"] = list(to.thumbprints)
        if to.ca_bundle:
            spec["caBundle"] = {"inline": to.ca_bundle}
        spec.update(connection)
        return {
            "apiVersion": "banlieue.io/v1alpha1",
            "kind": "Provider",
            "metadata": {"namespace": self.stack.namespace, "name": self.provider},
            "spec": {
                "providerClassRef": {"name": self.target.backend.name},
                "connection": spec,
                "allowedNamespaces": {"from": "All"},
                "capabilities": to.capabilities.to_api(),
            },
        }

    def provider_ready(self, timeout: float = READY_SECONDS) -> Object:
        """Wait until the Provider is Ready, and give it."""
        return self.kube.wait_for(
            "providers",
            self.provider,
            self.stack.namespace,
            until=is_ready,
            timeout=timeout,
            what="Ready",
        )

    def create(self, name: str, **spec: object) -> Object:
        """Apply a VirtualMachine."""
        return self.kube.apply(virtual_machine(self.namespace, name, **spec))

    def ready(self, name: str, timeout: float = READY_SECONDS, *, exact: bool = False) -> Object:
        """Wait until a VirtualMachine is Ready, and give it; `exact` as in `wait_until`."""
        return self.wait(name, is_ready, timeout, "Ready", exact=exact)

    def wait(
        self,
        name: str,
        until: Callable[[Object], object],
        timeout: float,
        what: str,
        *,
        exact: bool = False,
    ) -> Object:
        """Wait until a VirtualMachine is as asked for."""
        return self.kube.wait_for(
            *("virtualmachines", name, self.namespace),
            until=until,
            timeout=timeout,
            what=what,
            exact=exact,
        )

    def find(self, name: str) -> Object | None:
        """The VirtualMachine, None when it is gone."""
        return self.kube.find("virtualmachines", name, self.namespace)

    def delete(self, name: str, timeout: float = GONE_SECONDS) -> None:
        """Delete a VirtualMachine and wait until it is gone."""
        self.kube.delete("virtualmachines", name, self.namespace)
        self.gone(name, timeout)

    def gone(self, name: str, timeout: float = GONE_SECONDS) -> None:
        """Wait until a VirtualMachine and its machine object are gone."""
        self.kube.wait_gone("virtualmachines", name, self.namespace, timeout=timeout)
        self.kube.wait_gone(self.plural, name, self.namespace, timeout=timeout)

    @property
    def plural(self) -> str:
        """Plural of the backend's machine kind."""
        return self.target.backend.machine.plural

    def machine(self, name: str) -> Object:
        """The machine object of a VirtualMachine."""
        return self.kube.get(self.plural, name, self.namespace)

    def vms_of(self, name: str) -> Sequence[RawVm]:
        """The VMs on the backend whose name begins like a VirtualMachine's."""
        return [vm for vm in self.target.vms() if vm.name.startswith(f"{name}-")]

    def clear(self) -> None:
        """Delete every VirtualMachine, so that the next test finds nothing."""
        for obj in self.kube.list("virtualmachines", self.namespace):
            self.kube.delete("virtualmachines", obj["metadata"]["name"], self.namespace)
        for obj in self.kube.list("virtualmachines", self.namespace):
            self.gone(obj["metadata"]["name"])
