"""What the vCenter simulator's control interface tells."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Disk:
    """One virtual disk; `parent` is the file it is a child of, or ""."""

    key: int
    label: str
    file: str
    capacity_bytes: int
    parent: str = ""


@dataclass(frozen=True, slots=True)
class Card:
    """One network card; `addresses` is what the guest reports, link-local ones included."""

    key: int
    label: str
    mac: str
    network: str
    connected: bool
    addresses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FirstBoot:
    """What a guest made of its first-boot data; it is in the guest, whatever becomes of the data.

    `instances` is how often it took itself for a new one, `boots` counts boots as this one, and
    `runs` those that ran the user data, of which `user_data` is what was read last.
    """

    instance_id: str = ""
    instances: int = 0
    boots: int = 0
    runs: int = 0
    user_data: str = field(default="", repr=False)
    done: bool = False


@dataclass(frozen=True, slots=True)
class Machine:
    """One virtual machine or template.

    `created`, `powered_on` and `addressed` are seconds since the epoch, 0 when it did not happen.
    `power_state` is poweredOn, poweredOff or suspended. `policies` are ids of storage policies by
    what they were given to: "home", or the label of a disk.
    """

    mo_ref: str
    name: str
    path: str
    folder: str
    datacenter: str
    uuid: str
    instance_uuid: str
    template: bool
    power_state: str
    host: str
    pool: str
    cpus: int
    memory_mib: int
    firmware: str
    annotation: str
    extra_config: Mapping[str, str] = field(repr=False)
    disks: tuple[Disk, ...]
    cards: tuple[Card, ...]
    snapshots: int
    policies: Mapping[str, str]
    tools_running: bool
    host_name: str
    address: str
    created: float
    powered_on: float
    addressed: float
    first_boot: FirstBoot

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> "Machine":
        """From the JSON of `GET /vms`."""
        times = data["timeline"]
        return cls(
            mo_ref=data["moRef"],
            name=data["name"],
            path=data["path"],
            folder=data["folder"],
            datacenter=data["datacenter"],
            uuid=data["uuid"],
            instance_uuid=data["instanceUuid"],
            template=data["template"],
            power_state=data["powerState"],
            host=data["host"],
            pool=data["pool"],
            cpus=data["cpus"],
            memory_mib=data["memoryMB"],
            firmware=data["firmware"],
            annotation=data["annotation"],
            extra_config=data["extraConfig"],
            disks=tuple(_disk(disk) for disk in data["disks"]),
            cards=tuple(
                Card(**{**card, "addresses": tuple(card["addresses"])}) for card in data["nics"]
            ),
            snapshots=data["snapshots"],
            policies=data["policies"],
            tools_running=data["toolsRunning"],
            host_name=data["guestHostName"],
            address=data["guestIpAddress"],
            created=times["created"],
            powered_on=times["poweredOn"],
            addressed=times["addressed"],
            first_boot=_first_boot(data["firstBoot"]),
        )


def _first_boot(data: Mapping[str, Any]) -> FirstBoot:
    return FirstBoot(
        data["instanceId"],
        data["instances"],
        data["boots"],
        data["runs"],
        data["userData"],
        data["done"],
    )


def _disk(data: Mapping[str, Any]) -> Disk:
    return Disk(
        data["key"], data["label"], data["file"], data["capacityBytes"], data.get("parent", "")
    )


@dataclass(frozen=True, slots=True)
class Counters:
    """Calls of clients since the last reset, by method.

    REST calls are named like `POST /rest/com/vmware/cis/session`, with identifiers as `*`.
    `clients` sorts by User-Agent, `accounts` by the account of the session, "" without one.
    """

    total: int
    in_flight: int
    peak_in_flight: int
    soap: Mapping[str, int]
    rest: Mapping[str, int]
    clients: Mapping[str, Mapping[str, int]]
    accounts: Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class Inventory:
    """Everything that must not change behind a user's back.

    `digest` covers the whole configuration of all machines; the lists are for messages.
    """

    digest: str
    machines: tuple[str, ...]
    folders: tuple[str, ...]
    files: tuple[str, ...]
