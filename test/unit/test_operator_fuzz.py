"""Whatever people do, in whatever order, while the operator dies and requests fail: in the end each
Provider has its objects and nobody else's, and a Provider that is gone has left nothing.
"""

from collections.abc import Callable
from random import Random

import pytest

from banlieue.api import names
from banlieue.api.resources import DEPLOYMENTS, NAMESPACES, PROVIDER_CLASSES, PROVIDERS
from banlieue.operator.objects import KINDS, maker
from banlieue.sdk.kube import Key, Obj, Unavailable
from banlieue.sdk.reconcile import Change
from banlieue.sdk.testing.memory_api import Call, Moment
from test.kit.controllerworld import SYSTEM
from test.kit.operatorworld import OperatorWorld

PLACES = (SYSTEM, "elsewhere")
STEPS = 40
FIVE = ["ClusterRoleBinding", "Deployment", "Role", "RoleBinding", "ServiceAccount"]


class Chaos:
    """Acts at random on a world, as users, admins, the garbage collector and fate do."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.world = OperatorWorld(seed=seed)
        self.failing = 0.0
        self.used: set[Key] = set()
        self.late: list[Change] | None = None
        self.world.api.intercept(self._fail)
        self.world.api.subscribe(self._note)
        self.world.add_backend("this")
        self.world.add_backend("this", called="next", image={"tag": "v2"})

    def _fail(self, call: Call, moment: Moment) -> None:
        if self.rng.random() < self.failing:
            raise Unavailable(503, f"{call.verb} {moment.value}")

    def _note(self, change: Change) -> None:
        if self.late is not None:
            self.late.append(change)

    async def run(self) -> None:
        actions: tuple[Callable[[], None], ...] = (
            self.register,
            self.register,
            self.delete,
            self.repoint,
            self.pause,
            self.use,
            self.move,
            self.drop_class,
            self.drift,
            self.collect,
            self.crash,
            self.lag,
            self.force,
        )
        for _ in range(STEPS):
            self.failing = self.rng.choice([0.0, 0.0, 0.2])
            self.rng.choice(actions)()
            await self.world.settle(seconds=self.rng.choice([0, 1, 60]))
        self.failing = 0.0
        self.follow()
        await self.rest()

    async def rest(self) -> None:
        """Everything is as it should be for ever from now on."""
        self.world.crash_at(10**9)
        for key in list(self.used):
            self._unuse(key)
        for name in ("this", "next"):
            if self.world.api.peek(PROVIDER_CLASSES, Key("", name)) is None:
                self.world.add_backend("this", called=name)
        for obj in self.world.api.peek_all(PROVIDERS):
            self.world.edit_provider(Key.of(obj), paused=False)
        await self.world.settle(seconds=600)
        while self.world.api.collect_garbage():
            await self.world.settle(seconds=600)
        await self.world.settle(seconds=600)

    # What happens

    def any(self) -> Key | None:
        found = [Key.of(it) for it in self.world.api.peek_all(PROVIDERS)]
        return self.rng.choice(found) if found else None

    def register(self) -> None:
        name, namespace = self.rng.choice("abc"), self.rng.choice(PLACES)
        if self.world.api.peek(PROVIDERS, Key(namespace, name)) is None:
            self.used.discard(Key(namespace, name))
            self.world.register(name, namespace)

    def delete(self) -> None:
        if key := self.any():
            self.world.api.drop(PROVIDERS, key)

    def force(self) -> None:
        if (key := self.any()) and self.rng.random() < 0.3:
            self.used.discard(key)
            self.world.api.drop(PROVIDERS, key, force=True)

    def repoint(self) -> None:
        if key := self.any():
            name = self.rng.choice(["this", "next", "absent"])
            self.world.edit_provider(key, providerClassRef={"name": name})
            if name == "absent":
                self.world.edit_provider(key, providerClassRef={"name": "this"})

    def pause(self) -> None:
        if key := self.any():
            self.world.edit_provider(key, paused=self.rng.random() < 0.5)

    def use(self) -> None:
        key = self.any()
        if key in self.used:
            self._unuse(key)
        elif key and not self._deleting(key):
            self.used.add(key)
            self.world.use(key)

    def _unuse(self, key: Key) -> None:
        self.used.discard(key)
        obj = self.world.api.peek(PROVIDERS, key)
        if obj and names.FINALIZER_PROVIDER_IN_USE in obj["metadata"].get("finalizers", ()):
            self.world.use(key, used=False)

    def _deleting(self, key: Key) -> bool:
        obj = self.world.api.peek(PROVIDERS, key)
        return bool(obj and obj["metadata"].get("deletionTimestamp"))

    def move(self) -> None:
        if self.world.api.peek(PROVIDER_CLASSES, Key("", "this")):
            where = self.rng.choice([*PLACES, None])
            policy: Obj | None = self.rng.choice([{}, None])
            self.world.edit_backend(workloadNamespace=where, networkPolicy=policy)

    def drop_class(self) -> None:
        if self.world.api.peek(PROVIDER_CLASSES, Key("", "this")):
            self.world.api.drop(PROVIDER_CLASSES, Key("", "this"))
        else:
            self.world.add_backend("this")

    def drift(self) -> None:
        resource = self.rng.choice(KINDS)
        found = self.world.api.peek_all(resource)
        if not found:
            return
        obj = self.rng.choice(found)
        if self.rng.random() < 0.5:
            self.world.api.drop(resource, Key.of(obj))
        else:
            self.world.api.edit(
                resource, Key.of(obj), lambda it: it["metadata"].pop("labels", None)
            )

    def collect(self) -> None:
        self.world.api.collect_garbage()

    def crash(self) -> None:
        self.world.crash_at(self.rng.randint(1, 8), before_reply=self.rng.random() < 0.5)

    def lag(self) -> None:
        if self.late is None:
            self.late = []
            self.world.api.cache.hold()
        else:
            self.follow()

    def follow(self) -> None:
        """The events of a watch that lagged behind come with what they say."""
        late, self.late = self.late or [], None
        self.world.api.cache.follow()
        for change in late:
            self.world.deliver(change)


def namespaces_in_use(world: OperatorWorld) -> set[str]:
    return {
        obj["metadata"]["name"]
        for obj in world.api.peek_all(NAMESPACES)
        if names.LABEL_IN_USE in (obj["metadata"].get("labels") or {})
    }


def owner_uid(obj: Obj) -> str:
    owners = obj["metadata"].get("ownerReferences") or [{}]
    return str(owners[0].get("uid", ""))


@pytest.mark.parametrize("seed", range(30))
async def test_it_comes_to_the_right_end(seed: int) -> None:
    chaos = Chaos(seed)
    await chaos.run()
    world = chaos.world
    there = {Key.of(it): it for it in world.api.peek_all(PROVIDERS)}
    makers = {maker(it) for kind in KINDS for it in world.api.peek_all(kind)}
    assert makers <= set(there), "nothing is left of a Provider that is gone"
    for key, obj in there.items():
        assert not obj["metadata"].get("deletionTimestamp"), "nothing holds it any more"
        made = sorted(kind for kind, _ in world.made(key))
        assert [kind for kind in made if kind != "NetworkPolicy"] == FIVE
        deployment = world.object(DEPLOYMENTS, key)
        assert world.workload(key)["namespace"] == deployment["metadata"]["namespace"]
        if deployment["metadata"]["namespace"] == key.namespace:
            assert owner_uid(deployment) == obj["metadata"]["uid"]
    assert namespaces_in_use(world) == set()
