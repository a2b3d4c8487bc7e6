"""What a simulated hypervisor is made of: plain records, kept in memory or in a state file."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

ON = "PoweredOn"
OFF = "PoweredOff"
SUSPENDED = "Suspended"

DONE = "done"
"""What a guest tells when its first boot went well; `error` when not, nothing when it cannot."""

MIB_PER_GIB = 1024


class Record(BaseModel):
    """Base of all records: no unknown fields, assignments are not re-validated."""

    model_config = ConfigDict(extra="forbid")


class Fault(Record):
    """The world's own error: a code a driver maps, and words for people."""

    code: str
    message: str


class Host(Record):
    """A machine that runs VMs; one that is not connected or in maintenance takes no new ones."""

    name: str
    cpus: int = 64
    memory_mib: int = 512 * MIB_PER_GIB
    connected: bool = True
    maintenance: bool = False

    @property
    def usable(self) -> bool:
        """Whether new VMs may start here."""
        return self.connected and not self.maintenance


class Domain(Record):
    """A failure domain. VM names are unique in one domain, not across domains."""

    id: str
    path: tuple[str, ...]
    hosts: list[Host]
    pools: list[str]
    networks: list[str]
    images: list[str]
    labels: dict[str, str] = {}


class Image(Record):
    """A source of root disks; `imported` tells that an account brought it, not an admin."""

    ref: str
    disk_gib: int = 8
    firmware: str | None = None
    os_name: str = "Linux"
    tells: str = DONE
    imported: bool = False
    size: int | None = None


class Part(Record):
    """An image that is being brought, in bytes so far; `touched` is in seconds."""

    id: str
    name: str
    domain: str
    size: int = 0
    touched: float


class Disk(Record):
    """A disk and what is on it: `content` stands for the data and never changes by itself.

    `name` is the name in the plan of the VM that made it; foreign disks have none. `kept` is what a
    detached disk is found by, and `keeper` whose it is: both stay while it is attached again.
    """

    id: str
    pool: str
    size_gib: int
    content: str
    name: str | None = None
    kept: str | None = None
    keeper: str | None = None


class Nic(Record):
    """A network interface; `addresses` are what the guest reports once it is up.

    `name` is the name in the plan that made it; foreign interfaces have none.
    """

    name: str | None
    network: str
    mac: str
    connected: bool = True
    addresses: tuple[str, ...] = ()


class Vm(Record):
    """A VM. `mark` is one line of text in its metadata; `booted` and `due` are in seconds.

    `guest_due` is when the guest will report; None while it is off, up, or hung. `had` are names of
    disks that plans made or attached and that no plan took off since. `seeded` tells that it came
    with first-boot data, `given` that there was user data in it: `seed_digest` stands for that as
    long as it can be read, `read_digest` for what the guest had of it when it booted last.
    `first_boot` is what the guest has told of that, and `tells` what it will tell.
    """

    id: str
    name: str
    uuid: str
    domain: str
    host: str
    power: str
    cpus: int
    memory_mib: int
    mark: str | None = None
    firmware: str = "bios"
    hostname: str = ""
    os_name: str = ""
    seed_digest: str | None = None
    read_digest: str | None = None
    seeded: bool = False
    given: bool = False
    tells: str = DONE
    first_boot: str = ""
    tags: dict[str, str] = {}
    disks: list[Disk] = []
    nics: list[Nic] = []
    guest_due: float | None = None
    guest_up: bool = False
    guest_hung: bool = False
    guest_deaf: bool = False
    last_boot: str | None = None
    hidden: bool = False
    held: bool = False
    had: list[str] = []
    snapshots: list[str] = []


class DiskSpec(Record):
    """A disk to make, or the id of a detached one to attach again; in any pool if none is named."""

    name: str
    pool: str = ""
    size_gib: int | None = None
    existing: str | None = None


class NicSpec(Record):
    """An interface to make; without `mac` the world draws one."""

    name: str
    network: str
    mac: str | None = None
    connected: bool = True
    static: tuple[str, ...] = ()
    dhcp: bool = True


class VmSpec(Record):
    """Everything one create call says. The first disk is copied from the image."""

    name: str
    uuid: str
    domain: str
    mark: str | None = None
    image: str | None = None
    cpus: int = 1
    memory_mib: int = MIB_PER_GIB
    firmware: str = "bios"
    hostname: str = ""
    seed_digest: str | None = None
    seeded: bool = False
    tags: dict[str, str] = {}
    disks: list[DiskSpec] = []
    nics: list[NicSpec] = []
    power: str = ON


class Hardware(Record):
    """What a reconfigure asks for. Sizes only grow; disks and interfaces it omits are kept.

    `destroyed` are ids of disks to take off and destroy.
    `nics` are interfaces to add, `unplugged` the MAC addresses of those to take away, `networks`
    what interfaces that are there are plugged into, by their names.
    """

    cpus: int
    memory_mib: int
    disks: list[DiskSpec] = []
    destroyed: list[str] = []
    connected: dict[str, bool] = {}
    networks: dict[str, str] = {}
    nics: list[NicSpec] = []
    unplugged: list[str] = []


class TakeOver(Record):
    """A mark to write on a VM that has the mark `expected` until then, and names of its devices.

    `disks` are names by disk id, `nics` names by MAC address.
    """

    mark: str
    expected: str | None = None
    disks: dict[str, str] = {}
    nics: dict[str, str] = {}


class Keeping(Record):
    """Under which id a detached disk is kept, and for whom: one line of text."""

    id: str
    keeper: str


class Detaching(Record):
    """Disks to take off a VM, by their ids, and what some of them are kept as."""

    disks: list[str]
    keep: dict[str, Keeping] = {}


class Task(Record):
    """A job of the world. It ends at `due` and is forgotten some time after it ended.

    `account` is who started it; anything but the session's own account is foreign to it.
    """

    id: str
    operation: str
    account: str
    due: float
    vm: str | None = None
    create: VmSpec | None = None
    hardware: Hardware | None = None
    take_over: TakeOver | None = None
    disks: list[str] = []
    keep: dict[str, Keeping] = {}
    force: bool = False
    fails_with: Fault | None = None
    state: str = "running"
    fault: Fault | None = None
    ended: float | None = None


class LateCall(Record):
    """A call that was lost on its way and will arrive at `due`; nobody waits for its answer."""

    due: float
    method: str
    params: dict[str, object]
    account: str


class Account(Record):
    """A login; the password is kept as a salted digest."""

    salt: str
    digest: str


class Latencies(Record):
    """How long things take, in seconds; each is stretched by a random part of up to `jitter`."""

    create: float = 0.2
    power: float = 0.05
    shutdown: float = 0.1
    boot: float = 0.2
    delete: float = 0.05
    reconfigure: float = 0.05
    jitter: Annotated[float, Field(ge=0, le=1)] = 0.2


class State(Record):
    """A whole world. Times are seconds of its clock; `saved_at` lets a loader shift them."""

    identity: str
    version: str = "1.0.0"
    domains: list[Domain]
    images: dict[str, Image]
    parts: dict[str, Part] = {}
    accounts: dict[str, Account] = {}
    vms: dict[str, Vm] = {}
    detached: dict[str, Disk] = {}
    tasks: dict[str, Task] = {}
    late: list[LateCall] = []
    latencies: Latencies = Latencies()
    task_memory: float = 600.0
    missing_privileges: list[tuple[str, str]] = []
    serial: int = 0
    saved_at: float = 0.0


def default_state(identity: str) -> State:
    """A small data centre: two failure domains of two hosts with the same pools and networks."""
    images = {
        ref: Image(ref=ref, os_name=os_name)
        for ref, os_name in (
            ("ubuntu-24.04", "Ubuntu 24.04 LTS"),
            ("ubuntu-22.04", "Ubuntu 22.04 LTS"),
            ("debian-12", "Debian GNU/Linux 12"),
        )
    }
    domains = [
        Domain(
            id=f"domain-{letter}",
            path=("sim", letter),
            hosts=[Host(name=f"host-{letter}{number}") for number in (1, 2)],
            pools=["fast", "slow"],
            networks=["lan", "dmz"],
            images=list(images),
        )
        for letter in ("a", "b")
    ]
    return State(identity=identity, domains=domains, images=images)
