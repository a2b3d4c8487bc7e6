"""Plays the guests of vCenter simulators that are to become Nodes of workload clusters.

    with GuestPlayer([vcenter], workload) as player:
        ...machines with kubeadm's user data become Nodes; killed ones fall silent...

It knows nothing but what it reads from a VM: metadata and user data in guestinfo, addresses, and
what its image carries (`KUBERNETES_KEY`). It talks to nothing but the workload API, with the
bootstrap token it found. The guests of its vCenters tell nothing by themselves any more
(`bootstrap="never"`): the player writes their word when kubeadm is through.
"""

import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http.client import HTTPException
from types import TracebackType
from typing import Final, Self

from test.kit import guestnode
from test.kit.guestnode import ETCD, SYSTEM, Object
from test.kit.kubeadmseed import Kubeadm, SeedError, guestinfo, read_seed
from test.kit.vcsim_control import ControlError, VCSimControl
from test.kit.vcsim_values import Machine
from test.kit.workloadapi import Part, WorkloadApi, WorkloadApiError
from test.kit.workloadclient import (
    CONFIG_MAPS,
    NODES,
    PODS,
    NotYetError,
    WorkloadClient,
    cluster_info,
    join,
)

KUBERNETES_KEY: Final = "image.kubernetes"
"""Extra configuration of a template: version of the kubelet in the image, such as v1.34.0."""

Choice = Callable[[Kubeadm], bool]
"""Of which guests something is so, by what their seeds tell."""

_PAUSE: Final = 0.25
_SHARE: Final = 3.0
_TELLS_AS: Final = re.compile(r"(?m)^id='([^'\n]*)'$")
_TELLS_TO: Final = re.compile(r"info-set (guestinfo\.[A-Za-z.]+) \$id:")


@dataclass(slots=True)
class Guest:
    """One VM that booted with a seed of kubeadm.

    Attributes:
        vcenter: Where it is.
        machine: As it was seen last.
        told: What its seed told; None as long as it could not be read.
        joined: Whether its Node is registered.
        alive: Whether it runs.
        trouble: Why it is no Node yet; "" when nothing is wrong.
    """

    vcenter: VCSimControl = field(repr=False)
    machine: Machine = field(repr=False)
    told: Kubeadm | None = None
    joined: bool = False
    alive: bool = True
    trouble: str = ""


def nobody(told: Kubeadm) -> bool:
    """None of them."""
    del told
    return False


def everybody(told: Kubeadm) -> bool:
    """All of them."""
    del told
    return True


def joining(told: Kubeadm) -> bool:
    """All but the first control plane."""
    return told.discovery is not None


def planes(told: Kubeadm) -> bool:
    """Those of the control plane."""
    return told.control_plane


class GuestPlayer:
    """All guests of some vCenters.

    Attributes:
        guests: By instance UUID, gone ones included.
        errors: What no guest should have met, for the test to assert that there is none.
        says_provider_id: Whose kubelets register with the provider ID they are given; of the
            others only the system UUID tells who they are.
        held: Whose kubeadm does not begin yet. Both may be changed at any time.
    """

    def __init__(
        self,
        vcenters: Sequence[VCSimControl],
        workload: WorkloadApi,
        *,
        says_provider_id: Choice = everybody,
        held: Choice = nobody,
    ) -> None:
        """Describe it; the `with` block starts and ends it.

        Args:
            vcenters: Whose guests it plays.
            workload: Where their clusters are.
            says_provider_id: Whose kubelets say it at first.
            held: Who is held at first.
        """
        self.guests: dict[str, Guest] = {}
        self.errors: list[str] = []
        self._vcenters, self._workload = tuple(vcenters), workload
        self.says_provider_id, self.held = says_provider_id, held
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._play, name="guests", daemon=True)

    def __enter__(self) -> Self:
        for vcenter in self._vcenters:
            vcenter.guest(bootstrap="never")
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()

    def forget(self, cluster_endpoint: str) -> None:
        """Take a workload cluster away whose machines are gone."""
        self._workload.remove(cluster_endpoint)

    def _play(self) -> None:
        pause = _PAUSE
        while not self._over.wait(pause):
            started = time.monotonic()
            try:
                self._play_all()
            # A player that ended would leave all guests silent, and nobody would know why.
            except Exception as error:  # noqa: BLE001 - top of a loop
                self._note(f"{type(error).__name__}: {error}")
            # Reading what hundreds of VMs say takes long; the guests are not all there is.
            pause = max(_PAUSE, _SHARE * (time.monotonic() - started))

    def _play_all(self) -> None:
        for vcenter in self._vcenters:
            try:
                seen = {it.instance_uuid: it for it in vcenter.vms() if not it.template}
            except (OSError, ControlError):
                continue  # a vCenter that is down for a moment takes no guest down
            self._look(vcenter, seen)

    def _note(self, error: str) -> None:
        if error not in self.errors:
            self.errors.append(error)

    def _look(self, vcenter: VCSimControl, seen: dict[str, Machine]) -> None:
        for uuid, machine in seen.items():
            if uuid in self.guests:
                self.guests[uuid].machine = machine
            elif machine.tools_running and machine.extra_config.get("guestinfo.userdata"):
                self.guests[uuid] = Guest(vcenter, machine)
        for uuid, guest in list(self.guests.items()):
            if guest.vcenter is vcenter:
                running = uuid in seen and seen[uuid].power_state == "poweredOn"
                self._step(guest, running=running, there=uuid in seen)

    def _step(self, guest: Guest, *, running: bool, there: bool) -> None:
        try:
            if running and not guest.joined:
                self._boot(guest)
            elif running != guest.alive and guest.joined:
                self._silent(guest, alive=running)
            elif not there and guest.joined:
                self._forget_pods(guest)
        except (NotYetError, OSError, HTTPException) as error:
            guest.trouble = f"{type(error).__name__}: {error}"
        except (SeedError, WorkloadApiError, ControlError) as error:
            guest.trouble = str(error)
            self._note(str(error))

    # The first boot

    def _boot(self, guest: Guest) -> None:
        told = guest.told = guest.told or read_seed(guest.machine.extra_config)
        if self.held(told):
            guest.trouble = "held"
            return
        client = join(told.discovery) if told.discovery else self._init(told)
        provider_id = told.kubelet.get("provider-id", "") if self.says_provider_id(told) else ""
        version = guest.machine.extra_config.get(KUBERNETES_KEY, "v1.34.0")
        if told.control_plane:
            self._control_plane(told, client)
        client.create(NODES, guestnode.node(told, guest.machine, version, provider_id))
        # Last, as all before may be done again.
        _tell(guest)
        guest.joined, guest.alive, guest.trouble = True, True, ""

    def _init(self, told: Kubeadm) -> WorkloadClient:
        """What `kubeadm init` does before anybody can join."""
        host, _, port = told.endpoint.rpartition(":")
        if host != self._workload.host:
            raise SeedError(f"{told.endpoint} is not where the workload API can be")
        self._workload.add(told.endpoint, int(port))
        self._workload.serve(told.endpoint, "api-servers", f"kube-apiserver-{told.node}", told.ca)
        client = WorkloadClient(told.endpoint, told.ca[0])
        for namespace in (SYSTEM, "kube-public", "default"):
            client.create("/api/v1/namespaces", _named("Namespace", namespace))
        client.create(
            CONFIG_MAPS.format(SYSTEM),
            _named("ConfigMap", "kubeadm-config", SYSTEM, ClusterConfiguration=told.cluster),
        )
        kubeconfig = cluster_info(told.endpoint, told.ca[0])
        client.create(
            CONFIG_MAPS.format("kube-public"),
            _named("ConfigMap", "cluster-info", "kube-public", kubeconfig=kubeconfig),
        )
        return client

    def _control_plane(self, told: Kubeadm, client: WorkloadClient) -> None:
        members = client.members()
        for component in guestnode.STATIC:
            of_etcd = guestnode.etcd_annotations(members) if component == "etcd" else {}
            client.create(PODS, guestnode.static_pod(component, told.node, of_etcd))
        for part, pod, authority in _serving(told):
            self._workload.serve(told.endpoint, part, pod, authority)

    # The end

    def _silent(self, guest: Guest, *, alive: bool) -> None:
        """What everybody else sees of a guest that stopped, or runs again."""
        told = guest.told
        assert told is not None
        client = WorkloadClient(told.endpoint, guest_ca(guest))
        if not alive and not self._served_by_others(told):
            # Its cluster ends with it: there is nobody left who could note it.
            self._serve(told, alive=False)
            guest.alive = False
            return
        if alive:
            self._serve(told, alive=True)
        else:
            self._hand_over(told, client)
        found = client.get(f"{NODES}/{told.node}")
        if found is not None:
            found["status"]["conditions"] = guestnode.conditions("True" if alive else "Unknown")
            client.replace(f"{NODES}/{told.node}", found)
        if not alive:
            self._serve(told, alive=False)
        guest.alive = alive

    def _served_by_others(self, told: Kubeadm) -> bool:
        if told.endpoint not in self._workload.clusters():
            return False
        servers, _ = self._workload.parts(told.endpoint)
        return bool(set(servers) - {f"kube-apiserver-{told.node}"})

    def _serve(self, told: Kubeadm, *, alive: bool) -> None:
        if not told.control_plane or told.endpoint not in self._workload.clusters():
            return
        for part, pod, authority in _serving(told):
            if alive:
                self._workload.serve(told.endpoint, part, pod, authority)
            else:
                self._workload.silence(told.endpoint, part, pod)

    def _hand_over(self, told: Kubeadm, client: WorkloadClient) -> None:
        """Elect another member of etcd when the one that stopped was the leader."""
        members = client.members()
        mine = [it for it in members if it["spec"].get("nodeName") == told.node]
        others = [it for it in members if it not in mine]
        others = [
            it for it in others if f"{ETCD}/member-removed" not in it["metadata"]["annotations"]
        ]
        if not mine or not others or not guestnode.leads(mine[0], members):
            return
        others[0]["metadata"]["annotations"][f"{ETCD}/leader-from"] = guestnode.now()
        client.replace(f"{PODS}/{others[0]['metadata']['name']}", others[0])

    def _forget_pods(self, guest: Guest) -> None:
        """Pods of a Node that was deleted go, as garbage collection of pods has them."""
        told = guest.told
        assert told is not None
        if not told.control_plane or not self._served_by_others(told):
            guest.joined = False
            return
        client = WorkloadClient(told.endpoint, guest_ca(guest))
        if client.get(f"{NODES}/{told.node}") is None:
            for component in guestnode.STATIC:
                client.delete(f"{PODS}/{component}-{told.node}")
            guest.joined = False


def guest_ca(guest: Guest) -> str:
    """The CA a control plane has; "" for a worker, whom its cluster notices by itself."""
    return guest.told.ca[0] if guest.told else ""


def _serving(told: Kubeadm) -> tuple[tuple[Part, str, tuple[str, str]], ...]:
    return (
        ("etcd-members", f"etcd-{told.node}", told.etcd_ca),
        ("api-servers", f"kube-apiserver-{told.node}", told.ca),
    )


def _tell(guest: Guest) -> None:
    """Write the guest's word that its first boot is over, as the script in its seed would."""
    script = guestinfo(guest.machine.extra_config, "vendordata")
    to, as_ = _TELLS_TO.search(script), _TELLS_AS.search(script)
    if to and as_:
        guest.vcenter.change_vm(guest.machine.path, extra_config={to[1]: f"{as_[1]}:done"})


def _named(kind: str, name: str, namespace: str = "", **data: str) -> Object:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    made: Object = {"apiVersion": "v1", "kind": kind, "metadata": metadata}
    return {**made, "data": data} if data else made
