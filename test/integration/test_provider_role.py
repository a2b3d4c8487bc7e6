"""The Provider side on real processes: its status, its Lease, its credentials, its outages."""

import json
from typing import Any

import pytest

from test.kit.installed import Registered
from test.kit.simulated import WorldTarget
from test.kit.stack import Role, condition, is_ready
from test.kit.targets import SIMULATED
from test.kit.waiting import wait_until

pytestmark = pytest.mark.slow

WRONG_PASSWORD = "planted-wrong-password"


def _provider(registered: Registered) -> dict[str, Any]:
    return registered.kube.get("providers", registered.provider, registered.stack.namespace)


def _wait_for_reason(registered: Registered, reason: str, timeout: float = 90.0) -> dict[str, Any]:
    return registered.kube.wait_for(
        "providers",
        registered.provider,
        registered.stack.namespace,
        until=lambda obj: condition(obj, "Ready")[1] == reason,
        timeout=timeout,
        what=reason,
    )


def _events(registered: Registered, reason: str) -> list[dict[str, Any]]:
    found = registered.kube.list("events.events.k8s.io", registered.stack.namespace)
    return [event for event in found if event.get("reason") == reason]


def _wait_for_events(registered: Registered, reason: str) -> list[dict[str, Any]]:
    return wait_until(lambda: _events(registered, reason), 30, f"an event {reason}")


def _install_identity(registered: Registered) -> None:
    """What the controller makes; it does not run here."""
    system = registered.kube.get("namespaces", "kube-system")
    registered.kube.apply(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "namespace": registered.stack.namespace,
                "name": "banlieue-installation",
            },
            "data": {"id": "inst", "clusterUID": system["metadata"]["uid"]},
        }
    )


def _wait_for_unclaimed(registered: Registered) -> dict[str, Any]:
    return registered.kube.wait_for(
        "providers",
        registered.provider,
        registered.stack.namespace,
        until=lambda obj: is_ready(obj) and obj["status"].get("unclaimed"),
        timeout=60,
        what="Ready with its inventory read",
    )


def _serve(registered: Registered, name: str = "", *, ready: bool = True) -> Role:
    role = registered.stack.provider(registered.target.backend.name, name=name)
    return role.start(ready=ready)


def test_a_provider_is_verified_and_published(registered: Registered) -> None:
    role = _serve(registered)
    found = registered.provider_ready()
    status, uid = found["status"], found["metadata"]["uid"]
    assert status["observedGeneration"] == found["metadata"]["generation"]
    assert status["failureDomainCount"] == len(status["failureDomains"]) > 0
    assert status["backendIdentity"]
    assert status["specFeatures"]
    names = {domain["name"]: domain["id"] for domain in status["failureDomains"]}
    kept = json.loads(found["metadata"]["annotations"]["banlieue.io/failure-domains"])
    assert kept == names

    lease = registered.kube.get("leases", uid, registered.stack.namespace)
    assert [owner["uid"] for owner in lease["metadata"]["ownerReferences"]] == [uid]

    rival = _serve(registered, "rival", ready=False)
    wait_until(
        lambda: "is served by" in rival.probe("readyz")[1], 60, "the rival to say who serves"
    )
    _wait_for_events(registered, "ServedElsewhere")
    assert condition(_provider(registered), "Ready")[0] == "True"
    rival.stop()

    role.stop()
    assert (
        registered.kube.get("leases", uid, registered.stack.namespace)["spec"].get(
            "holderIdentity", ""
        )
        == ""
    )


def test_a_wrong_password_is_told_and_a_right_one_found_without_restart(
    registered: Registered,
) -> None:
    registered.apply_credentials(WRONG_PASSWORD)
    role = _serve(registered)
    found = _wait_for_reason(registered, "ProviderAuthFailed")
    assert condition(found, "CredentialsValid")[0] == "False"
    assert condition(found, "ProviderReachable")[0] == "True"
    assert condition(found, "Stalled")[0] == "True"
    registered.apply_credentials()
    found = registered.provider_ready(60)
    for text in (role.logs(), json.dumps(found)):
        for secret in (WRONG_PASSWORD, *registered.target.secrets):
            assert secret not in text


@pytest.mark.parametrize("backend_kind", [SIMULATED], indirect=True)
def test_an_outage_keeps_the_status_makes_one_event_and_ends_by_itself(
    registered: Registered,
) -> None:
    target = registered.target
    assert isinstance(target, WorldTarget)
    _install_identity(registered)
    _serve(registered)
    before = _wait_for_unclaimed(registered)["status"]
    assert before["unclaimed"]["complete"]
    target.world.process.kill9()
    outage = _wait_for_reason(registered, "ProviderUnreachable")["status"]
    for part in ("failureDomains", "backendIdentity", "version", "unclaimed"):
        assert outage[part] == before[part]
    target.world.start()
    registered.provider_ready(150)
    for reason in ("ProviderUnreachable", "ProviderRecovered"):
        [event] = _wait_for_events(registered, reason)
        assert (event.get("series") or {}).get("count", 1) == 1


def test_a_deleted_provider_leaves_nothing_behind(registered: Registered) -> None:
    _serve(registered)
    uid = registered.provider_ready()["metadata"]["uid"]
    registered.kube.delete("providers", registered.provider, registered.stack.namespace)
    for kind, name in (("providers", registered.provider), ("leases", uid)):
        registered.kube.wait_gone(kind, name, registered.stack.namespace, timeout=60)


def test_a_missing_secret_is_waited_for(registered: Registered) -> None:
    secret = f"{registered.provider}-creds"
    registered.kube.delete("secrets", secret, registered.stack.namespace)
    _serve(registered)
    found = _wait_for_reason(registered, "SecretMissing")
    messages = {it["type"]: it["message"] for it in found["status"]["conditions"]}
    assert secret in messages["Ready"]
    registered.apply_credentials()
    assert is_ready(registered.provider_ready(60))
