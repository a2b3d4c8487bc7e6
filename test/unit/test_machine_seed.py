"""User data leaves the backend once the guest has had it: not before, and only from our VM."""

import base64
import gzip
import hashlib
import json
from datetime import timedelta
from typing import Any

import pytest

from banlieue.api import names
from banlieue.api.resources import PROVIDERS, SECRETS, VM_IMAGES
from banlieue.sdk.kube import Key
from banlieue.sdk.machine import seed
from banlieue.sdk.simulated.faults import Effect
from banlieue.sdk.simulated.models import SIMULATED_MACHINES
from banlieue.sdk.simulated.records import Vm
from test.kit.machinebench import MACHINE, NAMESPACE, PROVIDER, MachineBench

USER_DATA = b"#cloud-config\npassword: planted-user-data-0815\n"


def give(bench: MachineBench, data: bytes = USER_DATA, **more: str) -> dict[str, Any]:
    """Store user data; the fields of a machine that is given it."""
    encoded = {"value": data, **{key: text.encode() for key, text in more.items()}}
    bench.api.put(
        SECRETS,
        {
            "metadata": {"namespace": NAMESPACE, "name": "seed"},
            "data": {key: base64.b64encode(value).decode() for key, value in encoded.items()},
        },
    )
    return {"userData": {"secretRef": {"name": "seed"}}}


def vm(bench: MachineBench) -> Vm:
    (found,) = bench.vms()
    return found


def calls(bench: MachineBench, method: str = "redact") -> int:
    made = bench.control("calls")
    assert isinstance(made, dict)
    return int(made.get(method, 0))


def message(bench: MachineBench, kind: str = "SeedRedacted") -> str:
    told = bench.machine()["status"]["conditions"]
    return str(next(it["message"] for it in told if it["type"] == kind))


async def settled(bench: MachineBench) -> None:
    """Passes until the guest is up and has told what it tells, and all follows from that."""
    for _ in range(5):
        await bench.run()
        bench.clock.advance(1.0)


async def boot(bench: MachineBench, tells: str = "done") -> None:
    """Make a machine with user data, and let its guest boot."""
    bench.control("set_image", image={"ref": "ubuntu-24.04", "tells": tells})
    bench.make_machine(**give(bench))
    await settled(bench)


@pytest.mark.identity("11.2")
async def test_it_is_cleared_once_the_guest_told() -> None:
    bench = MachineBench()
    await boot(bench)
    assert vm(bench).read_digest == hashlib.sha256(USER_DATA).hexdigest(), "the guest had it"
    assert vm(bench).seed_digest is None
    assert bench.condition("SeedRedacted") == ("True", "SeedRedacted")
    assert bench.condition("GuestBootstrapped") == ("True", "GuestBootstrapped")
    assert bench.condition("Ready") == ("True", "Ready")
    assert bench.machine()["status"]["seed"]["redactedAt"]
    assert calls(bench) == 1
    before = bench.machine()["metadata"]["resourceVersion"]
    looks = calls(bench, "find")
    await bench.reconciler.reconcile(MACHINE)
    assert calls(bench, "find") == looks + 1, "what was proved is not asked for again"
    assert calls(bench) == 1
    assert bench.machine()["metadata"]["resourceVersion"] == before, "nothing is written again"


async def test_ready_does_not_wait_for_it() -> None:
    bench = MachineBench()
    await boot(bench, tells="")
    assert vm(bench).seed_digest is not None
    assert bench.condition("Ready") == ("True", "Ready")
    assert bench.condition("SeedRedacted") == ("False", "GuestBootstrapPending")
    assert bench.condition("GuestBootstrapped") == ("False", "GuestBootstrapPending")


async def test_a_machine_without_user_data_says_nothing_of_it() -> None:
    bench = MachineBench()
    bench.make_machine()
    await settled(bench)
    assert bench.condition("SeedRedacted") == ("", "")
    assert bench.condition("GuestBootstrapped") == ("True", "GuestBootstrapped")
    assert calls(bench) == 0


async def test_a_guest_that_failed_finds_it_at_its_next_boot() -> None:
    bench = MachineBench()
    await boot(bench, tells="error")
    assert bench.condition("GuestBootstrapped") == ("False", "GuestBootstrapFailed")
    assert vm(bench).seed_digest is not None
    bench.control("set_first_boot", vm=vm(bench).id, tells="")
    bench.control("set_power", vm=vm(bench).id, power="PoweredOff")
    bench.control("set_power", vm=vm(bench).id, power="PoweredOn")
    vm(bench).tells = "done"
    await settled(bench)
    assert vm(bench).read_digest == hashlib.sha256(USER_DATA).hexdigest(), "it was there again"
    assert bench.condition("GuestBootstrapped") == ("True", "GuestBootstrapped")
    assert vm(bench).seed_digest is None


async def test_a_guest_that_never_tells_has_had_it_after_a_day() -> None:
    bench = MachineBench()
    await boot(bench, tells="")
    result = await bench.reconciler.reconcile(MACHINE)
    assert result.requeue_after is not None
    assert seed.DAY - 60 < result.requeue_after <= seed.DAY
    bench.clock.advance(seed.DAY - 60)
    await settled(bench)
    assert vm(bench).seed_digest is not None, "not before"
    bench.clock.advance(120)
    await settled(bench)
    assert vm(bench).seed_digest is None
    assert bench.condition("SeedRedacted") == ("True", "SeedRedacted")
    assert bench.condition("GuestBootstrapped") == ("False", "GuestBootstrapPending"), (
        "nobody knows"
    )


async def test_the_day_begins_anew_with_every_boot_and_needs_a_guest_that_runs() -> None:
    bench = MachineBench()
    await boot(bench, tells="")
    bench.control("hang_guest", vm=vm(bench).id)
    bench.clock.advance(2 * seed.DAY)
    await settled(bench)
    assert vm(bench).seed_digest is not None, "a guest that hangs may not have read anything"
    vm(bench).guest_hung = False
    bench.control("set_power", vm=vm(bench).id, power="PoweredOff")
    bench.control("set_power", vm=vm(bench).id, power="PoweredOn")
    await settled(bench)
    assert vm(bench).seed_digest is not None, "it was restarted a moment ago"


# Hands off


@pytest.mark.parametrize("way", ["spec", "annotation"])
async def test_a_paused_machine_keeps_it(way: str) -> None:
    bench = MachineBench()
    await boot(bench, tells="")
    if way == "spec":
        bench.edit(paused=True)
    else:
        pause = {names.CAPI_ANNOTATION_PAUSED: ""}
        bench.api.edit(
            SIMULATED_MACHINES, MACHINE, lambda obj: obj["metadata"].update(annotations=pause)
        )
    bench.control("set_first_boot", vm=vm(bench).id, tells="done")
    await settled(bench)
    assert vm(bench).seed_digest is not None
    assert calls(bench) == 0


async def test_a_read_only_provider_keeps_it_and_says_why() -> None:
    bench = MachineBench()
    await boot(bench, tells="")
    bench.served.writable = False
    bench.control("set_first_boot", vm=vm(bench).id, tells="done")
    await settled(bench)
    assert calls(bench) == 0
    assert bench.condition("SeedRedacted") == ("False", "ProviderPaused")
    assert bench.condition("Ready") == ("True", "Ready")
    bench.served.writable = True
    await settled(bench)
    assert vm(bench).seed_digest is None


async def test_a_held_vm_keeps_it_until_the_hold_ends() -> None:
    bench = MachineBench()
    await boot(bench, tells="")
    bench.control("hold", vm=vm(bench).id)
    bench.control("set_first_boot", vm=vm(bench).id, tells="done")
    await settled(bench)
    assert bench.condition("SeedRedacted") == ("False", "HeldByBackend")
    assert calls(bench) == 0
    bench.control("hold", vm=vm(bench).id, held=False)
    await settled(bench)
    assert vm(bench).seed_digest is None


async def test_nothing_is_cleared_while_somebody_else_works_on_the_vm() -> None:
    bench = MachineBench()
    await boot(bench, tells="")
    bench.control("run_task", vm=vm(bench).id, seconds=100.0)
    bench.control("set_first_boot", vm=vm(bench).id, tells="done")
    await bench.reconciler.reconcile(MACHINE)
    assert bench.condition("SeedRedacted") == ("False", "ProviderBusy")
    assert calls(bench) == 0
    bench.clock.advance(120)
    await settled(bench)
    assert vm(bench).seed_digest is None


async def test_a_suspended_vm_is_woken_first() -> None:
    bench = MachineBench()
    await boot(bench, tells="")
    bench.edit(powerState="Suspended")
    bench.control("set_power", vm=vm(bench).id, power="Suspended")
    bench.control("set_first_boot", vm=vm(bench).id, tells="done")
    await settled(bench)
    assert calls(bench) == 0
    assert bench.condition("SeedRedacted") == ("False", "RestartRequired")
    bench.edit(powerState="PoweredOn")
    await settled(bench)
    assert vm(bench).seed_digest is None


async def test_a_vm_that_is_not_ours_is_left_alone() -> None:
    bench = MachineBench()
    await boot(bench, tells="")
    bench.control("set_mark", vm=vm(bench).id, mark=None)
    bench.control("set_first_boot", vm=vm(bench).id, tells="done")
    await settled(bench)
    assert vm(bench).seed_digest is not None
    assert calls(bench) == 0
    assert bench.condition("Ready")[1] == "OwnershipConflict"


async def test_a_namespace_that_lost_the_provider_keeps_it() -> None:
    bench = MachineBench()
    await boot(bench, tells="")
    bench.api.edit(
        PROVIDERS, PROVIDER, lambda obj: obj["spec"].update(allowedNamespaces={"from": "Same"})
    )
    bench.control("set_first_boot", vm=vm(bench).id, tells="done")
    await settled(bench)
    assert calls(bench) == 0
    assert bench.condition("SeedRedacted") == ("False", "ProviderNotAllowed")


# Faults


@pytest.mark.parametrize("effect", [Effect.CUT, Effect.LOSE_REPLY, Effect.REFUSE, Effect.FAIL_TASK])
async def test_a_call_that_fails_is_made_again(effect: Effect) -> None:
    bench = MachineBench()
    rule = {"effect": effect, "method": "redact", "code": "Busy", "count": 2}
    bench.control("inject", rule=rule)
    await boot(bench)
    assert bench.condition("Ready") == ("True", "Ready"), "it keeps nothing else up"
    for _ in range(6):
        bench.clock.advance(60)
        await settled(bench)
    assert vm(bench).seed_digest is None
    assert bench.condition("SeedRedacted") == ("True", "SeedRedacted")


async def test_a_crash_at_any_moment_ends_the_same() -> None:
    for steps in range(1, 12):
        bench = MachineBench(seed=steps)
        bench.make_machine(**give(bench))
        for _ in range(steps):
            result = await bench.reconciler.reconcile(MACHINE)
            bench.clock.advance(result.requeue_after or 0.5)
        bench.restart()
        await settled(bench)
        assert vm(bench).read_digest == hashlib.sha256(USER_DATA).hexdigest(), steps
        assert vm(bench).seed_digest is None, steps
        assert bench.condition("SeedRedacted") == ("True", "SeedRedacted"), steps


async def test_a_lost_status_is_told_again_after_another_look() -> None:
    bench = MachineBench()
    await boot(bench)
    bench.api.edit(SIMULATED_MACHINES, MACHINE, lambda obj: obj.update(status={}))
    await settled(bench)
    assert bench.condition("SeedRedacted") == ("True", "SeedRedacted")
    assert calls(bench) == 1, "there was nothing left to clear"


async def test_a_seed_that_comes_back_with_a_snapshot_is_cleared_again() -> None:
    bench = MachineBench()
    await boot(bench)
    vm(bench).seed_digest = "as it was"
    await settled(bench)
    assert vm(bench).seed_digest is None
    assert calls(bench) == 2


async def test_a_machine_that_is_deleted_meanwhile_goes() -> None:
    bench = MachineBench()
    await boot(bench, tells="")
    bench.control("set_first_boot", vm=vm(bench).id, tells="done")
    await bench.reconciler.reconcile(MACHINE)
    bench.delete()
    await settled(bench)
    assert bench.vms() == []
    assert bench.machine() == {}


async def test_what_a_guest_told_once_holds_while_it_is_off() -> None:
    bench = MachineBench()
    await boot(bench)
    bench.control("set_first_boot", vm=vm(bench).id, tells="")
    bench.control("set_power", vm=vm(bench).id, power="PoweredOff")
    await settled(bench)
    assert bench.condition("GuestBootstrapped") == ("True", "GuestBootstrapped")


# What is looked at before anything is made


def image_reads(bench: MachineBench, reader: str) -> None:
    bench.api.edit(VM_IMAGES, Key("", "ubuntu"), lambda obj: obj["spec"].update(bootstrap=reader))


IGNITION = {"ignition": {"version": "3.4.0"}, "planted": "planted-user-data-0815"}


@pytest.mark.parametrize(
    ("reader", "data", "more", "words"),
    [
        ("ignition", b"{planted-user-data-0815", {}, "is not JSON"),
        ("ignition", b'{"ignition":{"version":"4.0.0"}}', {}, "3.x"),
        ("ignition", USER_DATA, {"format": "cloud-config"}, "the image reads ignition"),
        ("cloud-init", json.dumps(IGNITION).encode(), {}, "set format: ignition"),
        ("cloud-init", json.dumps(IGNITION).encode(), {"format": "ignition"}, "reads cloud-config"),
        ("cloud-init", b" \n", {}, "is empty"),
        ("cloud-init", USER_DATA, {"format": "planted"}, "must be one of"),
    ],
)
async def test_data_the_guest_cannot_read_is_refused_before_anything_is_made(
    reader: str, data: bytes, more: dict[str, str], words: str
) -> None:
    bench = MachineBench()
    image_reads(bench, reader)
    bench.make_machine(**give(bench, data, **more))
    await bench.run()
    assert bench.vms() == []
    assert bench.condition("Ready") == ("False", "UserDataInvalid")
    told = message(bench, "Ready")
    assert words in told
    assert "planted" not in json.dumps(bench.machine()["status"])


@pytest.mark.parametrize("reader", ["cloud-init", "ignition"])
async def test_network_data_is_for_cloud_init_and_looked_at(reader: str) -> None:
    bench = MachineBench()
    image_reads(bench, reader)
    give(bench, b"version: [planted")
    network: dict[str, Any] = {"networkData": {"secretRef": {"name": "seed"}, "key": "value"}}
    bench.make_machine(**network)
    await bench.run()
    assert bench.vms() == []
    assert bench.condition("Ready") == ("False", "UserDataInvalid")
    assert "networkData" in message(bench, "Ready")
    assert "planted" not in json.dumps(bench.machine()["status"])


@pytest.mark.parametrize("reader", ["cloud-init", "ignition"])
async def test_the_format_is_what_the_image_reads_unless_the_secret_says_more(reader: str) -> None:
    bench = MachineBench()
    image_reads(bench, reader)
    data = json.dumps(IGNITION).encode() if reader == "ignition" else gzip.compress(USER_DATA)
    bench.make_machine(**give(bench, data))
    await bench.run()
    assert bench.condition("Ready") == ("True", "Ready")
    assert vm(bench).given


async def test_time_of_the_proof_is_the_time_of_the_pass() -> None:
    bench = MachineBench()
    await boot(bench, tells="")
    bench.clock.advance(timedelta(hours=1).total_seconds())
    bench.control("set_first_boot", vm=vm(bench).id, tells="done")
    earliest = bench.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
    await settled(bench)
    assert bench.machine()["status"]["seed"]["redactedAt"] >= earliest
