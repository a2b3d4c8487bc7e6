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
class Demand:
    """What one machine needs: VirtualMachine, class and image in one value.

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
    network_classes: tuple[str, ...] = ()
    static_addresses: tuple[StaticAddress, ...] = ()
    features: tuple[str, ...] = ()
    provider_ref: Key | None = None
    provider_selector: LabelSelector | None = None
    domain_selector: LabelSelector | None = None
    apart: tuple[Apart, ...] = ()


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a failure domain has, in whole CPUs and MiB.

    `included` are owner digests, or their beginnings, of machines the free figure counts already.
    """

    memory_mib: int
    free_memory_mib: int
    cpus: int | None = None
    included: frozenset[str] = frozenset()


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
    """What one Provider says about one image."""

    ready: bool
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Claim:
    """A VM on the backend with our mark and no object: owner digest (or its beginning), epoch."""

    digest: str
    epoch: int = 0
    incoming: bool = False


@dataclass(frozen=True, slots=True)
class Site:
    """A Provider as seen from one namespace.

    `images` has a row per image name. `allow_static` gives the CIDRs per network class that static
    addresses may be taken from. `claims` is None while the Provider never reported any;
    `complete` says that the whole backend was read.
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
    overcommit_cpu: float = 1.0
    overcommit_memory: float = 1.0
    claims: tuple[Claim, ...] = ()
    complete: bool = False

    def domain(self, name: str) -> Domain | None:
        """The failure domain of that name, None when it is not published."""
        return next((domain for domain in self.domains if domain.name == name), None)


@dataclass(frozen=True, slots=True)
class Resident:
    """Another machine and where it is, observed or promised; one in a move is in two places."""

    key: Key
    places: tuple[Place, ...]
    labels: Mapping[str, str] = field(default_factory=dict)
    digest: str = ""
    cpus: int = 0
    memory_mib: int = 0
    apart: tuple[Apart, ...] = ()


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why one candidate was not taken. `rank` grows with how close it came."""

    where: str
    reason: Reason
    detail: str
    rank: int


@dataclass(frozen=True, slots=True)
class Placed:
    """A place was found; `epoch` is not 0 when a machine that was moved is found again."""

    place: Place
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class Unplaced:
    """No place was found. `reason` and `message` are those of the Scheduled condition.

    `lasting` tells that only an edit of the object itself can help.
    """

    reason: Reason
    message: str
    rejections: tuple[Rejection, ...] = ()
    lasting: bool = False


Decision = Placed | Unplaced
