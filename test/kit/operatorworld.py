"""The operator role over a memory API: what a controller-manager and pods do, tests do.

    world = OperatorWorld()
    world.add_class()
    key = world.add_provider("prod")
    await world.settle()
    assert world.workload(key)["name"] == "banlieue-provider-this-prod"

`crash_at(n)` ends the operator at its n-th write, as in `ControllerWorld`.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from banlieue.api import names
from banlieue.api.meta import Resource
from banlieue.api.resources import (
    CRDS,
    DEPLOYMENTS,
    NAMESPACES,
    PROVIDER_CLASSES,
    PROVIDERS,
)
from banlieue.operator.app import OperatorRole, Settings
from banlieue.operator.objects import KINDS, maker
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.reconcile import Change, Context, Controller
from test.kit.controllerworld import SYSTEM, ControllerWorld

IMAGE = "registry.example.com/banlieue:v1"
MACHINES = Resource("test.banlieue.io", "v1alpha1", "ThisMachine", "thismachines")

Made = set[tuple[str, Key]]


class OperatorWorld(ControllerWorld):
    """A cluster in which nothing but the operator acts; see the module's text."""

    operator: OperatorRole

    def __init__(self, settings: Settings | None = None, *, seed: int = 0) -> None:
        self.settings = settings or Settings(image=IMAGE)
        super().__init__(seed=seed)
        for name in (SYSTEM, "elsewhere"):
            self.api.put(NAMESPACES, {"metadata": {"name": name}})

    def _begin(self, ctx: Context) -> Iterable[Controller]:
        self.operator = OperatorRole(ctx, self.settings)
        return self.operator.controllers()

    def deliver(self, change: Change) -> None:
        """Tell a change again, as a watch that was behind does."""
        for controller, watch in list(self._engine.watches):
            if watch.resource == change.resource:
                self._ask(controller, watch, change)

    # The platform.

    def add_backend(self, name: str = "this", *, called: str = "", **spec: object) -> None:
        """A ProviderClass."""
        machine = {
            "apiGroup": MACHINES.group,
            "version": MACHINES.version,
            "kind": f"{name.title()}Machine".replace("-", ""),
        }
        self.api.put(
            PROVIDER_CLASSES,
            {
                "metadata": {"name": called or name},
                "spec": {"backend": name, "machine": machine, **spec},
            },
        )

    def edit_backend(self, name: str = "this", **spec: object) -> None:
        self.api.edit(PROVIDER_CLASSES, Key("", name), lambda obj: obj["spec"].update(spec))

    def register(
        self, name: str = "prod", namespace: str = SYSTEM, *, of: str = "this", **spec: object
    ) -> Key:
        """A Provider."""
        key = Key(namespace, name)
        self.api.put(
            PROVIDERS,
            {
                "metadata": {"namespace": namespace, "name": name},
                "spec": {
                    "providerClassRef": {"name": of},
                    "connection": {
                        "endpoint": "https://vcenter.example.com/sdk",
                        "credentialsRef": {"name": f"{name}-creds"},
                    },
                    **spec,
                },
            },
        )
        return key

    def edit_provider(self, key: Key, **spec: object) -> None:
        self.api.edit(PROVIDERS, key, lambda obj: obj["spec"].update(spec))

    def use(self, key: Key, *, used: bool = True) -> None:
        """Do as the provider's process does before its first machine, and after its last."""

        def change(obj: Obj) -> None:
            held = obj["metadata"].setdefault("finalizers", [])
            if used:
                held.append(names.FINALIZER_PROVIDER_IN_USE)
            else:
                held.remove(names.FINALIZER_PROVIDER_IN_USE)

        self.api.edit(PROVIDERS, key, change)

    def add_machine(self, name: str, provider: Key) -> None:
        """A machine object that refers to a Provider."""
        names_ = {"kind": MACHINES.kind, "plural": MACHINES.plural}
        spec = {
            "group": MACHINES.group,
            "names": names_,
            "versions": [{"name": MACHINES.version, "served": True, "storage": True}],
        }
        labels = {names.LABEL_MACHINE_KIND: "true"}
        self.api.put(
            CRDS, {"metadata": {"name": MACHINES.crd_name, "labels": labels}, "spec": spec}
        )
        ref = {"namespace": provider.namespace, "name": provider.name}
        meta = {"namespace": "tenant", "name": name}
        self.api.put(MACHINES, {"metadata": meta, "spec": {"providerRef": ref}})

    # What there is.

    def made(self, provider: Key | None = None) -> Made:
        """Kind and key of everything the operator made, for one Provider or at all."""
        return {
            (resource.kind, Key.of(obj))
            for resource in KINDS
            for obj in self.api.peek_all(resource)
            if maker(obj) is not None and provider in {None, maker(obj)}
        }

    def object(self, resource: Resource, provider: Key) -> Obj:
        """The one object of a kind that was made for a Provider."""
        (found,) = [it for it in self.api.peek_all(resource) if maker(it) == provider]
        return found

    def deployment(self, provider: Key) -> Obj:
        return self.object(DEPLOYMENTS, provider)

    def container(self, provider: Key) -> dict[str, Any]:
        """The container of a Provider's Deployment."""
        pod = self.deployment(provider)["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        found: dict[str, Any] = container
        return found

    def provider(self, key: Key) -> Obj | None:
        return self.api.peek(PROVIDERS, key)

    def workload(self, key: Key) -> dict[str, Any]:
        """What `status.workload` says."""
        found = ((self.provider(key) or {}).get("status") or {}).get("workload") or {}
        return dict(found)

    def pod_is_ready(self, key: Key) -> None:
        """Let the Deployment have its pod, as it is now."""
        obj = self.deployment(key)

        def change(it: Obj) -> None:
            it["status"] = {
                "observedGeneration": it["metadata"]["generation"],
                "readyReplicas": 1,
                "updatedReplicas": 1,
            }

        self.api.edit(DEPLOYMENTS, Key.of(obj), change)

    def writes(self) -> Counter[str]:
        """How often the operator wrote what, as `verb kind[/status]`."""
        found: Counter[str] = Counter()
        for call in self.api.writes():
            sub = f"/{call.subresource}" if call.subresource else ""
            found[f"{call.verb} {call.resource.kind}{sub}"] += 1
        return found


FIVE = ("ClusterRoleBinding", "Deployment", "Role", "RoleBinding", "ServiceAccount")
NAME = "banlieue-provider-this-prod"


async def served(**spec: object) -> tuple[OperatorWorld, Key]:
    """A world with one Provider that is served."""
    world = OperatorWorld()
    world.add_backend()
    key = world.register(**spec)  # type: ignore[arg-type]  # a spec
    await world.settle()
    return world, key


def kinds(world: OperatorWorld, key: Key | None = None) -> list[str]:
    """Kinds of what was made, sorted."""
    return sorted(kind for kind, _ in world.made(key))
