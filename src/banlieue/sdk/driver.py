"""The seam every backend implements.

A driver is one open session to one endpoint. Its verbs are synchronous, idempotent and never wait
for a task of the backend: they start work and return a `Task`, or None when there is nothing left
to do. Frozen values cross the seam; no vendor object, no Kubernetes object, no logger. The SDK
calls the verbs in a bounded thread pool, several at once, so a driver is thread-safe.

Every verb raises only `banlieue.sdk.errors.DriverError`.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from pydantic import SecretBytes, SecretStr

from banlieue.api.infrastructure.machine import MachineSpec
from banlieue.api.types import PowerOffMode, PowerState
from banlieue.api.v1alpha1.provider import Capabilities
from banlieue.api.v1alpha1.vmimage import ImageSource
from banlieue.sdk.identity import Mark, Owner

S = TypeVar("S", bound=MachineSpec)
Target = Mapping[str, str | int]
"""What a storage or network class means on this backend, as the Provider declares it."""


@dataclass(frozen=True, slots=True)
class Connection:
    """How to reach one backend; credentials never show in a repr."""

    provider_namespace: str
    provider_name: str
    endpoints: tuple[str, ...]
    credentials: Mapping[str, SecretStr] = field(repr=False)
    capabilities: Capabilities
    settings: Target = field(default_factory=dict)
    ca_bundle: str | None = None
    thumbprints: tuple[str, ...] = ()
    insecure_skip_tls_verify: bool = False


@dataclass(frozen=True, slots=True)
class MissingPrivilege:
    """A right the account lacks, and the object it is lacking on."""

    privilege: str
    where: str


@dataclass(frozen=True, slots=True)
class About:
    """Which installation answers at the endpoint.

    `identity` is the backend's own lasting id (vCenter instanceUuid, cluster name and CA, host
    UUID): two backends never share it and one never changes it.
    """

    identity: str
    version: str
    missing_privileges: tuple[MissingPrivilege, ...] = ()


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a failure domain has and has left; quantities in whole CPUs and MiB."""

    cpus: int
    memory_mib: int
    free_memory_mib: int
    hosts: int = 1


@dataclass(frozen=True, slots=True)
class FailureDomain:
    """A place whose loss is independent of others, as the driver verified it.

    `id` is the backend's stable id and survives renames; `path` are the words its name is made of.
    Only classes that are really reachable from here are listed; `problems` says what of the
    Provider's declaration is not, one sentence each. `bound` tells that VMs are kept in it by a
    rule that is written for each of them (`banlieue.sdk.upkeep`).
    """

    id: str
    path: tuple[str, ...]
    storage_classes: tuple[str, ...] = ()
    network_classes: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    capacity: Capacity | None = None
    schedulable: bool = True
    labels: Mapping[str, str] = field(default_factory=dict)
    raw: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    bound: bool = False


@dataclass(frozen=True, slots=True)
class Image:
    """An image as found on the backend; `handle` means something to this driver only."""

    handle: str
    disk_gib: int | None = None
    firmware: str | None = None
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class MachineRef:
    """Which VM is meant.

    `uuid` is None before the mint: the look-up then goes by name and mark over the whole Provider.
    `seen` tells that the VM was on the backend before (`spec.providerID` is set), which decides
    what proves absence. `backend_id` is a hint and may be stale. `failure_domain` is the id of the
    place where a create was or would be sent. `incoming` tells that the machine is the target of
    a move that is not committed, as its mark says then. `fresh` tells that this very process made
    the UUID up, after the driver had found no VM, and means to make the VM: nobody else did yet.
    """

    owner: Owner
    epoch: int
    name: str
    uuid: str | None = None
    seen: bool = False
    backend_id: str | None = None
    failure_domain: str | None = None
    incoming: bool = False
    fresh: bool = False


@dataclass(frozen=True, slots=True)
class DiskPlan:
    """One disk as it should be; the first of a plan is the root disk, copied from the image.

    `existing` is the id of a kept disk to attach instead of making one (`KeptDisk.id`).
    """

    name: str
    size_gib: int | None
    storage: Target
    retain: bool = False
    existing: str | None = None


@dataclass(frozen=True, slots=True)
class DiskRemoval:
    """One disk that is to go from a VM: kept under an id, or destroyed when that is None."""

    name: str
    keep_as: str | None


@dataclass(frozen=True, slots=True)
class AddressPlan:
    """One address family of an interface; `source` as in the API, `address` without prefix."""

    family: str
    source: str
    address: str | None = None
    prefix: int | None = None
    gateway: str | None = None


@dataclass(frozen=True, slots=True)
class NicPlan:
    """One interface as it should be; everything of its network class is resolved."""

    name: str
    network: Target
    mac_address: str | None = None
    connected: bool = True
    addresses: tuple[AddressPlan, ...] = ()
    nameservers: tuple[str, ...] = ()
    search_domains: tuple[str, ...] = ()
    mtu: int | None = None


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """First-boot data; secret types, so that no repr shows them."""

    user_data: SecretBytes | None = None
    user_data_format: str = "cloud-config"
    network_data: SecretBytes | None = None
    ssh_authorized_keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MachinePlan(Generic[S]):
    """What should be: everything resolved, nothing left to look up but backend objects.

    `ref.uuid` is set. `mark` is written in the creating call itself. `spec` is the backend's own
    part of the machine; the common part stands resolved in the other fields. `image` and
    `bootstrap` are there for a create only. `restart` asks `update` for a restart and for nothing
    else, `power_only` for the power state and for nothing else: classes are left unresolved then.
    `left_alone` are names of interfaces that an adopted VM came along with: they stay as they are.
    """

    ref: MachineRef
    mark: Mark
    spec: S
    provider_id: str
    failure_domain: FailureDomain
    image: Image | None
    hostname: str
    cpus: int
    memory_mib: int
    firmware: str
    features: tuple[str, ...] = ()
    disks: tuple[DiskPlan, ...] = ()
    nics: tuple[NicPlan, ...] = ()
    power: PowerState = PowerState.POWERED_ON
    power_off_mode: PowerOffMode = PowerOffMode.TRY_SOFT
    power_off_timeout: float = 120.0
    restart: bool = False
    power_only: bool = False
    removals: tuple[DiskRemoval, ...] = ()
    left_alone: frozenset[str] = frozenset()
    bootstrap: Bootstrap = Bootstrap()
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Address:
    """An address as the Cluster API contract types it: InternalIP, Hostname and so on."""

    type: str
    address: str


@dataclass(frozen=True, slots=True)
class DiskState:
    """One disk found on the VM; `name` only when a plan of ours made or attached it."""

    id: str
    name: str | None = None
    size_gib: int | None = None
    guest_path: str | None = None


@dataclass(frozen=True, slots=True)
class NicState:
    """One network interface found on the VM.

    `name` only when a plan of ours made it. `network` is the backend's own word for what it is
    plugged into, for people; `plugged` gives for each key of a network class's target all values
    that mean it, as text, None where the driver cannot tell. `connected` is what the guest sees
    while the VM runs, and what it will see when it starts while it does not.
    """

    id: str
    name: str | None = None
    mac_address: str | None = None
    network: str | None = None
    connected: bool = True
    plugged: Mapping[str, Collection[str]] | None = None


@dataclass(frozen=True, slots=True)
class Guest:
    """What the guest's agent tells."""

    hostname: str | None = None
    os_name: str | None = None
    agent_connected: bool = False


@dataclass(frozen=True, slots=True)
class Seed:
    """Where the first boot of a VM stands that was made with first-boot data of ours.

    `secret` tells whether it was given user data, and `kept` that this can still be read on the
    backend. `done` is the guest's own word: whether its first boot went well; None before that is
    over, or where the guest cannot tell.
    """

    secret: bool
    kept: bool
    done: bool | None = None


@dataclass(frozen=True, slots=True)
class MachineState:
    """What is. `uuid` is the VM's own and `mark` what is written on it, valid or not.

    `nics` is None where the driver cannot tell which interfaces there are, or which are ours: then
    nobody takes one for missing. `lost_disks` are names of disks that a plan of ours made or
    attached and that somebody else took off since: never made anew. `last_boot` is when it was last
    powered on or restarted, as far as the backend tells: RFC 3339 in UTC. `question` is what the
    backend asks and waits with the VM until an admin has answered, in its own words, bounded.
    `seed` is None where the VM was made without first-boot data of ours, or nobody can tell.
    """

    name: str
    uuid: str
    backend_id: str
    mark: Mark | None
    power: PowerState
    failure_domain: str | None = None
    host: str | None = None
    addresses: tuple[Address, ...] = ()
    cpus: int | None = None
    memory_mib: int | None = None
    disks: tuple[DiskState, ...] = ()
    lost_disks: tuple[str, ...] = ()
    nics: tuple[NicState, ...] | None = None
    guest: Guest = Guest()
    foreign_task: bool = False
    held: bool = False
    last_boot: str | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
    question: str | None = None
    seed: Seed | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """Unfinished work on the backend.

    `handle` is the backend's own id of it and goes into `status.task`; `poll_after` is how many
    seconds to wait before asking again when no change feed reports it. `seconds_left` is there when
    the work has a deadline, such as that of a guest that was asked to stop. `question` is what the
    backend waits with the work for an admin to answer.
    """

    handle: str
    operation: str
    poll_after: float = 5.0
    seconds_left: float | None = None
    question: str | None = None


RESTART = "restart"
"""The operation of a task that restarts a VM."""


class Driver(Protocol[S]):
    """One open session to one endpoint. Synchronous, idempotent, never waits for a task.

    A session that a driver renews by itself leads to the installation it was opened at. Where
    another one answers, every verb but `about` raises `NeedsOperator` with BackendIdentityChanged:
    what is not found there proves nothing.
    """

    def about(self) -> About:
        """Who answers, its version, and which rights are missing."""

    def failure_domains(self) -> Sequence[FailureDomain]:
        """All failure domains with what is verified to be reachable from each."""

    def find_image(self, image: ImageSource, where: FailureDomain) -> Image | None:
        """The image as it can be used in that failure domain, None when it is not there."""

    def observe(self, ref: MachineRef) -> MachineState | None:
        """The VM that has the machine's UUID, or else its name; ours or not.

        None is a proof of absence: with `ref.seen` that a VM once known is gone, without it that
        none was made and none is being made. Anything weaker raises `AbsenceUnproven`; two VMs
        that both could be meant raise `Foreign`.
        """

    def create(self, plan: MachinePlan[S]) -> Task | None:
        """Make the VM with its name, UUID and mark in the creating call.

        Called only after `observe` answered None; a create of the same plan that is already under
        way, or a lost reply, ends in the same VM. Raises `Refused` when certainly nothing was made.
        """

    def update(self, plan: MachinePlan[S], seen: MachineState) -> Task | None:
        """Take one step from `seen` towards the plan; None when there is nothing left to do.

        Interfaces of the plan that are missing are added, and those that an earlier plan of ours
        added and this one lacks are removed; one that somebody else added stays. Those that are
        there are plugged into the plan's network, connected or disconnected; the MAC address of an
        interface never changes. What a driver cannot do it leaves undone, and the caller says so.

        Disks of the plan that were never there are made, or attached when they are `existing` (a
        VM that is off is not started without them), smaller ones are grown; none ever shrinks, and
        `removals` are taken off. A lost disk is left to whoever took it off.

        Raises `NeedsOperator` with reason RestartRequired when all that is left can only take
        effect at the next power cycle; a VM that is off gets it before it is started. What a
        snapshot, a linked clone or a backup forbids at the moment is found out before it is tried,
        and raised with BlockedBySnapshot, BlockedByLinkedClone or BackupInProgress when nothing
        else is left.

        With `plan.restart` it restarts a VM that is on, and does nothing else: Soft asks the guest,
        TrySoft resets the VM when the guest has not obeyed by `power_off_timeout`, Hard resets it
        at once. The caller asks once for each restart; the task, of operation `RESTART`, ends when
        the guest went down, and fails when it did not.
        """

    def delete(self, ref: MachineRef) -> Task | None:
        """Take one step towards "gone": stop, then destroy. None when nothing is left to do.

        The caller has compared the mark and detached every disk that must live on. Never passes a
        flag that destroys disks the VM does not reference.
        """

    def poll(self, task: Task) -> Task | None:
        """The task if it still runs, None when it ended well or nobody knows it any more.

        Where one task is followed by another for the same step, it is that one from then on.

        Raises the error the task failed with.
        """
