import json
from collections.abc import AsyncIterator

import pytest

from banlieue.api import names
from banlieue.api.events import EventReason
from banlieue.api.reasons import Reason
from banlieue.api.resources import (
    PROVIDERS,
    SECRETS,
)
from banlieue.sdk.driver import About, Capacity, FailureDomain, MissingPrivilege
from banlieue.sdk.errors import NeedsOperator, Transient, Unreachable
from banlieue.sdk.identity import Owner
from banlieue.sdk.kube import Forbidden
from banlieue.sdk.testing.memory_api import Call, Moment
from test.kit.providerbench import (
    CREDENTIALS,
    KEY,
    PASSWORD,
    ProviderBench,
    able,
    instance,
    provider_spec,
)


@pytest.fixture
async def bench() -> AsyncIterator[ProviderBench]:
    made = ProviderBench()
    yield made
    await made.stop()


async def test_moves_are_offered_where_the_driver_can_tell_of_them(
    bench: ProviderBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    able(monkeypatch, write_mark=lambda *_: None)
    await bench.run()
    assert "move" in bench.provider.status.spec_features


async def test_a_provider_becomes_ready_with_all_that_was_verified(bench: ProviderBench) -> None:
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
    assert "restartAt" in status.spec_features
    assert "move" not in status.spec_features, "its driver cannot write marks"
    assert status.observed_generation == 1
    assert bench.condition("Stalled")[0] == bench.condition("Reconciling")[0] == "absent"
    kept = json.loads(bench.raw["metadata"]["annotations"][names.ANNOTATION_FAILURE_DOMAINS])
    assert kept == {"prod-dc1-c1": "d1"}
    assert not bench.recorder.events


async def test_the_steady_state_writes_nothing_and_asks_the_backend_little(
    bench: ProviderBench,
) -> None:
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


async def test_machine_reconcilers_find_the_session(bench: ProviderBench) -> None:
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


async def test_a_missing_secret_is_said_and_found_when_it_comes(bench: ProviderBench) -> None:
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


async def test_a_secret_we_may_not_read_says_what_to_grant(bench: ProviderBench) -> None:
    def refuse(call: Call, moment: Moment) -> None:
        if call.resource == SECRETS and moment is Moment.BEFORE:
            raise Forbidden(403, "Forbidden", "no")

    bench.api.intercept(refuse)
    await bench.run()
    assert bench.ready == ("False", "SecretMissing")
    assert "grant" in bench.condition()[2]


async def test_a_refusal_that_passes_is_not_worth_a_write(bench: ProviderBench) -> None:
    """An API server that just started refuses everybody until it knows all rights."""
    refused: list[Call] = []

    def refuse(call: Call, moment: Moment) -> None:
        if call.resource == SECRETS and moment is Moment.BEFORE:
            refused.append(call)
            raise Forbidden(403, "Forbidden", "no")

    await bench.run()
    bench.api.calls.clear()
    allow = bench.api.intercept(refuse)
    await bench.run_for(62)
    allow()
    await bench.run_for(20)
    assert refused
    assert not bench.api.writes()
    bench.api.intercept(refuse)
    await bench.run_for(100)
    assert bench.ready == ("False", "SecretMissing"), "a refusal that stays is told"


async def test_a_wrong_password_recovers_by_the_secret_alone(bench: ProviderBench) -> None:
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


async def test_a_rotated_password_swaps_the_session_without_a_pause(bench: ProviderBench) -> None:
    await bench.run()
    bench.endpoint.password = "rotated"
    bench.set_password("rotated")
    await bench.run_for(61)
    assert bench.ready == ("True", "Ready")
    assert bench.endpoint.sessions == 1
    assert len(bench.endpoint.logins) == 2


async def test_an_untrusted_certificate(bench: ProviderBench) -> None:
    bench.endpoint.fail["login"] = NeedsOperator(Reason.PROVIDER_TLS_INVALID, "not trusted")
    await bench.run()
    assert bench.ready == ("False", "ProviderTLSInvalid")
    assert bench.condition("ProviderReachable")[1] == "ProviderTLSInvalid"
    del bench.endpoint.fail["login"]
    await bench.run_for(60)
    assert bench.ready == ("True", "Ready")


async def test_an_unsupported_version_says_so(bench: ProviderBench) -> None:
    bench.endpoint.fail["about"] = NeedsOperator(
        Reason.PROVIDER_VERSION_UNSUPPORTED, "version 6.7 is too old; upgrade to 7.0 or later"
    )
    await bench.run()
    assert bench.ready == ("False", "ProviderVersionUnsupported")
    assert bench.condition("Stalled")[0] == "True"


async def test_missing_privileges_are_listed_with_their_object(bench: ProviderBench) -> None:
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


async def test_an_unknown_target_key_is_never_ignored(bench: ProviderBench) -> None:
    wrong = {"storageClasses": [{"name": "gold", "target": {"datastroe": "x"}}]}
    bench.edit(capabilities=wrong)
    await bench.run()
    assert bench.ready == ("False", "CapabilityInvalid")
    assert "datastroe" in bench.condition()[2]
    assert bench.condition("ProviderReachable")[0] == "True"
    assert not bench.endpoint.logins[-1].capabilities.storage_classes
    assert bench.sessions.open(KEY) is not None


# Outages


async def test_an_outage_keeps_the_status_and_makes_one_event(bench: ProviderBench) -> None:
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


async def test_a_blip_is_not_worth_a_write(bench: ProviderBench) -> None:
    await bench.run()
    bench.api.calls.clear()
    bench.endpoint.fail["about"] = Unreachable("reset")
    bench.reconciler._unsettled(KEY)
    await bench.run_for(5)
    del bench.endpoint.fail["about"]
    await bench.run_for(20)
    assert not bench.api.writes()
    assert not bench.recorder.events


async def test_an_endpoint_that_never_answered_is_reported_at_once(bench: ProviderBench) -> None:
    bench.endpoint.fail["login"] = Unreachable("no route")
    await bench.run()
    assert bench.ready == ("False", "ProviderUnreachable")
    assert bench.condition("Reconciling")[0] == "True"
    assert bench.provider.status.observed_generation is None
    assert bench.sessions.open(KEY) is None
    assert isinstance(bench.sessions.trouble(KEY), Unreachable)


async def test_a_restart_during_an_outage_keeps_the_status_but_vouches_for_nothing(
    bench: ProviderBench,
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


async def test_a_backend_that_suddenly_shows_nothing_has_lost_nothing(bench: ProviderBench) -> None:
    await bench.run()
    domains = bench.endpoint.domains
    bench.endpoint.domains = ()
    await bench.run_for(420)
    assert bench.ready == ("False", "InventoryFailed")
    assert bench.provider.status.failure_domain_count == 1
    bench.endpoint.domains = domains
    await bench.run_for(60)
    assert bench.ready == ("True", "Ready")


async def test_with_rights_missing_a_domain_is_hidden_not_gone(bench: ProviderBench) -> None:
    bench.endpoint.domains = (FailureDomain("d1", ("a",)), FailureDomain("d2", ("b",)))
    await bench.run()
    bench.endpoint.about = About("backend-1", "8.0.3", (MissingPrivilege("Read", "cluster b"),))
    bench.endpoint.domains = bench.endpoint.domains[:1]
    await bench.run_for(330)
    assert bench.provider.status.failure_domain_count == 2
    bench.endpoint.about = About("backend-1", "8.0.3")
    await bench.run_for(330)
    assert bench.provider.status.failure_domain_count == 1


async def test_a_busy_inventory_is_told_only_when_it_lasts(bench: ProviderBench) -> None:
    await bench.run()
    bench.endpoint.fail["failure_domains"] = Transient(Reason.PROVIDER_BUSY, "busy")
    await bench.run_for(302)
    assert bench.ready == ("True", "Ready")
    await bench.run_for(60)
    assert bench.ready == ("False", "ProviderBusy")


# Names and capacity


async def test_names_survive_renames_restarts_and_lost_status(bench: ProviderBench) -> None:
    await bench.run()
    await bench.stop()
    bench.endpoint.domains = (FailureDomain("d1", ("dc1", "renamed")),)
    bench.api.edit(PROVIDERS, KEY, lambda obj: obj.pop("status"))
    bench.start()
    await bench.run()
    assert [d.name for d in bench.provider.status.failure_domains] == ["prod-dc1-c1"]


async def test_labels_and_names_of_the_admin_are_published_at_once(bench: ProviderBench) -> None:
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


async def test_capacity_says_which_machines_it_counts(bench: ProviderBench) -> None:
    bench.endpoint.domains = (FailureDomain("d1", ("dc1", "c1"), capacity=Capacity(8, 1024, 512)),)
    for name, seen in (("counted", True), ("unseen", False)):
        bench.add_machine(
            name,
            placement={"failureDomain": "prod-dc1-c1"},
            virtualMachineRef={"name": name, "uid": "u"},
            instance=instance(name),
            **({"providerID": "scripted://x"} if seen else {}),
        )
    await bench.run()
    [shown] = bench.provider.status.failure_domains
    assert shown.attributes.capacity is not None
    expected = Owner("inst", "VirtualMachine", "ns", "counted").digest
    assert shown.attributes.capacity.included_machines == [expected]


# Identity


async def test_another_backend_at_the_endpoint_is_not_trusted(bench: ProviderBench) -> None:
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
    accepted = {**provider_spec()["connection"], "acceptedIdentities": ["backend-1"]}
    bench.edit(connection=accepted)
    await bench.run()
    assert bench.ready == ("True", "Ready")
    assert bench.provider.status.backend_identity == "backend-2"
    assert session.is_backend("backend-1")
    assert session.writable


async def test_with_the_status_lost_the_machines_know_their_backend(bench: ProviderBench) -> None:
    bench.add_machine("m", instance=instance("u1", "backend-0"))
    await bench.run()
    assert bench.ready == ("False", "BackendIdentityChanged")
    assert bench.provider.status.backend_identity is None
