"""Trouble: passwords, crashes, outages and restores, and each VirtualMachine keeps its one VM."""

import pytest

from test.kit.backup import restore, saved, tear_out
from test.kit.costs import wait_out
from test.kit.gate import Gate
from test.kit.running import VMS
from test.kit.story import Story
from test.kit.taps import Meter
from test.kit.waiting import wait_until

pytestmark = pytest.mark.slow


def test_a_password_that_was_rotated_wrongly_is_told_and_put_right(story: Story) -> None:
    """Story 5: bad password."""
    story.vm("db")
    story.ready("db")
    before = _facts(story, "db")
    processes = [role.process.pid for role in story.registered.stack.roles]

    story.registered.apply_credentials("planted-wrong-4714-password")
    story.edit_provider(cordoned=True)  # an edit has the Secret looked at now
    story.provider_says("ProviderAuthFailed")
    wait_out(story.registered, 3)
    assert _facts(story, "db") == before

    story.registered.apply_credentials()
    story.edit_provider(cordoned=False)
    story.registered.provider_ready()
    story.vm("later")
    story.ready("later")
    assert [role.process.pid for role in story.registered.stack.roles] == processes


def test_a_provider_that_is_killed_while_it_makes_a_vm_makes_one(story: Story) -> None:
    """Story 6: crash in the middle of a clone."""
    meter = Meter(story.registered.target)
    with story.registered.target.slow_tasks(2.0):
        story.vm("once")
        wait_until(lambda: meter.calls()[meter.words.create], 60, "the create call")
        story.running.provider.kill9()
    story.running.provider.start()
    story.registered.provider_ready()

    story.ready("once", timeout=120)
    assert len(story.registered.vms_of("once")) == 1
    assert meter.calls()[meter.words.create] == 1

    story.registered.target.lose_next_create_reply()
    story.vm("again")
    story.ready("again", timeout=180)
    assert len(story.registered.vms_of("again")) == 1


def test_an_outage_of_the_backend_is_told_once_and_everything_goes_on_after_it(
    story: Story,
) -> None:
    """Story 17: outage; 500 VMs for five minutes stand in `test_outage_of_many`."""
    endpoint = story.registered.target.connection().endpoints[0]
    with Gate(endpoint) as gate:
        _point_at(story, gate.url)
        story.vm("stays")
        story.vm("leaves")
        story.ready("stays", "leaves")
        before = _facts(story, "stays")
        with gate.shut():
            story.provider_says("ProviderUnreachable")
            story.kube.delete(VMS, "leaves", story.team)
            story.vm("comes")
            wait_out(story.registered, 10)
            assert _facts(story, "stays") == before
            assert story.registered.find("leaves") is not None
        story.registered.provider_ready()
        story.registered.gone("leaves")
        story.ready("stays", "comes")
        assert story.registered.vms_of("leaves") == []
        assert story.events("stays").count("ProviderUnreachable") <= 1
        _point_at(story, endpoint)
        story.registered.delete("stays")
        story.registered.delete("comes")


def test_a_vm_restored_without_status_is_the_same_vm_again(story: Story) -> None:
    """Story 19: restore from a backup."""
    known = {name: story.running.made(name) for name in ("kept", "lost")}
    story.running.stop()
    lost = known["lost"]
    tear_out(story.kube, story.registered.plural, "lost", story.team)
    tear_out(story.kube, VMS, "lost", story.team)
    restore(story.kube, saved(lost.vm, status=False))
    story.running.resume()

    for before in known.values():
        story.running.same(before)
    assert len(story.backend_vms()) == 2


def _facts(story: Story, name: str) -> dict[str, object]:
    """What is known about a VM, whoever may log in."""
    status = story.status(name)
    parts = ("phase", "addresses", "observedPowerState", "providerID", "scheduled", "resources")
    return {part: status[part] for part in parts}


def _point_at(story: Story, endpoint: str) -> None:
    """Have the Provider reach its backend there."""
    story.edit_provider(connection={"endpoint": endpoint})
    wait_until(
        lambda: (
            story.provider()["status"].get("observedGeneration")
            == story.provider()["metadata"]["generation"]
        ),
        60,
        "the Provider to be looked at",
    )
    story.registered.provider_ready()
