"""Words and values several kinds use: bounded strings and closed enums.

Every string is bounded, because the API server charges CEL rules by the largest value possible.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from annotated_types import Ge, Le, MaxLen
from pydantic import BeforeValidator, StringConstraints

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"

ObjectName = Annotated[
    str,
    StringConstraints(min_length=1, max_length=253, pattern=rf"^{_LABEL}(\.{_LABEL})*$"),
]
"""Name of a Kubernetes object (RFC 1123 subdomain)."""

NamespaceName = Annotated[
    str, StringConstraints(min_length=1, max_length=63, pattern=rf"^{_LABEL}$")
]

ClassName = Annotated[
    str,
    StringConstraints(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"),
]
"""Name of an abstract storage or network class."""

FailureDomainName = Annotated[
    str, StringConstraints(min_length=1, max_length=63, pattern=rf"^{_LABEL}$")
]

DiskName = Annotated[str, StringConstraints(min_length=1, max_length=40, pattern=rf"^{_LABEL}$")]

InterfaceName = Annotated[
    str, StringConstraints(min_length=1, max_length=15, pattern=r"^[a-z][a-z0-9-]*$")
]
"""A network interface; the guest's device gets this name, and Linux allows 15 characters."""

Hostname = Annotated[
    str, StringConstraints(min_length=1, max_length=253, pattern=rf"^{_LABEL}(\.{_LABEL})*$")
]

SecretKey = Annotated[
    str, StringConstraints(min_length=1, max_length=253, pattern=r"^[-._a-zA-Z0-9]+$")
]

LabelKey = Annotated[
    str,
    StringConstraints(
        min_length=1,
        max_length=317,
        pattern=r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
    ),
]

LabelValue = Annotated[
    str,
    StringConstraints(max_length=63, pattern=r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$"),
]

LabelMap = dict[str, LabelValue]

Uid = Annotated[str, StringConstraints(min_length=1, max_length=64)]
"""A metadata.uid."""

Uuid = Annotated[
    str,
    StringConstraints(
        max_length=36,
        pattern=r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$",
    ),
]
"""A UUID in its lower-case spelling, which every backend is given and compared by."""

Hash = Annotated[str, StringConstraints(min_length=8, max_length=64, pattern=r"^[0-9a-f]+$")]

MacAddress = Annotated[
    str, StringConstraints(max_length=17, pattern=r"^[0-9a-f]{2}(:[0-9a-f]{2}){5}$")
]
"""A MAC address in lower case with colons."""

IpAddress = Annotated[
    str, StringConstraints(min_length=2, max_length=45, pattern="^[0-9a-fA-F:.]+$")
]

Cidr = Annotated[
    str, StringConstraints(min_length=4, max_length=49, pattern="^[0-9a-fA-F:.]+/[0-9]{1,3}$")
]

Port = Annotated[int, Ge(1), Le(65535)]
"""A TCP port."""

ProviderID = Annotated[
    str,
    StringConstraints(min_length=1, max_length=512, pattern=r"^[a-z][a-z0-9+.-]*://[^ ]+$"),
]

Checksum = Annotated[
    str,
    StringConstraints(max_length=135, pattern=r"^(sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})$"),
]
"""A digest with its algorithm, such as ``sha256:…``."""

Word = Annotated[str, StringConstraints(min_length=1, max_length=63)]
"""A short free word."""

Line = Annotated[str, StringConstraints(min_length=1, max_length=256)]
"""A backend's name or path, or one line for people."""

Url = Annotated[
    str, StringConstraints(min_length=1, max_length=1024, pattern=r"^[a-z][a-z0-9+.-]*://[^ ]*$")
]

Thumbprint = Annotated[
    str,
    StringConstraints(max_length=95, pattern=r"^[0-9A-Fa-f]{2}(:?[0-9A-Fa-f]{2}){31}$"),
]
"""A SHA-256 digest in hex, with or without colons."""

SshKey = Annotated[
    str,
    StringConstraints(
        min_length=16, max_length=4096, pattern=r"^[a-z0-9@.-]+ [A-Za-z0-9+/=]+( [^\n\r]*)?$"
    ),
]
"""A public key as in an authorized_keys file, without options."""

ReasonWord = Annotated[
    str,
    StringConstraints(
        min_length=1, max_length=128, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"
    ),
]

Duration = Annotated[
    str, StringConstraints(min_length=2, max_length=32, pattern=r"^([0-9]+h)?([0-9]+m)?([0-9]+s)?$")
]
"""A length of time such as ``168h`` or ``1h30m``."""

TargetValue = Annotated[int, Ge(-(2**53)), Le(2**53)] | Annotated[str, MaxLen(256)]
"""A string or an integer: what a backend's name, number or switch may be."""

Target = dict[str, TargetValue]

QuantityText = Annotated[
    str,
    StringConstraints(
        max_length=32, pattern=r"^[0-9]+(\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti|P|Pi|E|Ei)?$"
    ),
]
"""A Kubernetes resource quantity, always a string."""

Quantity = Annotated[int, Ge(0), Le(2**53)] | QuantityText
"""A Kubernetes resource quantity, such as ``250m`` or ``256Mi``."""

Factor = (
    Annotated[int, Ge(1), Le(100)]
    | Annotated[str, StringConstraints(max_length=6, pattern=r"^[0-9]{1,3}(\.[0-9]{1,2})?$")]
)
"""A ratio as an integer or a decimal in a string, such as ``4`` or ``"1.5"``."""


def _tidy(value: object) -> object:
    """Shorten what a backend or guest says; an empty word says nothing."""
    return (value[:_OBSERVED_LENGTH] or None) if isinstance(value, str) else value


def shortened(length: int) -> BeforeValidator:
    """Cut a text that is longer, because a status that breaks its schema is refused as a whole."""

    def cut(value: object) -> object:
        return value[:length] if isinstance(value, str) else value

    return BeforeValidator(cut)


_OBSERVED_LENGTH = 256
_MESSAGE_LENGTH = 4096

Observed = Annotated[
    Annotated[str, StringConstraints(max_length=_OBSERVED_LENGTH)] | None, BeforeValidator(_tidy)
]
"""A word that a backend or guest said. Too long a one is cut, because a status that breaks its
schema would be refused as a whole."""

Message = Annotated[str, StringConstraints(max_length=_MESSAGE_LENGTH), shortened(_MESSAGE_LENGTH)]
"""A text for people; too long a one is cut."""

Figure = Annotated[int, Ge(-(2**53)), Le(2**53)]
"""A number as observed, whatever it is."""

Cpus = Annotated[int, Ge(1), Le(1024)]
MemoryMiB = Annotated[int, Ge(64), Le(2**25)]
SizeGiB = Annotated[int, Ge(1), Le(2**16)]
Count = Annotated[int, Ge(0), Le(2**53)]


class PowerState(StrEnum):
    """Whether a machine runs."""

    POWERED_ON = "PoweredOn"
    POWERED_OFF = "PoweredOff"
    SUSPENDED = "Suspended"


class PowerOffMode(StrEnum):
    """How a running guest is stopped."""

    HARD = "Hard"
    SOFT = "Soft"
    TRY_SOFT = "TrySoft"


class Firmware(StrEnum):
    """What boots the guest."""

    BIOS = "bios"
    EFI = "efi"
    EFI_SECURE = "efi-secure"


class Feature(StrEnum):
    """A property of a machine that at least two backends can honour."""

    HOT_ADD_CPU = "HotAddCPU"
    HOT_ADD_MEMORY = "HotAddMemory"
    NESTED_VIRTUALIZATION = "NestedVirtualization"
    SECURE_BOOT = "SecureBoot"
    TPM = "TPM"


class ReclaimPolicy(StrEnum):
    """What becomes of a disk when its machine is destroyed."""

    DELETE = "Delete"
    RETAIN = "Retain"


class IPFamily(StrEnum):
    """Which Internet protocol an address belongs to."""

    IPV4 = "IPv4"
    IPV6 = "IPv6"


class AddressSource(StrEnum):
    """Where an interface gets its address from."""

    DHCP = "dhcp"
    SLAAC = "slaac"
    STATIC = "static"
    POOL = "pool"
    NONE = "none"


class DriftAction(StrEnum):
    """What happens when somebody changed the machine behind our back."""

    CORRECT = "Correct"
    REPORT = "Report"


class DeletionPolicy(StrEnum):
    """What becomes of the machine on the backend when its object is deleted."""

    DELETE = "Delete"
    ORPHAN = "Orphan"


class AddressType(StrEnum):
    """What an address is good for (the types of Cluster API)."""

    HOSTNAME = "Hostname"
    EXTERNAL_IP = "ExternalIP"
    INTERNAL_IP = "InternalIP"
    EXTERNAL_DNS = "ExternalDNS"
    INTERNAL_DNS = "InternalDNS"


class Architecture(StrEnum):
    """Processor architecture, as Kubernetes and Go spell it."""

    AMD64 = "amd64"
    ARM64 = "arm64"
    S390X = "s390x"
    PPC64LE = "ppc64le"
