"""How a story is told: given YAML, when something is done, then that is seen.

    story.given(VM)
    story.ready("web")
    story.edit("web", desiredPowerState="PoweredOff")
    story.sees("web", lambda vm: vm["status"]["phase"] == "Stopped")

One namespace, one Provider, one class and one image are there before a story begins; their names
are the same on every backend.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any, Final

from banlieue.api.v1alpha1.provider import Capabilities
from banlieue.sdk.testing.conformance_target import ConformanceTarget, RawVm
from test.kit.backend_admin import BackendAdmin, admin_of
from test.kit.controlplane import ControlPlane
from test.kit.installed import READY_SECONDS, Registered
from test.kit.kube import Kube
from test.kit.running import VMS, Running
from test.kit.stack import Object, condition, is_ready, vm_image
from test.kit.waiting import wait_until
from test.kit.watched import Watched, watched

EVENTS: Final = "events.events.k8s.io"
STORAGE: Final = "standard"
NETWORK: Final = "lan"


@dataclass
class Story:
    """An installation at work, and the words that stories are told in."""

    watched: Watched
    running: Running
    admin: BackendAdmin

    @property
    def registered(self) -> Registered:
        """The installation."""
        return self.running.registered

    @property
    def kube(self) -> Kube:
        """A client with all rights."""
        return self.registered.kube

    @property
    def team(self) -> str:
        """The tenant's namespace."""
        return self.registered.namespace

    # Given, when

    def given(self, text: str) -> None:
        """Apply YAML, as a user does; objects without a namespace go to the tenant's."""
        self.kube.apply_yaml(dedent(text))

    def vm(self, name: str, namespace: str = "", **spec: Any) -> None:  # noqa: ANN401 - JSON
        """Apply a plain VirtualMachine."""
        self.kube.apply(
            {
                "apiVersion": "banlieue.io/v1alpha1",
                "kind": "VirtualMachine",
                "metadata": {"namespace": namespace or self.team, "name": name},
                "spec": {"classRef": {"name": "small"}, "imageRef": {"name": "ubuntu"}, **spec},
            }
        )

    def edit(self, name: str, **spec: Any) -> None:  # noqa: ANN401 - JSON
        """Edit fields of a VirtualMachine's spec."""
        self.kube.patch(VMS, name, {"spec": spec}, self.team)

    def edit_provider(self, **spec: Any) -> None:  # noqa: ANN401 - JSON
        """Edit fields of the Provider's spec."""
        self.kube.patch(
            "providers", self.registered.provider, {"spec": spec}, self.registered.stack.namespace
        )

    # Then

    def ready(self, *names: str, timeout: float = READY_SECONDS) -> None:
        """`kubectl wait --for=condition=Ready`."""
        for name in names:
            self.registered.ready(name, timeout)

    def sees(
        self,
        name: str,
        what: Callable[[Object], object],
        timeout: float = READY_SECONDS,
        *,
        told: str = "as the story goes",
    ) -> Object:
        """Wait until a VirtualMachine is so, and give it."""
        return self.registered.wait(name, what, timeout, told)

    def condition(self, name: str, kind: str, status: str, reason: str) -> str:
        """Wait until a condition is so, and give its message."""
        self.sees(name, lambda vm: condition(vm, kind) == (status, reason), told=f"{kind} {reason}")
        found = self.kube.get(VMS, name, self.team)["status"]["conditions"]
        return next(str(it["message"]) for it in found if it["type"] == kind)

    def status(self, name: str) -> Any:  # noqa: ANN401 - JSON
        """The status of a VirtualMachine."""
        return self.kube.get(VMS, name, self.team)["status"]

    def backend_vm(self, name: str) -> RawVm:
        """The one VM a VirtualMachine has on the backend."""
        (found,) = self.registered.vms_of(name)
        return found

    def backend_vms(self) -> Sequence[RawVm]:
        """All VMs on the backend."""
        return self.registered.target.vms()

    def events(self, name: str) -> list[str]:
        """Reasons of the events about a VirtualMachine, each as often as it was said."""
        uid = self.kube.get(VMS, name, self.team)["metadata"]["uid"]
        found: list[str] = []
        for event in self.kube.list(EVENTS, self.team):
            if event["regarding"].get("uid") == uid:
                times = (event.get("series") or {}).get("count", 1)
                found += [event["reason"]] * times
        return found

    def hears(self, name: str, *reasons: str) -> None:
        """Wait for the events about a VirtualMachine: they are written after the status."""
        wanted = set(reasons)
        wait_until(lambda: wanted <= set(self.events(name)), READY_SECONDS, f"events {reasons}")

    def provider(self) -> Object:
        """The Provider."""
        return self.kube.get("providers", self.registered.provider, self.registered.stack.namespace)

    def provider_says(self, reason: str) -> None:
        """Wait until the Provider's Ready has that reason."""
        wait_until(lambda: condition(self.provider(), "Ready")[1] == reason, READY_SECONDS, reason)

    def image(self, name: str, what: Callable[[Object], object]) -> Object:
        """Wait until the Provider's row about a VMImage is so, and give it."""

        def row() -> Object | None:
            status = self.kube.get("vmimages", name).get("status") or {}
            found: list[Object] = status.get("perProvider") or []
            return next((it for it in found if what(it)), None)

        return wait_until(row, READY_SECONDS, f"image {name}", retry_on=(KeyError,))

    def ended(self) -> None:
        """Leave the stage as it was found."""
        self.registered.clear()

    def all_ready(self, names: Sequence[str]) -> bool:
        """Whether all of them are Ready now."""
        found = {it["metadata"]["name"]: it for it in self.kube.list(VMS, self.team)}
        return all(name in found and is_ready(found[name]) for name in names)


@contextmanager
def told_on(
    target: ConformanceTarget, control_plane: ControlPlane, directory: Path
) -> Iterator[Story]:
    """A stage for stories on a backend; checkers run beside them and fail it at the end."""
    with watched(control_plane, directory, target) as found:
        registered = found.registered
        registered.kube.apply(_plain_provider(registered))
        small = registered.kube.get("vmclasses", "small")
        registered.kube.patch("vmclasses", "small", {"spec": _plain_class(small["spec"])})
        yield Story(found, Running.start(registered), admin_of(target))


def joined_by(story: Story, target: ConformanceTarget, provider: str) -> Registered:
    """Have a second backend at work in a story's installation, with an image both can use."""
    other = Registered(story.registered.stack, target, provider)
    kube = story.kube
    kube.apply(other.provider_class_object())
    other.apply_credentials()
    kube.apply(_plain_provider(other))
    both = (story.registered, other)
    sources = {it.target.backend.name: it.target.image_source().ref for it in both}
    kube.apply(vm_image(sources))
    role = other.stack.provider(target.backend.name)
    role.start(ready=False)
    wait_until(role.ready, READY_SECONDS, f"{role.name} to be ready")
    other.provider_ready()
    return other


def _plain_provider(registered: Registered) -> Object:
    """The Provider, with the names of classes that stories use."""
    made = registered.provider_object()
    declared: Capabilities = registered.target.connection().capabilities
    made["spec"]["capabilities"] = {
        "storageClasses": [{"name": STORAGE, "target": dict(declared.storage_classes[0].target)}],
        "networkClasses": [{"name": NETWORK, "target": dict(declared.network_classes[0].target)}],
    }
    return made


def _plain_class(spec: Object) -> Object:
    disks = [{"name": "root", "storageClass": STORAGE}]
    return {
        "hardware": {**spec["hardware"], "disks": disks},
        "network": {"interfaces": [{"name": "eth0", "networkClass": NETWORK}]},
    }
