"""A Provider object that is gone although machines need it: nothing is lost, the user decides."""

import pytest

from test.kit.backup import tear_out
from test.kit.running import VMS, Running

pytestmark = pytest.mark.slow


@pytest.mark.identity("6.8")
def test_machines_of_a_lost_provider_are_kept_or_released_on_the_users_word(
    running: Running,
) -> None:
    registered, kube, namespace = running.registered, running.kube, running.namespace
    kept, known = running.made("kept"), running.made("let-go")
    running.provider.kill9()
    tear_out(kube, "providers", registered.provider, registered.stack.namespace)

    kube.delete(VMS, "let-go", namespace)
    vm = running.wait_condition("let-go", "Deleting", "ProviderNotFound", status="True")
    (message,) = (it["message"] for it in vm["status"]["conditions"] if it["type"] == "Deleting")
    assert "deletionPolicy" in message, "nobody is told the way out"
    assert registered.machine("let-go")["metadata"]["finalizers"]
    kube.patch(VMS, "let-go", {"spec": {"deletionPolicy": "Orphan"}}, namespace)
    registered.gone("let-go")
    assert running.raw(known.raw.id) == known.raw

    # A machine object that goes while its VirtualMachine lives comes back with the Provider.
    running.wait_condition("kept", "PlacementValid", "ProviderNotFound", status="False")
    kube.delete(registered.plural, "kept", namespace)
    kube.wait_gone(registered.plural, "kept", namespace)
    assert running.raw(kept.raw.id) == kept.raw
    kube.apply(registered.provider_object())
    running.provider.start()
    running.same(kept)
