"""Hosts for machines of a group, where the cluster chooses none."""

from dataclasses import replace

from banlieue.providers.vsphere.places.placement import Plan
from banlieue.providers.vsphere.vms.spreading import Spreading
from banlieue.providers.vsphere.watching.records import Records
from test.kit.vsphere_places import plan

HOSTS = ("host-1", "host-2", "host-3")


def _load(host: str) -> int:
    return HOSTS.index(host)


def _machine(number: int, group: str | None = "etcd", namespace: str = "team") -> Plan:
    made = plan(anti_affinity_group=group)
    owner = replace(made.ref.owner, namespace=namespace, name=f"web-{number}")
    uuid = f"00000000-0000-4000-8000-{number:012}"
    return replace(made, ref=replace(made.ref, owner=owner, uuid=uuid))


def _chosen(spreading: Spreading, machine: Plan) -> str:
    host = min(HOSTS, key=spreading.load(machine, _load))
    spreading.note(machine, host)
    return host


def test_machines_of_a_group_go_to_hosts_of_their_own_as_long_as_there_are_any() -> None:
    spreading = Spreading(records=Records())
    chosen = [_chosen(spreading, _machine(number)) for number in range(4)]
    assert chosen == ["host-1", "host-2", "host-3", "host-1"]
    assert _chosen(spreading, _machine(8, namespace="other")) == "host-1"
    assert _chosen(spreading, _machine(9, group=None)) == "host-1"
    spreading.left(_machine(3).ref.uuid or "")
    assert _chosen(spreading, _machine(0)) == "host-1", "a machine is not in its own way"


def test_where_a_machine_is_now_counts_and_one_that_left_does_not() -> None:
    records = Records()
    spreading = Spreading(records=records)
    first, second = _machine(1), _machine(2)
    assert _chosen(spreading, first) == "host-1"
    record = records.ensure("vm-1")
    record.uuid, record.host = first.ref.uuid, "host-2"  # it was moved there
    assert _chosen(spreading, second) == "host-1"
    spreading.left(second.ref.uuid or "")
    assert _chosen(spreading, _machine(3)) == "host-1"
    spreading.note(replace(first, spec=first.spec.model_copy(update={"anti_affinity_group": None})))
    spreading.left(_machine(3).ref.uuid or "")
    assert _chosen(spreading, _machine(4)) == "host-1"
    assert _chosen(spreading, _machine(5)) == "host-2", "who left the group is in nobody's way"
