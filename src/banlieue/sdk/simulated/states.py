"""Translation between plans and states of the SDK and the records of a world."""

import hashlib
from typing import Any

from banlieue.api.types import PowerState
from banlieue.api.v1alpha1.provider import Capabilities
from banlieue.sdk.driver import (
    Address,
    Capacity,
    DiskState,
    FailureDomain,
    Guest,
    MachinePlan,
    MachineState,
    NicPlan,
    NicState,
    Seed,
)
from banlieue.sdk.identity import Mark
from banlieue.sdk.simulated import disks
from banlieue.sdk.simulated.disks import STORAGE_KEY
from banlieue.sdk.simulated.models import SimulatedMachineSpec

Json = dict[str, Any]
Plan = MachinePlan[SimulatedMachineSpec]

NETWORK_KEY = "network"
_DYNAMIC = frozenset({"dhcp", "slaac"})
_INITIAL = {
    PowerState.POWERED_ON: PowerState.POWERED_ON,
    PowerState.POWERED_OFF: PowerState.POWERED_OFF,
    PowerState.SUSPENDED: PowerState.POWERED_OFF,
}


def vm_spec(plan: Plan) -> Json:
    """The parameters of the create call for a plan; the user data travels as a digest only."""
    user_data = plan.bootstrap.user_data
    seed = hashlib.sha256(user_data.get_secret_value()).hexdigest() if user_data else None
    return {
        "name": plan.ref.name,
        "uuid": plan.ref.uuid,
        "domain": plan.failure_domain.id,
        "mark": plan.mark.encode(),
        "image": plan.image.handle if plan.image else None,
        "cpus": plan.cpus,
        "memory_mib": plan.memory_mib,
        "firmware": plan.firmware,
        "hostname": plan.hostname,
        "seed_digest": seed,
        "seeded": True,
        "tags": dict(plan.tags),
        "disks": [disks.disk_spec(disk) for disk in plan.disks],
        "nics": [_nic_spec(nic) for nic in plan.nics],
        "power": _INITIAL[plan.power],
    }


def _nic_spec(nic: NicPlan) -> Json:
    static = [plan.address for plan in nic.addresses if plan.address]
    return {
        "name": nic.name,
        "network": str(nic.network[NETWORK_KEY]),
        "mac": nic.mac_address,
        "connected": nic.connected,
        "static": static,
        "dhcp": not nic.addresses or any(plan.source in _DYNAMIC for plan in nic.addresses),
    }


def hardware(plan: Plan, vm: Json) -> Json | None:
    """What a reconfigure of the VM has to say, None when its hardware is as planned."""
    connected = {nic["name"]: nic["connected"] for nic in vm["nics"] if nic["name"]}
    wanted = {nic.name: nic.connected for nic in plan.nics if nic.name in connected}
    planned = {nic.name for nic in plan.nics} | plan.left_alone
    added = [_nic_spec(nic) for nic in plan.nics if nic.name not in connected]
    gone = [nic["mac"] for nic in vm["nics"] if nic["name"] and nic["name"] not in planned]
    wanted_disks, destroyed = disks.wanted(plan, vm), disks.destroyed(plan, vm)
    there = {nic["name"]: nic["network"] for nic in vm["nics"] if nic["name"]}
    networks = {
        nic.name: str(nic.network[NETWORK_KEY]) for nic in plan.nics if nic.name in connected
    }
    same = (
        plan.cpus == vm["cpus"]
        and plan.memory_mib == vm["memory_mib"]
        and not (added or gone or wanted_disks or destroyed)
        and all(there[name] == network for name, network in networks.items())
        and all(connected[name] == value for name, value in wanted.items())
    )
    if same:
        return None
    return {
        "cpus": plan.cpus,
        "memory_mib": plan.memory_mib,
        "disks": wanted_disks,
        "destroyed": destroyed,
        "connected": wanted,
        "networks": networks,
        "nics": added,
        "unplugged": gone,
    }


def machine_state(vm: Json) -> MachineState:
    """A VM record as the SDK sees it."""
    addresses = [
        Address("InternalIP", address)
        for nic in vm["nics"]
        if vm["guest_up"] and nic["connected"]
        for address in nic["addresses"]
    ]
    if vm["guest_up"] and vm["hostname"]:
        addresses.append(Address("Hostname", vm["hostname"]))
    guest = Guest(vm["hostname"] or None, vm["os_name"] or None, agent_connected=True)
    return MachineState(
        name=vm["name"],
        uuid=vm["uuid"],
        backend_id=vm["id"],
        mark=Mark.decode(vm["mark"]),
        power=PowerState(vm["power"]),
        failure_domain=vm["domain"],
        host=vm["host"],
        addresses=tuple(addresses),
        cpus=vm["cpus"],
        memory_mib=vm["memory_mib"],
        disks=tuple(
            DiskState(
                id=disk["id"],
                name=disk["name"],
                size_gib=disk["size_gib"],
                guest_path=f"/dev/disk/by-id/virtio-{disk['id']}",
            )
            for disk in vm["disks"]
        ),
        lost_disks=tuple(disks.lost(vm)),
        nics=tuple(
            NicState(
                id=nic["mac"],
                name=nic["name"],
                mac_address=nic["mac"],
                network=nic["network"],
                connected=nic["connected"],
                plugged={NETWORK_KEY: frozenset({nic["network"]})},
            )
            for nic in vm["nics"]
        ),
        guest=guest if vm["guest_up"] else Guest(),
        foreign_task=vm["foreign_task"],
        held=vm["held"],
        last_boot=vm["last_boot"],
        seed=_seed(vm),
    )


def _seed(vm: Json) -> Seed | None:
    """Where the first boot stands. What a guest told once, the world remembers."""
    if not vm["seeded"]:
        return None
    told = {"done": True, "error": False}.get(vm["first_boot"])
    return Seed(secret=vm["given"], kept=vm["seed_digest"] is not None, done=told)


def domain_state(domain: Json, capabilities: Capabilities) -> FailureDomain:
    """A failure domain with the declared classes that are really there."""
    storage, storage_problems = _reachable(
        [(item.name, item.target.get(STORAGE_KEY)) for item in capabilities.storage_classes],
        domain["pools"],
        "storage class {} needs the pool {}, which is not there",
    )
    networks, network_problems = _reachable(
        [(item.name, item.target.get(NETWORK_KEY)) for item in capabilities.network_classes],
        domain["networks"],
        "network class {} needs the network {}, which is not there",
    )
    usable = [host for host in domain["hosts"] if host["connected"] and not host["maintenance"]]
    return FailureDomain(
        id=domain["id"],
        path=tuple(domain["path"]),
        storage_classes=storage,
        network_classes=networks,
        capacity=Capacity(
            cpus=sum(host["cpus"] for host in usable),
            memory_mib=sum(host["memory_mib"] for host in usable),
            free_memory_mib=max(0, sum(domain["free_memory"].values())),
            hosts=len(usable),
        ),
        schedulable=bool(usable),
        labels=domain["labels"],
        problems=storage_problems + network_problems,
    )


def _reachable(
    declared: list[tuple[str, str | int | None]], there: list[str], problem: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    found = tuple(name for name, target in declared if target is not None and str(target) in there)
    missing = [(name, target) for name, target in declared if name not in found]
    return found, tuple(problem.format(name, target) for name, target in missing)
