import base64
import json
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import pytest

from banlieue.api import names
from banlieue.api.reasons import EventReason, Reason
from banlieue.api.resources import (
    CONFIG_MAPS,
    LEASES,
    NAMESPACES,
    PROVIDER_CLASSES,
    PROVIDERS,
    SECRETS,
)
from banlieue.api.types import PowerState
from banlieue.api.v1alpha1.provider import Provider
from banlieue.sdk.driver import (
    About,
    Capacity,
    Changes,
    FailureDomain,
    MachineState,
    MissingPrivilege,
)
from banlieue.sdk.errors import NeedsOperator, Transient, Unreachable
from banlieue.sdk.identity import Mark, Owner
from banlieue.sdk.kube import Forbidden, Key, Obj
from banlieue.sdk.provider.in_use import FINALIZER, ensure_in_use
from banlieue.sdk.provider.leases import ProviderLeases
from banlieue.sdk.provider.reconciler import CONTROLLER, ProviderReconciler
from banlieue.sdk.provider.sessions import ProviderSessions
from banlieue.sdk.reconcile import Change, Request, Result
from banlieue.sdk.testing.fakes import (
    FakeClock,
    FakeLease,
    FakeLeases,
    InlinePool,
    MemoryQueue,
    MemoryRecorder,
    context_for,
)
from banlieue.sdk.testing.memory_api import Call, MemoryApi, Moment
from banlieue.sdk.testing.scripted import MACHINES, ScriptedEndpoint, scripted_backend

KEY = Key("ns", "prod")
CREDENTIALS = Key("ns", "creds")
PASSWORD = "right"


def _no_thread(*_arguments: object, **_options: object) -> None:
    """The feed is not listened to; tests call what it would."""


class Bench:
    """A Provider, its class and Secret in a memory API, and a reconciler for a scripted backend."""

    def __init__(self) -> None:
        self.api = MemoryApi()
        self.clock = FakeClock()
        self.recorder = MemoryRecorder()
        self.queue = MemoryQueue()
        self.endpoint = ScriptedEndpoint()
        self.backend = scripted_backend(self.endpoint)
        self.candidates = FakeLeases()
        self.set_password(PASSWORD)
        self.api.put(PROVIDER_CLASSES, {"metadata": {"name": "c"}, "spec": _class("scripted")})
        self.api.put(PROVIDERS, {"metadata": _meta("prod"), "spec": _spec()})
        self.api.put(NAMESPACES, {"metadata": {"name": "kube-system", "uid": "cluster-1"}})
        self.api.put(
            CONFIG_MAPS,
            {
                "metadata": {"namespace": "system", "name": names.INSTALLATION_CONFIG_MAP},
                "data": {"id": "inst", "clusterUID": "cluster-1"},
            },
        )
        self.start()

    def start(self, only: Key | None = None) -> None:
        """A new process over the same API and backend."""
        context = context_for(self.api, clock=self.clock, recorder=self.recorder, queue=self.queue)
        self.leases = ProviderLeases(
            self.candidates, lambda key: self.queue.enqueue(CONTROLLER, Request(key))
        )
        self.sessions = ProviderSessions(
            self.backend,
            clock=self.clock,
            rng=Random(1),
            make_pool=lambda _key: InlinePool(),
            leased=self.leases.held,
            start=_no_thread,
        )
        self.reconciler = ProviderReconciler(
            context,
            self.backend,
            self.sessions,
            self.leases,
            installation_namespace="system",
            only=only,
        )

    async def stop(self) -> None:
        await self.sessions.close()
        await self.leases.close()

    def set_password(self, password: str) -> None:
        data = {"password": base64.b64encode(password.encode()).decode()}
        self.api.put(SECRETS, {"metadata": _meta("creds"), "data": data})

    def edit(self, **spec: Any) -> None:  # noqa: ANN401 - parts of a spec
        self.api.edit(PROVIDERS, KEY, lambda obj: obj["spec"].update(spec))

    def add_machine(self, name: str, **spec: Any) -> Obj:  # noqa: ANN401 - parts of a spec
        whole = {"providerRef": {"namespace": "ns", "name": "prod"}, **spec}
        return self.api.put(MACHINES, {"metadata": _meta(name), "spec": whole})

    async def run(self, after: float = 0.0) -> Result:
        self.clock.advance(after)
        return await self.reconciler.reconcile(KEY)

    async def run_for(self, seconds: float) -> None:
        """Pass after pass, as the queue would make them."""
        end = self.clock.monotonic() + seconds
        while True:
            result = await self.run()
            pause = max(result.requeue_after or seconds, 0.1)
            if self.clock.monotonic() + pause > end:
                return
            self.clock.advance(pause)

    @property
    def raw(self) -> Obj:
        found = self.api.peek(PROVIDERS, KEY)
        assert found is not None
        return found

    @property
    def provider(self) -> Provider:
        return Provider.from_api(self.raw)

    def condition(self, kind: str = "Ready") -> tuple[str, str, str]:
        for condition in self.provider.status.conditions:
            if condition.type == kind:
                assert condition.observed_generation is not None
                return condition.status.value, condition.reason, condition.message
        return "absent", "", ""

    @property
    def ready(self) -> tuple[str, str]:
        return self.condition()[:2]

    @property
    def lease(self) -> FakeLease:
        return self.candidates.made[Key("ns", self.provider.metadata.uid or "")]


def _meta(name: str) -> Obj:
    return {"namespace": "ns", "name": name}


def _class(backend: str, **more: object) -> Obj:
    kind = {"apiGroup": MACHINES.group, "version": MACHINES.version, "kind": MACHINES.kind}
    return {"backend": backend, "machine": kind, **more}


def _spec(**more: object) -> Obj:
    to = {"endpoint": "https://vc/sdk", "credentialsRef": {"name": "creds"}}
    return {"providerClassRef": {"name": "c"}, "connection": to, **more}


def _instance(uuid: str, identity: str = "backend-1") -> Obj:
    return {
        "uuid": uuid,
        "name": f"vm-{uuid}",
        "installationID": "inst",
        "backendIdentity": identity,
    }


def _vm(
    uuid: str, name: str = "db", *, installation: str = "inst", marked: str = ""
) -> MachineState:
    owner = Owner(installation, "VirtualMachine", "ns", name)
    mark = Mark(owner, marked or uuid)
    return MachineState(
        f"{name}-x", uuid, f"vm-{uuid}", mark, PowerState.POWERED_ON, failure_domain="d1"
    )


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    yield made
    await made.stop()


async def test_a_provider_becomes_ready_with_all_that_was_verified(bench: Bench) -> None:
    bench.endpoint.domains = (
        FailureDomain(
            "d1", ("dc1", "c1"), storage_classes=("gold",), capacity=Capacity(8, 1024, 512)
        ),
    )
    await bench.run()
    status = bench.provider.status
    assert bench.ready == ("True", "Ready")
    for kind in ("ProviderReachable", "CredentialsValid", "PermissionsValid"):
        assert bench.condition(kind)[0] == "True"
    assert (status.backend_identity, status.version) == ("backend-1", "8.0.3")
    assert [domain.name for domain in status.failure_domains] == ["prod-dc1-c1"]
    assert status.failure_domains[0].attributes.available_storage_classes == ["gold"]
    assert status.failure_domain_count == 1
    assert status.unclaimed is not None
    assert status.unclaimed.complete
    assert "networkInterfaces" in status.spec_features
    assert "restartAt" not in status.spec_features
    assert status.observed_generation == 1
    assert bench.condition("Stalled")[0] == bench.condition("Reconciling")[0] == "absent"
    kept = json.loads(bench.raw["metadata"]["annotations"][names.ANNOTATION_FAILURE_DOMAINS])
    assert kept == {"prod-dc1-c1": "d1"}
    assert not bench.recorder.events


async def test_the_steady_state_writes_nothing_and_asks_the_backend_little(bench: Bench) -> None:
    await bench.run()
    bench.api.calls.clear()
    bench.endpoint.calls.clear()
    await bench.run_for(290)
    assert not bench.api.writes()
    assert not bench.endpoint.calls
    await bench.run_for(900)
    assert not bench.api.writes()
    assert max(bench.endpoint.calls.values()) <= 4
    assert len(bench.endpoint.logins) == 1


async def test_machine_reconcilers_find_the_session(bench: Bench) -> None:
    assert bench.sessions.open(KEY) is None
    await bench.run()
    session = bench.sessions.open(KEY)
    assert session is not None
    assert session.writable
    assert session.identity == "backend-1"
    assert session.domain("prod-dc1-c1") == bench.endpoint.domains[0]
    assert session.domain_name("d1") == "prod-dc1-c1"
    assert bench.sessions.failure_domain(KEY, "prod-dc1-c1") == (
        bench.endpoint.domains[0],
        "prod-dc1-c1",
    )
    assert bench.sessions.failure_domain(KEY, "other") is None
    assert bench.sessions.trouble(KEY) is None


# Connection and credentials


async def test_a_missing_secret_is_said_and_found_when_it_comes(bench: Bench) -> None:
    bench.api.drop(SECRETS, CREDENTIALS)
    result = await bench.run()
    assert bench.ready == ("False", "SecretMissing")
    assert bench.condition("CredentialsValid")[1] == "SecretMissing"
    assert bench.condition("ProviderReachable")[:2] == ("Unknown", "NotObserved")
    assert bench.condition("Stalled")[0] == "True"
    assert bench.provider.status.observed_generation == 1
    assert result.requeue_after is not None
    assert 10 <= result.requeue_after <= 30
    bench.set_password(PASSWORD)
    await bench.run(result.requeue_after)
    assert bench.ready == ("True", "Ready")
    assert bench.condition("Stalled")[0] == "absent"


async def test_a_secret_we_may_not_read_says_what_to_grant(bench: Bench) -> None:
    def refuse(call: Call, moment: Moment) -> None:
        if call.resource == SECRETS and moment is Moment.BEFORE:
            raise Forbidden(403, "Forbidden", "no")

    bench.api.intercept(refuse)
    await bench.run()
    assert bench.ready == ("False", "SecretMissing")
    assert "grant" in bench.condition()[2]


async def test_a_wrong_password_recovers_by_the_secret_alone(bench: Bench) -> None:
    bench.set_password("planted-wrong")
    await bench.run_for(100)
    assert bench.ready == ("False", "ProviderAuthFailed")
    assert bench.condition("CredentialsValid")[0] == "False"
    assert bench.condition("ProviderReachable")[0] == "True"
    assert len(bench.endpoint.logins) == 1
    assert "planted-wrong" not in json.dumps(bench.raw)
    bench.set_password(PASSWORD)
    await bench.run_for(31)
    assert bench.ready == ("True", "Ready")


async def test_a_rotated_password_swaps_the_session_without_a_pause(bench: Bench) -> None:
    await bench.run()
    bench.endpoint.password = "rotated"
    bench.set_password("rotated")
    await bench.run_for(61)
    assert bench.ready == ("True", "Ready")
    assert bench.endpoint.sessions == 1
    assert len(bench.endpoint.logins) == 2


async def test_an_untrusted_certificate(bench: Bench) -> None:
    bench.endpoint.fail["login"] = NeedsOperator(Reason.PROVIDER_TLS_INVALID, "not trusted")
    await bench.run()
    assert bench.ready == ("False", "ProviderTLSInvalid")
    assert bench.condition("ProviderReachable")[1] == "ProviderTLSInvalid"
    del bench.endpoint.fail["login"]
    await bench.run_for(60)
    assert bench.ready == ("True", "Ready")


async def test_an_unsupported_version_says_so(bench: Bench) -> None:
    bench.endpoint.fail["about"] = NeedsOperator(
        Reason.PROVIDER_VERSION_UNSUPPORTED, "version 6.7 is too old; upgrade to 7.0 or later"
    )
    await bench.run()
    assert bench.ready == ("False", "ProviderVersionUnsupported")
    assert bench.condition("Stalled")[0] == "True"


async def test_missing_privileges_are_listed_with_their_object(bench: Bench) -> None:
    lacking = (MissingPrivilege("VirtualMachine.Inventory.Create", "folder vms"),)
    bench.endpoint.about = About("backend-1", "8.0.3", lacking)
    await bench.run()
    assert bench.ready == ("False", "ProviderPermissionDenied")
    status, reason, message = bench.condition("PermissionsValid")
    assert (status, reason) == ("False", "ProviderPermissionDenied")
    assert "VirtualMachine.Inventory.Create on folder vms" in message
    bench.endpoint.about = About("backend-1", "8.0.3")
    await bench.run_for(70)
    assert bench.ready == ("True", "Ready")


async def test_an_unknown_target_key_is_never_ignored(bench: Bench) -> None:
    wrong = {"storageClasses": [{"name": "gold", "target": {"datastroe": "x"}}]}
    bench.edit(capabilities=wrong)
    await bench.run()
    assert bench.ready == ("False", "CapabilityInvalid")
    assert "datastroe" in bench.condition()[2]
    assert bench.condition("ProviderReachable")[0] == "True"
    assert not bench.endpoint.logins[-1].capabilities.storage_classes
    assert bench.sessions.open(KEY) is not None


# Outages


async def test_an_outage_keeps_the_status_and_makes_one_event(bench: Bench) -> None:
    await bench.run()
    before = bench.provider.status
    bench.endpoint.fail |= {"about": Unreachable("no route"), "login": Unreachable("no route")}
    bench.reconciler._unsettled(KEY)
    await bench.run_for(600)
    after = bench.provider.status
    assert bench.ready == ("False", "ProviderUnreachable")
    assert bench.condition("CredentialsValid")[0] == "True"
    assert bench.condition("Stalled")[0] == "absent"
    assert after.failure_domains == before.failure_domains
    assert after.backend_identity == before.backend_identity
    assert after.unclaimed == before.unclaimed
    assert bench.recorder.reasons() == [EventReason.PROVIDER_UNREACHABLE]
    trouble = bench.sessions.trouble(KEY)
    assert isinstance(trouble, Unreachable)
    bench.endpoint.fail.clear()
    await bench.run_for(150)
    assert bench.ready == ("True", "Ready")
    assert bench.recorder.reasons() == [
        EventReason.PROVIDER_UNREACHABLE,
        EventReason.PROVIDER_RECOVERED,
    ]


async def test_a_blip_is_not_worth_a_write(bench: Bench) -> None:
    await bench.run()
    bench.api.calls.clear()
    bench.endpoint.fail["about"] = Unreachable("reset")
    bench.reconciler._unsettled(KEY)
    await bench.run_for(5)
    del bench.endpoint.fail["about"]
    await bench.run_for(20)
    assert not bench.api.writes()
    assert not bench.recorder.events


async def test_an_endpoint_that_never_answered_is_reported_at_once(bench: Bench) -> None:
    bench.endpoint.fail["login"] = Unreachable("no route")
    await bench.run()
    assert bench.ready == ("False", "ProviderUnreachable")
    assert bench.condition("Reconciling")[0] == "True"
    assert bench.provider.status.observed_generation is None
    assert bench.sessions.open(KEY) is None
    assert isinstance(bench.sessions.trouble(KEY), Unreachable)


async def test_a_restart_during_an_outage_keeps_the_status_but_vouches_for_nothing(
    bench: Bench,
) -> None:
    await bench.run()
    before = bench.provider.status
    await bench.stop()
    bench.endpoint.fail["login"] = Unreachable("no route")
    bench.start()
    await bench.run_for(120)
    after = bench.provider.status
    assert after.failure_domains == before.failure_domains
    assert after.unclaimed is not None
    assert not after.unclaimed.complete
    assert bench.recorder.reasons() == [EventReason.PROVIDER_UNREACHABLE]
    bench.endpoint.fail.clear()
    await bench.run_for(150)
    assert bench.provider.status.unclaimed == before.unclaimed


async def test_a_backend_that_suddenly_shows_nothing_has_lost_nothing(bench: Bench) -> None:
    await bench.run()
    domains = bench.endpoint.domains
    bench.endpoint.domains = ()
    await bench.run_for(420)
    assert bench.ready == ("False", "InventoryFailed")
    assert bench.provider.status.failure_domain_count == 1
    bench.endpoint.domains = domains
    await bench.run_for(60)
    assert bench.ready == ("True", "Ready")


async def test_with_rights_missing_a_domain_is_hidden_not_gone(bench: Bench) -> None:
    bench.endpoint.domains = (FailureDomain("d1", ("a",)), FailureDomain("d2", ("b",)))
    await bench.run()
    bench.endpoint.about = About("backend-1", "8.0.3", (MissingPrivilege("Read", "cluster b"),))
    bench.endpoint.domains = bench.endpoint.domains[:1]
    await bench.run_for(330)
    assert bench.provider.status.failure_domain_count == 2
    bench.endpoint.about = About("backend-1", "8.0.3")
    await bench.run_for(330)
    assert bench.provider.status.failure_domain_count == 1


async def test_a_busy_inventory_is_told_only_when_it_lasts(bench: Bench) -> None:
    await bench.run()
    bench.endpoint.fail["failure_domains"] = Transient(Reason.PROVIDER_BUSY, "busy")
    await bench.run_for(302)
    assert bench.ready == ("True", "Ready")
    await bench.run_for(60)
    assert bench.ready == ("False", "ProviderBusy")


# Names and capacity


async def test_names_survive_renames_restarts_and_lost_status(bench: Bench) -> None:
    await bench.run()
    await bench.stop()
    bench.endpoint.domains = (FailureDomain("d1", ("dc1", "renamed")),)
    bench.api.edit(PROVIDERS, KEY, lambda obj: obj.pop("status"))
    bench.start()
    await bench.run()
    assert [d.name for d in bench.provider.status.failure_domains] == ["prod-dc1-c1"]


async def test_labels_and_names_of_the_admin_are_published_at_once(bench: Bench) -> None:
    await bench.run()
    bench.endpoint.calls.clear()
    bench.edit(failureDomains=[{"id": "d1", "name": "rack-1", "labels": {"zone": "1"}}])
    await bench.run()
    [shown] = bench.provider.status.failure_domains
    assert (shown.name, shown.labels) == ("rack-1", {"zone": "1"})
    assert not bench.endpoint.calls["failure_domains"]
    assert bench.sessions.failure_domain(KEY, "prod-dc1-c1") == (
        bench.endpoint.domains[0],
        "rack-1",
    )


async def test_capacity_says_which_machines_it_counts(bench: Bench) -> None:
    bench.endpoint.domains = (FailureDomain("d1", ("dc1", "c1"), capacity=Capacity(8, 1024, 512)),)
    for name, seen in (("counted", True), ("unseen", False)):
        bench.add_machine(
            name,
            placement={"failureDomain": "prod-dc1-c1"},
            virtualMachineRef={"name": name, "uid": "u"},
            instance=_instance(name),
            **({"providerID": "scripted://x"} if seen else {}),
        )
    await bench.run()
    [shown] = bench.provider.status.failure_domains
    assert shown.attributes.capacity is not None
    expected = Owner("inst", "VirtualMachine", "ns", "counted").digest
    assert shown.attributes.capacity.included_machines == [expected]


# Identity


async def test_another_backend_at_the_endpoint_is_not_trusted(bench: Bench) -> None:
    await bench.run()
    before = bench.provider.status
    bench.endpoint.about = About("backend-2", "8.0.3")
    bench.endpoint.domains = (FailureDomain("x9", ("elsewhere",)),)
    await bench.run_for(330)
    assert bench.ready == ("False", "BackendIdentityChanged")
    after = bench.provider.status
    assert after.backend_identity == "backend-1"
    assert after.failure_domains == before.failure_domains
    session = bench.sessions.open(KEY)
    assert session is not None
    assert not session.writable
    assert not session.is_backend("backend-1")
    assert not session.is_backend("backend-2")
    accepted = {**_spec()["connection"], "acceptedIdentities": ["backend-1"]}
    bench.edit(connection=accepted)
    await bench.run()
    assert bench.ready == ("True", "Ready")
    assert bench.provider.status.backend_identity == "backend-2"
    assert session.is_backend("backend-1")
    assert session.writable


async def test_with_the_status_lost_the_machines_know_their_backend(bench: Bench) -> None:
    bench.add_machine("m", instance=_instance("u1", "backend-0"))
    await bench.run()
    assert bench.ready == ("False", "BackendIdentityChanged")
    assert bench.provider.status.backend_identity is None


# Class, lease, pause


async def test_a_class_of_another_backend_is_refused_and_served_on(bench: Bench) -> None:
    bench.add_machine("m")
    await bench.run()
    bench.api.put(PROVIDER_CLASSES, {"metadata": {"name": "other"}, "spec": _class("other")})
    bench.edit(providerClassRef={"name": "other"})
    await bench.run()
    assert bench.ready == ("False", "ProviderClassMismatch")
    assert bench.provider.status.failure_domain_count == 1
    session = bench.sessions.open(KEY)
    assert session is not None
    assert not session.writable
    bench.edit(providerClassRef={"name": "c"})
    await bench.run()
    assert bench.ready == ("True", "Ready")
    assert session.writable


async def test_a_provider_of_another_backend_is_none_of_our_business(bench: Bench) -> None:
    bench.api.put(PROVIDER_CLASSES, {"metadata": {"name": "c"}, "spec": _class("other")})
    await bench.run()
    assert not bench.api.calls
    assert bench.sessions.find(KEY) is None
    assert not bench.candidates.made


async def test_told_to_serve_one_provider_a_mismatch_is_ours_to_tell(bench: Bench) -> None:
    bench.start(only=KEY)
    bench.api.put(PROVIDER_CLASSES, {"metadata": {"name": "c"}, "spec": _class("other")})
    await bench.run()
    assert bench.ready == ("False", "ProviderClassMismatch")
    assert not bench.endpoint.logins


async def test_a_missing_class_tears_nothing_down(bench: Bench) -> None:
    bench.add_machine("m")
    await bench.run()
    bench.api.drop(PROVIDER_CLASSES, Key("", "c"))
    await bench.run()
    assert bench.ready == ("False", "ProviderClassNotFound")
    session = bench.sessions.open(KEY)
    assert session is not None
    assert session.writable


async def test_without_the_lease_nothing_is_said_or_done(bench: Bench) -> None:
    await bench.run()
    await bench.lease.give("other-pod")
    bench.api.calls.clear()
    bench.endpoint.calls.clear()
    result = await bench.run(400)
    assert not bench.api.calls
    assert not bench.endpoint.calls
    assert bench.sessions.open(KEY) is None
    assert result.requeue_after is not None
    [event] = bench.recorder.events
    assert event.reason == EventReason.SERVED_ELSEWHERE
    assert "other-pod" in event.message
    await bench.lease.give("me")
    assert KEY in bench.queue.asked
    await bench.run()
    assert bench.sessions.open(KEY) is not None


async def test_a_lease_that_only_could_not_be_renewed_keeps_the_session(bench: Bench) -> None:
    await bench.run()
    bench.lease.held = False
    await bench.run()
    session = bench.sessions.open(KEY)
    assert session is not None
    assert not session.writable
    assert bench.endpoint.sessions == 1


@pytest.mark.parametrize("where", ["provider", "class"])
async def test_paused_stops_changes_but_not_observation(bench: Bench, where: str) -> None:
    if where == "provider":
        bench.edit(paused=True)
    else:
        spec = _class("scripted", paused=True)
        bench.api.put(PROVIDER_CLASSES, {"metadata": {"name": "c"}, "spec": spec})
    await bench.run()
    assert bench.ready == ("True", "Ready")
    assert bench.condition("Paused")[0] == "True"
    session = bench.sessions.open(KEY)
    assert session is not None
    assert not session.writable


# Unclaimed machines


async def test_marked_machines_without_object_are_listed(bench: Bench) -> None:
    bench.endpoint.marked = (
        _vm("u1", "claimed"),
        _vm("u2", "lost"),
        _vm("u3", "copy", marked="u2"),
        _vm("u4", "stranger", installation="other"),
    )
    bench.add_machine("m", instance=_instance("u1"))
    await bench.run()
    found = bench.provider.status.unclaimed
    assert found is not None
    assert (found.complete, found.count) == (True, 1)
    assert found.owners[0].hash == Owner("inst", "VirtualMachine", "ns", "lost").digest
    assert found.sample[0].owner == "VirtualMachine/ns/lost"
    assert found.sample[0].failure_domain == "prod-dc1-c1"
    assert bench.provider.status.machine_count == 1


async def test_machines_of_another_provider_of_the_same_backend_are_not_left_over(
    bench: Bench,
) -> None:
    """Else they look like leftovers, and their owner seems to exist on both Providers."""
    bench.endpoint.marked = (_vm("u1", "ours"), _vm("u2", "theirs"), _vm("u3", "lost"))
    bench.add_machine("m", instance=_instance("u1"))
    bench.add_machine(
        "n", providerRef={"namespace": "ns", "name": "second"}, instance=_instance("u2")
    )
    await bench.run()
    found = bench.provider.status.unclaimed
    assert found is not None
    assert [owner.hash for owner in found.owners] == [
        Owner("inst", "VirtualMachine", "ns", "lost").digest
    ]
    assert bench.provider.status.machine_count == 1


async def test_counts_are_written_at_most_every_ten_seconds(bench: Bench) -> None:
    await bench.run()
    bench.api.calls.clear()
    for number in range(30):
        bench.add_machine(f"m{number}")
        await bench.run(0.5)
    assert len(bench.api.writes()) == 1
    await bench.run_for(11)
    assert len(bench.api.writes()) == 2
    assert bench.provider.status.machine_count == 30


async def test_a_stranger_in_the_feed_is_looked_at_once_a_minute(bench: Bench) -> None:
    bench.add_machine("m", instance=_instance("u1"))
    await bench.run()
    bench.endpoint.marked = (_vm("u9", "restored"),)
    bench.sessions.changed(KEY, Changes(uuids=frozenset({"u1"})))
    await bench.run(61)
    assert bench.endpoint.calls["marked"] == 1
    bench.sessions.changed(KEY, Changes(uuids=frozenset({"u9"})))
    assert KEY in bench.queue.asked
    await bench.run()
    for _ in range(5):
        bench.sessions.changed(KEY, Changes(uuids=frozenset({"u9"})))
        await bench.run(5)
    assert bench.endpoint.calls["marked"] == 2
    found = bench.provider.status.unclaimed
    assert found is not None
    assert found.count == 1


async def test_without_installation_nobody_is_called_unclaimed(bench: Bench) -> None:
    bench.endpoint.marked = (_vm("u2", "lost"),)
    bench.api.drop(CONFIG_MAPS, Key("system", names.INSTALLATION_CONFIG_MAP))
    await bench.run()
    assert bench.ready == ("True", "Ready")
    assert bench.provider.status.unclaimed is None


# In use, and the end


def _finalizers(bench: Bench) -> list[list[str]]:
    lease = Key("ns", bench.provider.metadata.uid or "")
    sources = ((PROVIDERS, KEY), (SECRETS, CREDENTIALS), (LEASES, lease))
    found = (bench.api.peek(resource, key) or {} for resource, key in sources)
    return [(obj.get("metadata") or {}).get("finalizers") or [] for obj in found]


async def _use(bench: Bench) -> None:
    uid = bench.provider.metadata.uid or ""
    bench.api.put(LEASES, {"metadata": _meta(uid)})
    await bench.run()
    bench.add_machine("m", instance=_instance("u1"))
    await ensure_in_use(bench.api, bench.provider, manager="m")


async def test_before_the_mint_everything_is_held(bench: Bench) -> None:
    await _use(bench)
    assert _finalizers(bench) == [[FINALIZER]] * 3
    bench.api.calls.clear()
    await ensure_in_use(bench.api, bench.provider, manager="m")
    assert not bench.api.calls


async def test_the_lease_goes_with_its_provider(bench: Bench) -> None:
    uid = bench.provider.metadata.uid or ""
    bench.api.put(LEASES, {"metadata": _meta(uid)})
    await bench.run()
    bench.api.drop(PROVIDERS, KEY)
    bench.api.collect_garbage()
    assert not bench.api.peek_all(LEASES)


async def test_a_finalizer_somebody_took_off_comes_back(bench: Bench) -> None:
    await _use(bench)
    await bench.run()
    bench.api.edit(SECRETS, CREDENTIALS, lambda obj: obj["metadata"].pop("finalizers"))
    await bench.run_for(400)
    assert _finalizers(bench) == [[FINALIZER]] * 3


async def test_leftovers_of_a_restored_status_go(bench: Bench) -> None:
    restored = {"failureDomains": [{"name": "old", "id": "d0"}], "workload": {"name": "w"}}
    bench.api.edit(PROVIDERS, KEY, lambda obj: obj.update(status=restored))
    await bench.run()
    assert [d.name for d in bench.provider.status.failure_domains] == ["prod-dc1-c1"]
    assert bench.raw["status"]["workload"] == {"name": "w"}


async def test_a_deleted_provider_is_never_taken_into_use(bench: Bench) -> None:
    await _use(bench)
    bench.api.drop(PROVIDERS, KEY)
    with pytest.raises(NeedsOperator) as caught:
        await ensure_in_use(bench.api, bench.provider, manager="m")
    assert caught.value.reason == Reason.PROVIDER_DELETING


async def test_finalizers_of_others_stay(bench: Bench) -> None:
    bench.api.edit(SECRETS, CREDENTIALS, lambda o: o["metadata"].update(finalizers=["x.io/a"]))
    await _use(bench)
    assert _finalizers(bench)[1] == ["x.io/a", FINALIZER]
    bench.api.drop(MACHINES, Key("ns", "m"))
    bench.api.drop(PROVIDERS, KEY)
    await bench.run()
    assert (bench.api.peek(SECRETS, CREDENTIALS) or {})["metadata"]["finalizers"] == ["x.io/a"]


async def test_a_deleted_provider_waits_for_its_machines_and_serves_them(bench: Bench) -> None:
    await _use(bench)
    bench.api.drop(PROVIDERS, KEY)
    await bench.run()
    status, reason, message = bench.condition("Deleting")
    assert (status, reason) == ("True", "ProviderInUse")
    assert "1 machine" in message
    assert bench.sessions.open(KEY) is not None
    bench.api.drop(MACHINES, Key("ns", "m"))
    await bench.run()
    assert bench.api.peek(PROVIDERS, KEY) is None
    assert (bench.api.peek(SECRETS, CREDENTIALS) or {})["metadata"].get("finalizers", []) == []
    await bench.run()
    assert bench.sessions.find(KEY) is None


async def test_a_stale_cache_does_not_let_a_deleted_provider_go(bench: Bench) -> None:
    await _use(bench)
    bench.api.drop(MACHINES, Key("ns", "m"))
    bench.api.cache.hold()
    bench.add_machine("m2")
    bench.api.drop(PROVIDERS, KEY)
    bench.api.cache.follow()
    bench.api.cache._objects[MACHINES].clear()
    await bench.run()
    assert FINALIZER in _finalizers(bench)[0]


async def test_paused_the_finalizer_stays(bench: Bench) -> None:
    await _use(bench)
    bench.edit(paused=True)
    bench.api.drop(MACHINES, Key("ns", "m"))
    bench.api.drop(PROVIDERS, KEY)
    await bench.run()
    assert FINALIZER in _finalizers(bench)[0]


async def test_an_idle_provider_is_let_go_after_a_while(bench: Bench) -> None:
    await _use(bench)
    bench.api.drop(MACHINES, Key("ns", "m"))
    await bench.run()
    assert _finalizers(bench) == [[FINALIZER]] * 3
    await bench.run_for(300)
    assert _finalizers(bench) == [[]] * 3
    assert bench.ready == ("True", "Ready")
    bench.api.calls.clear()
    await bench.run_for(290)
    assert not bench.api.writes()


async def test_a_machine_made_while_letting_go_is_protected_again(bench: Bench) -> None:
    await _use(bench)
    bench.api.drop(MACHINES, Key("ns", "m"))

    def mint(call: Call, moment: Moment) -> None:
        if moment is Moment.AFTER and call.verb == "json_patch" and call.resource == SECRETS:
            bench.add_machine("late")

    bench.api.intercept(mint)
    await bench.run_for(400)
    assert _finalizers(bench) == [[FINALIZER]] * 3


async def test_another_secret_is_held_and_the_former_let_go(bench: Bench) -> None:
    await _use(bench)
    await bench.run()
    secret = bench.api.peek(SECRETS, CREDENTIALS) or {}
    bench.api.put(SECRETS, {"metadata": _meta("creds-2"), "data": secret["data"]})
    bench.edit(connection={"endpoint": "https://vc/sdk", "credentialsRef": {"name": "creds-2"}})
    await bench.run()
    assert _finalizers(bench)[1] == []
    held = bench.api.peek(SECRETS, Key("ns", "creds-2")) or {}
    assert held["metadata"]["finalizers"] == [FINALIZER]


async def test_a_new_provider_of_the_same_name_starts_afresh(bench: Bench) -> None:
    await bench.run()
    bench.api.drop(PROVIDERS, KEY)
    bench.endpoint.about = About("backend-2", "9.0")
    bench.api.put(PROVIDERS, {"metadata": _meta("prod"), "spec": _spec()})
    await bench.run()
    assert bench.ready == ("True", "Ready")
    assert bench.provider.status.backend_identity == "backend-2"
    assert len(bench.candidates.made) == 2


# Watches


def _mapped(bench: Bench, resource: Any, old: Obj | None, new: Obj | None) -> list[Request]:  # noqa: ANN401
    controller = bench.reconciler.controller()
    [watch] = [w for w in controller.watches if w.resource == resource]
    return list(watch.map(Change(resource, Key.of(new or old or {}), old, new)))


async def test_status_writes_wake_nobody(bench: Bench) -> None:
    old = bench.raw
    await bench.run()
    assert not _mapped(bench, PROVIDERS, old, bench.raw)
    changed = {**bench.raw, "spec": {**bench.raw["spec"], "paused": True}}
    assert [r.key for r in _mapped(bench, PROVIDERS, bench.raw, changed)] == [KEY]


async def test_machines_wake_their_provider_when_they_come_mint_and_go(bench: Bench) -> None:
    machine = bench.add_machine("m")
    minted = {**machine, "spec": {**machine["spec"], "instance": _instance("u1")}}
    status = {**minted, "status": {"powerState": "PoweredOn"}}
    for old, new in ((None, machine), (machine, minted), (minted, None)):
        [request] = _mapped(bench, MACHINES, old, new)
        assert request.key == KEY
        assert request.delay > 0
    assert not _mapped(bench, MACHINES, minted, status)


async def test_class_edits_fan_out(bench: Bench) -> None:
    raw = bench.api.peek(PROVIDER_CLASSES, Key("", "c"))
    assert [r.key for r in _mapped(bench, PROVIDER_CLASSES, raw, raw)] == [KEY]


async def test_serving_one_provider_selects_on_the_server(bench: Bench) -> None:
    bench.start(only=KEY)
    selectors = {w.resource.kind: w.field_selector for w in bench.reconciler.controller().watches}
    assert selectors["Provider"] == "metadata.name=prod"
    assert selectors[MACHINES.kind] == ("spec.providerRef.namespace=ns,spec.providerRef.name=prod")
