"""Grants: just the Secrets of machines to come, for their Provider's account, and no longer."""

from datetime import timedelta
from typing import Any

import pytest

from banlieue.api import names
from banlieue.api.meta import Resource, format_time
from banlieue.api.resources import (
    CAPI_MACHINES,
    NAMESPACES,
    PROVIDER_CLASSES,
    PROVIDERS,
    ROLE_BINDINGS,
    ROLES,
    VIRTUAL_MACHINES,
)
from banlieue.bootstrap import leftovers
from banlieue.operator import grants
from banlieue.sdk.kube import Key, Obj
from test.kit.controllerworld import SYSTEM
from test.kit.operatorworld import MACHINES, OperatorWorld

TENANT = "team-a"


class World(OperatorWorld):
    """With a tenant, a class, and Providers that serve all namespaces."""

    def __init__(self, *providers: str) -> None:
        super().__init__()
        self.api.put(NAMESPACES, {"metadata": {"name": TENANT}})
        self.add_backend()
        for name in providers or ("prod",):
            self.register(name, allowedNamespaces={"from": "All"})

    def place(self, name: str, *, on: str = "prod", secret: str = "", **spec: object) -> None:
        """A VirtualMachine that was placed, whose machine object is not made yet."""
        self.api.put(
            VIRTUAL_MACHINES,
            {
                "metadata": {"namespace": TENANT, "name": name},
                "spec": {"userData": {"secretRef": {"name": secret or f"{name}-data"}}, **spec},
                "status": {
                    "scheduled": {
                        "providerNamespace": SYSTEM,
                        "providerName": on,
                        "scheduledAt": format_time(self.clock.now()),
                    },
                    "infrastructureRef": self.reference(name),
                },
            },
        )

    def reference(self, name: str) -> dict[str, str]:
        return {
            "apiGroup": MACHINES.group,
            "kind": MACHINES.kind,
            "name": name,
            "namespace": TENANT,
        }

    def infra(self, name: str, *, on: str = "prod", **status: object) -> None:
        self.api.put(
            MACHINES,
            {
                "metadata": {
                    "namespace": TENANT,
                    "name": name,
                    "creationTimestamp": format_time(self.clock.now()),
                },
                "spec": {"providerRef": {"namespace": SYSTEM, "name": on}},
                "status": status,
            },
        )

    def provisioned(self, name: str) -> None:
        def change(obj: Obj) -> None:
            obj["status"] = {"initialization": {"provisioned": True}}

        self.api.edit(MACHINES, Key(TENANT, name), change)

    async def soon(self) -> None:
        await self.settle(seconds=5)

    def granted(self, provider: str = "prod") -> set[str]:
        """What the account of a Provider may read in the tenant's namespace."""
        account = f"banlieue-provider-this-{provider}"
        found: set[str] = set()
        for binding in self.api.peek_all(ROLE_BINDINGS):
            meta = binding["metadata"]
            who = [(it["namespace"], it["name"]) for it in binding["subjects"]]
            if meta["namespace"] != TENANT or (SYSTEM, account) not in who:
                continue
            role = self.api.peek(ROLES, Key(TENANT, binding["roleRef"]["name"]))
            for rule in (role or {}).get("rules", ()):
                assert (rule["apiGroups"], rule["resources"]) == ([""], ["secrets"])
                assert rule["verbs"] == ["get"]
                found |= set(rule["resourceNames"])
        return found

    def roles(self) -> list[Obj]:
        return [it for it in self.api.peek_all(ROLES) if it["metadata"]["namespace"] == TENANT]


@pytest.fixture
async def world() -> World:
    world = World("prod", "other")
    await world.soon()
    return world


async def test_a_vm_that_was_placed_has_its_user_data_granted_before_its_object_is_made(
    world: World,
) -> None:
    world.place("db", networkData={"secretRef": {"name": "net"}})
    await world.soon()
    assert world.granted() == {"db-data", "net"}
    assert world.granted("other") == set()


@pytest.mark.security("2.2")
async def test_the_grant_ends_when_the_vm_was_seen(world: World) -> None:
    world.place("db")
    world.place("web")
    world.infra("db")
    world.infra("web")
    await world.soon()
    assert world.granted() == {"db-data", "web-data"}
    world.provisioned("db")
    await world.soon()
    assert world.granted() == {"web-data"}


async def test_a_secret_two_machines_share_stays_until_both_were_seen(world: World) -> None:
    for name in ("a", "b"):
        world.place(name, secret="shared")
        world.infra(name)
    await world.soon()
    world.provisioned("a")
    await world.soon()
    assert world.granted() == {"shared"}
    world.provisioned("b")
    await world.soon()
    assert world.granted() == set()


@pytest.mark.security("2.5")
async def test_a_machine_that_never_gets_done_keeps_nothing_after_a_day(world: World) -> None:
    world.place("db")
    world.infra("db")
    await world.soon()
    assert world.granted() == {"db-data"}
    await world.settle(seconds=names.GRANT_SECONDS + 10)
    assert world.granted() == set()


@pytest.mark.security("2.5")
async def test_its_user_may_renew_it_and_for_a_day_only(world: World) -> None:
    world.place("db")
    world.infra("db")
    await world.settle(seconds=names.GRANT_SECONDS + 10)

    def renew(ahead: timedelta) -> None:
        text = format_time(world.clock.now() + ahead)

        def change(obj: Obj) -> None:
            obj["metadata"]["annotations"] = {names.ANNOTATION_RENEW_GRANT: text}

        world.api.edit(VIRTUAL_MACHINES, Key(TENANT, "db"), change)

    renew(timedelta(days=3650))
    await world.soon()
    assert world.granted() == set(), "a time to come would be a grant for years"
    renew(timedelta(minutes=1))
    await world.soon()
    assert world.granted() == {"db-data"}
    await world.settle(seconds=names.GRANT_SECONDS + 120)
    assert world.granted() == set()


async def test_a_machine_object_on_another_provider_is_that_ones(world: World) -> None:
    world.place("db", on="prod")
    world.infra("db", on="other")
    await world.soon()
    assert world.granted() == set()
    assert world.granted("other") == {"db-data"}


async def test_a_move_grants_to_the_provider_it_goes_to(world: World) -> None:
    world.place("db")
    world.infra("db")
    world.provisioned("db")

    def move(obj: Obj) -> None:
        obj["status"]["incomingRef"] = world.reference("db-m1")
        obj["status"]["move"] = {
            "providerNamespace": SYSTEM,
            "providerName": "other",
            "epoch": 1,
            "startedAt": format_time(world.clock.now()),
        }

    world.api.edit(VIRTUAL_MACHINES, Key(TENANT, "db"), move)
    await world.soon()
    assert (world.granted(), world.granted("other")) == (set(), {"db-data"})


async def test_a_machine_made_anew_is_granted_anew(world: World) -> None:
    world.place("db")
    world.infra("db")
    world.provisioned("db")
    await world.settle(seconds=names.GRANT_SECONDS * 2)
    world.api.drop(MACHINES, Key(TENANT, "db"))
    world.infra("db")
    await world.soon()
    assert world.granted() == {"db-data"}


async def test_a_deleted_vm_needs_nothing(world: World) -> None:
    world.place("db")
    await world.soon()
    world.api.drop(VIRTUAL_MACHINES, Key(TENANT, "db"))
    await world.soon()
    assert world.granted() == set()


async def test_a_namespace_the_provider_does_not_serve_is_granted_nothing(world: World) -> None:
    world.edit_provider(Key(SYSTEM, "prod"), allowedNamespaces={"from": "Same"})
    world.place("db")
    await world.soon()
    assert world.granted() == set()
    world.edit_provider(Key(SYSTEM, "prod"), allowedNamespaces={"from": "All"})
    await world.soon()
    assert world.granted() == {"db-data"}


async def test_the_account_is_followed_where_it_goes(world: World) -> None:
    world.place("db")
    await world.soon()
    world.edit_backend(workloadNamespace="elsewhere")
    await world.soon()
    subjects = [
        (it["namespace"], it["name"])
        for binding in world.api.peek_all(ROLE_BINDINGS)
        if binding["metadata"]["namespace"] == TENANT
        for it in binding["subjects"]
    ]
    assert subjects == [("elsewhere", "banlieue-provider-this-prod")]


async def test_what_somebody_adds_to_a_grant_is_taken_back(world: World) -> None:
    world.place("db")
    await world.soon()
    (role,) = world.roles()

    def widen(obj: Obj) -> None:
        obj["rules"] = [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]

    world.api.edit(ROLES, Key.of(role), widen)
    await world.soon()
    assert world.granted() == {"db-data"}
    world.api.drop(ROLE_BINDINGS, Key.of(role))
    await world.soon()
    assert world.granted() == {"db-data"}


async def test_a_binding_to_another_role_is_made_anew(world: World) -> None:
    world.place("db")
    await world.soon()
    (role,) = world.roles()

    def turn(obj: Obj) -> None:
        obj["roleRef"] = {**obj["roleRef"], "kind": "ClusterRole", "name": "admin"}

    world.api.edit(ROLE_BINDINGS, Key.of(role), turn)
    await world.soon()
    binding = world.api.peek(ROLE_BINDINGS, Key.of(role)) or {}
    assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) == ("Role", Key.of(role).name)
    assert world.granted() == {"db-data"}


async def test_a_class_that_cannot_be_read_holds_up_nobody(world: World) -> None:
    world.api.put(
        PROVIDER_CLASSES, {"metadata": {"name": "a-broken-one"}, "spec": {"backend": "x"}}
    )
    world.place("db")
    await world.soon()
    assert world.granted() == {"db-data"}


async def test_a_role_of_that_name_that_is_none_of_ours_is_left_alone(world: World) -> None:
    name = names.grant_name(SYSTEM, "prod", 0)
    foreign = {"metadata": {"namespace": TENANT, "name": name}, "rules": []}
    world.api.put(ROLES, foreign)
    standing = world.api.peek(ROLES, Key(TENANT, name))
    world.place("db")
    await world.soon()
    assert world.granted() == set()
    assert world.api.peek(ROLES, Key(TENANT, name)) == standing


async def test_an_uninstall_finds_the_grants(world: World) -> None:
    world.place("db")
    await world.soon()
    made = [*world.roles(), *world.api.peek_all(ROLE_BINDINGS)]
    ours = [it for it in made if it["metadata"]["namespace"] == TENANT]
    assert len(ours) == 2
    key, _, value = leftovers.SELECTOR.partition("=")
    assert [it["metadata"]["labels"][key] for it in ours] == [value, value]


async def test_roles_that_grant_nothing_go_after_a_while(world: World) -> None:
    world.place("db")
    world.infra("db")
    await world.soon()
    world.provisioned("db")
    await world.soon()
    assert [it["rules"] for it in world.roles()] == [[]]
    await world.settle(seconds=3600)
    assert world.roles() == []
    assert not [
        b for b in world.api.peek_all(ROLE_BINDINGS) if b["metadata"]["namespace"] == TENANT
    ]


async def test_vms_made_one_by_one_cost_one_write_each(world: World) -> None:
    world.place("first")
    await world.soon()
    before = world.writes()
    for number in range(5):
        world.place(f"vm-{number}")
        await world.soon()
    assert world.writes() - before == {"json_patch Role": 5}
    assert len(world.granted()) == 6


async def test_a_new_process_grants_the_same_and_writes_nothing(world: World) -> None:
    world.place("db")
    world.infra("db")
    world.place("seen")
    world.infra("seen")
    world.provisioned("seen")
    await world.soon()
    before = world.writes()
    world.restart()
    await world.soon()
    assert world.granted() == {"db-data"}
    assert world.writes() == before


@pytest.mark.parametrize("lost", [True, False], ids=["reply lost", "never sent"])
@pytest.mark.parametrize("write", range(1, 4))
async def test_a_process_that_ends_at_any_write_leaves_no_more_than_is_asked(
    world: World, write: int, *, lost: bool
) -> None:
    world.crash_at(write, before_reply=lost)
    world.place("db")
    world.infra("db")
    await world.soon()
    await world.settle(seconds=60)
    assert world.granted() == {"db-data"}
    world.provisioned("db")
    await world.settle(seconds=60)
    assert world.granted() == set()


async def test_bootstrap_data_of_cluster_api_is_granted(world: World) -> None:
    world.api.put(
        CAPI_MACHINES,
        {
            "metadata": {"namespace": TENANT, "name": "node-1"},
            "spec": {
                "bootstrap": {"dataSecretName": "node-1-bootstrap"},
                "infrastructureRef": world.reference("node-1-infra"),
            },
        },
    )
    await world.soon()
    assert world.granted() == set(), "nobody knows where it is to be"
    world.infra("node-1-infra")
    await world.soon()
    assert world.granted() == {"node-1-bootstrap"}
    world.provisioned("node-1-infra")
    await world.soon()
    assert world.granted() == set()


async def test_a_kind_that_cannot_be_read_holds_up_nobody_else(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    unread = Resource("test.banlieue.io", "v1alpha1", "ThatMachine", "thatmachines")
    synced = world.api.cache.synced
    monkeypatch.setattr(
        world.api.cache, "synced", lambda *kinds: unread not in kinds and synced(*kinds)
    )
    world.add_backend("that")
    world.register("far", of="that", allowedNamespaces={"from": "All"})
    world.place("db")
    world.place("else", on="far")
    reference = {**world.reference("else"), "kind": unread.kind}

    def change(obj: Obj) -> None:
        obj["status"]["infrastructureRef"] = reference

    world.api.edit(VIRTUAL_MACHINES, Key(TENANT, "else"), change)
    await world.soon()
    assert world.granted() == set(), "it may be read in a moment"
    await world.settle(seconds=40)
    assert world.granted() == {"db-data"}


async def test_a_provider_that_goes_is_granted_nothing(world: World) -> None:
    world.place("db")
    await world.soon()
    world.use(Key(SYSTEM, "prod"))
    world.api.drop(PROVIDERS, Key(SYSTEM, "prod"))
    await world.soon()
    assert world.granted() == set()


# Pure


@pytest.mark.security("2.2")
def test_what_a_provider_may_write_of_a_machine_changes_no_name_and_no_time() -> None:
    made = grants.machine(
        {
            "metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"providerRef": {"namespace": "a", "name": "b"}},
        }
    )
    told = grants.machine(
        {
            "metadata": {
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "finalizers": ["x"],
            },
            "spec": {
                "providerRef": {"namespace": "a", "name": "b"},
                "instance": {"uuid": "u"},
                "providerID": "x://u",
            },
            "status": {"conditions": [], "failures": {"count": 99}, "task": {"id": "never"}},
        }
    )
    assert made == told


@pytest.mark.parametrize("text", ["", "soon", "2026-13-01", "true"])
def test_a_renewal_that_is_no_time_renews_nothing(text: str) -> None:
    obj: dict[str, Any] = {
        "metadata": {"annotations": {names.ANNOTATION_RENEW_GRANT: text}},
        "spec": {"userData": {"secretRef": {"name": "s"}}},
    }
    owner = grants.virtual_machine(obj)
    assert owner is not None
    assert owner.renewed is None


def test_names_stay_in_the_role_that_holds_them() -> None:
    held = {0: frozenset("abc"), 2: frozenset("de")}
    assert grants.allot(frozenset("bcdfg"), held, most=3) == {
        0: frozenset("bcf"),
        1: frozenset("g"),
        2: frozenset("d"),
    }
    assert grants.allot(frozenset(), held) == {0: frozenset(), 2: frozenset()}


def test_many_names_are_spread_over_several_roles() -> None:
    wanted = frozenset(f"secret-{number}" for number in range(1001))
    alloted = grants.allot(wanted, {})
    assert frozenset().union(*alloted.values()) == wanted
    assert max(map(len, alloted.values())) <= grants.MOST
    assert len(alloted) == 6
