"""What the scheduler looks at and answers: frozen values, none of them a Kubernetes object."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from banlieue.api.meta import LabelSelector
from banlieue.api.reasons import Reason
from banlieue.sdk.kube import Key

TOPOLOGY_FAILURE_DOMAIN = "banlieue.io/failure-domain"
TOPOLOGY_PROVIDER = "banlieue.io/provider"
TOPOLOGY_HOST = "banlieue.io/host"


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A failure domain of a Provider; ordered by names, which breaks ties."""

    provider: Key
    domain: str


@dataclass(frozen=True, slots=True)
class Apart:
    """One anti-affinity term; `selector` is matched against VMs of the same namespace."""

    topology_key: str
    selector: LabelSelector
    required: bool = False


@dataclass(frozen=True, slots=True)
class StaticAddress:
    """An address the user asks for on a network class, without prefix."""

    network_class: str
    address: str


@dataclass(frozen=True, slots=True)
class PoolWish:
    """An address of a family that the user wants claimed from a network class's pool."""

    network_class: str
    family: str


@dataclass(frozen=True, slots=True)
class Demand:
    """What one machine needs: VirtualMachine, class and image in one value.

    `bootstrap` is what reads first-boot data in the image's guest, `first_boot` the fields that
    give some, `agent_gates` the readiness gates that need an agent the image lacks. `image` and
    `architecture` are empty where only the backend knows what the machine is made from.
    `firmware` is None when the image decides. `root_disk_gib` is None when the root disk takes the
    image's size. Memory is in MiB.
    """

    key: Key
    cpus: int
    memory_mib: int
    image: str
    labels: Mapping[str, str] = field(default_factory=dict)
    digest: str = ""
    architecture: str = "amd64"
    firmware: str | None = None
    image_firmware: tuple[str, ...] = ()
    root_disk_gib: int | None = None
    min_disk_gib: int | None = None
    storage_classes: tuple[str, ...] = ()
    existing_disks: tuple[str, ...] = ()
    network_classes: tuple[str, ...] = ()
    static_addresses: tuple[StaticAddress, ...] = ()
    pool_wishes: tuple[PoolWish, ...] = ()
    features: tuple[str, ...] = ()
    bootstrap: str = "cloud-init"
    first_boot: tuple[str, ...] = ()
    agent_gates: tuple[str, ...] = ()
    provider_ref: Key | None = None
    provider_selector: LabelSelector | None = None
    domain_selector: LabelSelector | None = None
    apart: tuple[Apart, ...] = ()


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a failure domain has, in whole CPUs and MiB.

    `included` are owner digests, or their beginnings, of machines the free figure counts already.
    With `cut_short` it lists only those placed last, and older ones are counted without being
    listed. `read_at` is when the figures were read, in seconds since 1970.
    """

    memory_mib: int
    free_memory_mib: int
    cpus: int | None = None
    included: frozenset[str] = frozenset()
    cut_short: bool = False
    read_at: float | None = None


@dataclass(frozen=True, slots=True)
class Domain:
    """A failure domain as its Provider published it."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    schedulable: bool = True
    storage_classes: frozenset[str] = frozenset()
    network_classes: frozenset[str] = frozenset()
    features: frozenset[str] = frozenset()
    architectures: frozenset[str] = frozenset()
    capacity: Capacity | None = None


@dataclass(frozen=True, slots=True)
class ImageState:
    """What one Provider says about one image; `domains` are those that have it, None for all."""

    ready: bool
    reason: str = ""
    message: str = ""
    domains: frozenset[str] | None = None

    def usable_in(self, domain: str) -> bool:
        """Whether machines can be made from it in a failure domain."""
        return self.ready and (self.domains is None or domain in self.domains)


@dataclass(frozen=True, slots=True)
class Claim:
    """A VM on the backend with our mark and no object: owner digest (or its beginning), epoch.

    `vm` is its `vm_digest` where it has not the name we give.
    """

    digest: str
    epoch: int = 0
    incoming: bool = False
    vm: str = ""


@dataclass(frozen=True, slots=True)
class Site:
    """A Provider as seen from one namespace.

    `images` has a row per image name. `allow_static` gives the CIDRs per network class that static
    addresses may be taken from, `pools` the families for which it has a pool. `kept_disks` gives,
    by namespace and id, the failure domains a retained disk can be reached from. `complete` says
    that the whole backend was read for `claims`, `told` that somebody read it at least in part, and
    `recovering` that it was read while the installation recovered.
    """

    key: Key
    domains: tuple[Domain, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    class_name: str = ""
    backend: str = ""
    allowed: bool = True
    ready: bool = True
    not_ready: str = ""
    paused: bool = False
    cordoned: bool = False
    deleting: bool = False
    read_only: bool = False
    admission_by_backend: bool = False
    images: Mapping[str, ImageState] = field(default_factory=dict)
    allow_static: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    pools: Mapping[str, frozenset[str]] = field(default_factory=dict)
    kept_disks: Mapping[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    overcommit_cpu: float = 1.0
    overcommit_memory: float = 1.0
    claims: tuple[Claim, ...] = ()
    complete: bool = False
    told: bool = False
    recovering: bool = False

    def domain(self, name: str) -> Domain | None:
        """The failure domain of that name, None when it is not published."""
        return next((domain for domain in self.domains if domain.name == name), None)


@dataclass(frozen=True, slots=True)
class Resident:
    """Another machine and where it is, observed or promised; one in a move is in two places.

    `since` is when it was placed, in seconds since 1970; `settled` that it was seen on the backend.
    """

    key: Key
    places: tuple[Place, ...]
    labels: Mapping[str, str] = field(default_factory=dict)
    digest: str = ""
    cpus: int = 0
    memory_mib: int = 0
    apart: tuple[Apart, ...] = ()
    since: float | None = None
    settled: bool = False


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why one candidate was not taken.

    Attributes:
        provider: the Provider.
        domain: its failure domain, empty when the Provider as a whole was rejected.
        filter: name of the filter that stopped it.
        reason: as in conditions.
        detail: in words that stay the same while only figures move.
        figures: the numbers behind it, for people who ask.
        rank: grows with how close the candidate came.
    """

    provider: Key
    domain: str
    filter: str
    reason: Reason
    detail: str
    figures: str = ""
    rank: int = 0

    @property
    def where(self) -> str:
        """The candidate's name for people."""
        return self.domain or f"Provider {self.provider}"


@dataclass(frozen=True, slots=True)
class Score:
    """What ranks a failure domain that passed all filters.

    Attributes:
        conflicts: machines there that this one would rather be apart from; fewer is better.
        headroom: share of the scarcer of memory and CPU left after placing, in twentieths.
        population: machines of ours that are there already.
    """

    conflicts: int
    headroom: int
    population: int

    @property
    def order(self) -> tuple[int, int, int]:
        """Smaller is better."""
        return (self.conflicts, -self.headroom, self.population)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A failure domain that can take the machine, and how well."""

    place: Place
    score: Score


@dataclass(frozen=True, slots=True)
class Survey:
    """Every candidate there is: those that fit, the best first, and why the others do not."""

    fits: tuple[Candidate, ...] = ()
    rejections: tuple[Rejection, ...] = ()


@dataclass(frozen=True, slots=True)
class Placed:
    """A place was found; `epoch` is not 0 when a machine that was moved is found again.

    `vm` is what its Provider told of it then, as in `Claim`.
    """

    place: Place
    epoch: int = 0
    vm: str = ""


@dataclass(frozen=True, slots=True)
class Unplaced:
    """No place was found. `reason` and `message` are those of the Scheduled condition.

    `rejections` has the closest misses first. `lasting` tells that only an edit of the object
    itself can help.
    """

    reason: Reason
    message: str
    rejections: tuple[Rejection, ...] = ()
    lasting: bool = False


Decision = Placed | Unplaced
