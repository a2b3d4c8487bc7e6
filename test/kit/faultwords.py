"""What has to be told while a call is disturbed: its faults, and a word for each disturbance.

Nothing is right by default. A call that is asked again before anybody is told of its failure says
so by `HEALS`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from banlieue.api.reasons import Reason

Reasons = frozenset[str]
Fields = Mapping[str, str | tuple[str, str]]

HEALS: Final[Reasons] = frozenset()
"""It is asked again at once, or does without: nobody is told."""

VM: Final = ("VirtualMachine", "vm-0")
FOLDER: Final = ("Folder", "group-d1")
STORE: Final = ("Datastore", "datastore-0")


@dataclass(frozen=True, slots=True)
class Typed:
    """A fault that a call can raise.

    Attributes:
        name: its type; for REST the service's own word.
        told: the reason that is told of it; None when it heals before anybody is told.
        fields: its fields, in the order of the API.
        in_task: the call is accepted, and its task fails so.
        status: HTTP status, for REST.
    """

    name: str
    told: Reason | None
    fields: Fields = field(default_factory=dict)
    in_task: bool = False
    status: int = 503


@dataclass(frozen=True, slots=True)
class Words:
    """What is told of one call.

    Attributes:
        faults: what the vCenter answers, one attempt after the other.
        told: by disturbance, what has to be told; of several reasons any.
        may: what may follow beside that.
    """

    faults: tuple[Typed, ...]
    told: Mapping[str, Reasons]
    may: Reasons = HEALS

    def but(self, may: Reasons = HEALS, **told: Reasons) -> "Words":
        """The same with other words for some disturbances; `_` stands for a blank."""
        changed = {mode.replace("_", " ").strip(): words for mode, words in told.items()}
        return replace(self, told={**self.told, **changed}, may=self.may | may)

    def allowed(self, mode: str) -> Reasons:
        """Every reason that may be told."""
        may = self.may.union(*self.must(mode))
        # The call is carried out in the end, beside the next attempt; and every other call has as
        # little time there: a clone that was given up is looked for.
        return may | UNREACHABLE | _BUSY | _SOUGHT if mode == "late" else may

    def must(self, mode: str) -> tuple[Reasons, ...]:
        """Sets of reasons, of each of which one has to be told."""
        if mode == "fault":
            return tuple(frozenset({str(it.told)}) for it in self.faults if it.told is not None)
        return (self.told[mode],) if self.told[mode] else ()


def one_of(*reasons: Reason) -> Reasons:
    """Any of them is right."""
    return frozenset(map(str, reasons))


UNREACHABLE: Final = one_of(Reason.PROVIDER_UNREACHABLE)
_BUSY: Final = one_of(Reason.PROVIDER_BUSY)
_SOUGHT: Final = one_of(Reason.ABSENCE_UNPROVEN)


def acts(broken: Reason, *faults: Typed) -> Words:
    """A call that is not sent again by itself, as it may have been carried out."""
    told = dict.fromkeys(("503", "late", "cut", "reply lost"), UNREACHABLE)
    return Words(faults, {**told, "half body": one_of(broken), "session lost": HEALS})


def reads(broken: Reason, *faults: Typed) -> Words:
    """A call that changes nothing: sent again when its connection turns out to be closed."""
    return acts(broken, *faults).but(cut=HEALS, reply_lost=HEALS)


def silent(*faults: Typed) -> Words:
    """A call whose failure nobody is told of, whatever it is."""
    return acts(Reason.UPDATE_FAILED, *faults).but(
        **dict.fromkeys(("_503", "late", "cut", "reply_lost", "half_body"), HEALS)
    )


def services(*faults: Typed) -> Words:
    """A call to a service beside the vCenter: away, that is no outage of the vCenter and its VMs.

    All its calls may be sent twice.
    """
    away = one_of(Reason.INVENTORY_FAILED)
    told = {**dict.fromkeys(("503", "late", "half body"), away)}
    return Words(faults, {**told, **dict.fromkeys(("cut", "reply lost", "session lost"), HEALS)})


def imports(*faults: Typed) -> Words:
    """A step of an import, which says that it broke off and goes on with the next attempt.

    What the attempt before has begun may still be at work.
    """
    failed = one_of(Reason.IMAGE_IMPORT_FAILED)
    told = dict.fromkeys(("503", "late", "cut", "reply lost", "half body"), failed)
    return Words(faults, {**told, "session lost": HEALS}, _BUSY)


def no_right(privilege: str, told: Reason | None = Reason.PROVIDER_PERMISSION_DENIED) -> Typed:
    """The account lacks a privilege."""
    return Typed("NoPermission", told, {"object": FOLDER, "privilegeId": privilege})


def gone(told: Reason | None = Reason.PROVIDER_BUSY) -> Typed:
    """What the call is about is not there any more."""
    return Typed("ManagedObjectNotFound", told, {"obj": VM})


def broken(told: Reason | None) -> Typed:
    """The vCenter fails, and says no more."""
    return Typed("SystemError", told, {"reason": "it failed"})


def works_on_it(told: Reason | None = Reason.PROVIDER_BUSY, *, in_task: bool = False) -> Typed:
    """Another task is at work on the VM."""
    return Typed("TaskInProgress", told, {"task": ("Task", "task-0")}, in_task=in_task)


def no_store(told: Reason = Reason.STORAGE_CLASS_NOT_AVAILABLE) -> Typed:
    """The datastore cannot be used."""
    return Typed("InvalidDatastore", told, {"datastore": STORE, "name": "LocalDS_0"})


def other_power(told: Reason | None = Reason.PROVIDER_BUSY, *, in_task: bool = False) -> Typed:
    """The VM is in another power state than the call needs."""
    states = {"requestedState": "suspended", "existingState": "suspended"}
    return Typed("InvalidPowerState", told, states, in_task=in_task)


def taken(told: Reason | None) -> Typed:
    """The name is taken."""
    return Typed("DuplicateName", told, {"name": "taken", "object": FOLDER})


def argument(told: Reason | None = Reason.INVALID_CONFIGURATION, *, in_task: bool = False) -> Typed:
    """The vCenter does not like what it is given."""
    return Typed("InvalidArgument", told, {"invalidProperty": "spec"}, in_task=in_task)


def no_property(told: Reason | None = Reason.INVENTORY_FAILED) -> Typed:
    """The vCenter does not know a field that it is asked for."""
    return Typed("InvalidProperty", told, {"name": "config.name"})


def file(name: str, told: Reason | None, *, in_task: bool = False) -> Typed:
    """Something is wrong with a file of the VM."""
    return Typed(name, told, {"file": "[LocalDS_0] a.vmdk"}, in_task=in_task)


_NO_MEMORY: Final = Typed(
    "InsufficientMemoryResourcesFault",
    Reason.INSUFFICIENT_CAPACITY,
    {"unreserved": "0", "requested": "1"},
    in_task=True,
)
_NO_DEVICE: Final = Typed(
    "InvalidDeviceSpec",
    Reason.INVALID_CONFIGURATION,
    {"property": "virtualDeviceSpec", "deviceIndex": "0"},
    in_task=True,
)
_NO_TOOLS: Final = Typed("ToolsUnavailable", None)
"""Power is cut instead, as TrySoft allows."""

_HELD: Final = one_of(Reason.FOREIGN_DISK_ATTACHED)
"""A VM whose disks cannot be taken off is not destroyed."""

_ENDS: Final = silent(gone(None), no_right("System.View", None)).but(may=_BUSY)
"""The end of a watch, which is built anew for another reason; twice in a row, which is told."""

_TAGGING: Final = "/rest/com/vmware/cis/tagging"


_AWAY: Final = Typed("service_unavailable", Reason.INVENTORY_FAILED)
_NO_TAGGING: Final = Typed("unauthorized", Reason.PROVIDER_PERMISSION_DENIED, status=403)
_NO_LOGIN: Final = Typed("unauthenticated", Reason.INVENTORY_FAILED, status=401)
"""Of a service beside the vCenter, whose own login works."""

_BROKE_OFF: Final = one_of(Reason.IMAGE_IMPORT_FAILED)

_TAGS: Final = services(_AWAY, _NO_TAGGING)
_HIDDEN: Final = services(_AWAY, replace(_NO_TAGGING, told=None))
"""What the account may not see is none of ours."""


WORDS: Final[Mapping[str, Words]] = {
    # Sessions
    "RetrieveServiceContent": acts(
        Reason.PROVIDER_UNREACHABLE,
        Typed("HostCommunication", Reason.PROVIDER_UNREACHABLE),
        Typed(
            "MethodNotFound",
            Reason.PROVIDER_VERSION_UNSUPPORTED,
            {"receiver": ("ServiceInstance", "ServiceInstance"), "method": "it"},
        ),
    ),
    "Login": acts(
        Reason.PROVIDER_UNREACHABLE,
        Typed("InvalidLogin", Reason.PROVIDER_AUTH_FAILED),
        no_right("System.View"),
    ),
    "CreateListView": acts(
        Reason.INVENTORY_FAILED, no_right("System.View"), broken(Reason.INVENTORY_FAILED)
    ),
    "CreatePropertyCollector": acts(
        Reason.INVENTORY_FAILED, no_right("System.View"), broken(Reason.INVENTORY_FAILED)
    ),
    "CreateFilter": acts(Reason.INVENTORY_FAILED, no_right("System.View"), no_property()),
    "Logout": silent(broken(None)),
    "DestroyPropertyCollector": _ENDS,
    "DestroyView": _ENDS,
    "HasPrivilegeOnEntities": reads(Reason.INVENTORY_FAILED, no_right("System.Read"), gone()),
    # Power
    "CloneVM_Task": acts(
        Reason.PROVISIONING_FAILED,
        no_right("VirtualMachine.Provisioning.DeployTemplate"),
        no_store(),
        works_on_it(),
        _NO_MEMORY,
    ).but(half_body=UNREACHABLE, may=one_of(Reason.ABSENCE_UNPROVEN)),
    "ReconfigVM_Task": acts(
        Reason.UPDATE_FAILED,
        Typed("ConcurrentAccess", Reason.PROVIDER_BUSY),
        no_right("VirtualMachine.Config.AddNewDisk"),
        _NO_DEVICE,
    ),
    "SuspendVM_Task": acts(
        Reason.UPDATE_FAILED,
        no_right("VirtualMachine.Interact.Suspend"),
        other_power(in_task=True),
    ),
    "PowerOnVM_Task": acts(Reason.UPDATE_FAILED, works_on_it(), _NO_MEMORY),
    "ShutdownGuest": acts(
        Reason.UPDATE_FAILED,
        no_right("VirtualMachine.Interact.PowerOff"),
        works_on_it(),
        _NO_TOOLS,
    ),
    "PowerOffVM_Task": acts(
        Reason.UPDATE_FAILED,
        no_right("VirtualMachine.Interact.PowerOff"),
        works_on_it(in_task=True),
    ),
    "ResetVM_Task": acts(
        Reason.UPDATE_FAILED,
        no_right("VirtualMachine.Interact.Reset"),
        other_power(in_task=True),
    ),
    "RebootGuest": acts(
        Reason.UPDATE_FAILED,
        no_right("VirtualMachine.Interact.Reset"),
        works_on_it(),
        _NO_TOOLS,
    ),
    "Destroy_Task": acts(
        Reason.DELETION_FAILED,
        no_right("VirtualMachine.Inventory.Delete"),
        file("FileLocked", Reason.PROVIDER_BUSY, in_task=True),
    ),
    # Making
    "WaitForUpdatesEx": acts(
        Reason.INVENTORY_FAILED,
        Typed("InvalidCollectorVersion", None),
        broken(Reason.INVENTORY_FAILED),
    ).but(may=UNREACHABLE),  # whoever finds the session ended cuts off its other calls
    "ModifyListView": silent(gone(None), no_right("System.View")),
    "RetrievePropertiesEx": reads(Reason.INVENTORY_FAILED, gone(), no_property()),
    "FindAllByUuid": reads(
        Reason.INVENTORY_FAILED, no_right("System.View"), broken(Reason.INVENTORY_FAILED)
    ),
    "CreateFolder": acts(
        Reason.PROVISIONING_FAILED,
        no_right("Folder.Create"),
        Typed("InvalidName", Reason.INVALID_CONFIGURATION, {"name": "%"}),
    ),
    # Fields
    "AddCustomFieldDef": acts(
        Reason.UPDATE_FAILED,
        no_right("Global.ManageCustomFields"),
        taken(Reason.INVALID_CONFIGURATION),
    ),
    "SetField": acts(Reason.UPDATE_FAILED, no_right("Global.SetCustomField"), argument()),
    "QueryConfigOptionDescriptor": acts(
        Reason.PROVISIONING_FAILED, no_right("System.Read"), broken(Reason.PROVISIONING_FAILED)
    ),
    "UpgradeVM_Task": acts(
        Reason.UPDATE_FAILED,
        no_right("VirtualMachine.Config.UpgradeVirtualHardware"),
        Typed("NoDiskFound", Reason.STORAGE_CLASS_NOT_AVAILABLE, in_task=True),
    ),
    # Disks
    "MakeDirectory": acts(
        Reason.UPDATE_FAILED,
        file("CannotCreateFile", Reason.STORAGE_CLASS_NOT_AVAILABLE),
        no_right("Datastore.FileManagement"),
    ).but(may=_HELD | _BUSY),
    "MoveVirtualDisk_Task": acts(
        Reason.UPDATE_FAILED, file("FileLocked", Reason.PROVIDER_BUSY), no_store()
    ).but(may=_HELD | _BUSY),
    "QueryVirtualDiskUuid": acts(
        Reason.UPDATE_FAILED,
        file("FileLocked", Reason.PROVIDER_BUSY),
        no_store(Reason.INSUFFICIENT_STORAGE),
    ).but(may=_HELD | _BUSY),
    "SearchDatastoreSubFolders_Task": acts(
        Reason.INVENTORY_FAILED, no_store(), no_right("Datastore.Browse", None)
    ),
    # Large
    "ContinueRetrievePropertiesEx": acts(
        Reason.INVENTORY_FAILED, no_property(), broken(Reason.INVENTORY_FAILED)
    ),
    "FindChild": acts(Reason.INVENTORY_FAILED, gone(), no_right("System.View")),
    # Services
    "POST /api/session": services(_AWAY, _NO_LOGIN).but(
        cut=one_of(Reason.INVENTORY_FAILED), reply_lost=one_of(Reason.INVENTORY_FAILED)
    ),
    "POST /rest/com/vmware/cis/session": services(_AWAY, _NO_LOGIN),
    f"GET {_TAGGING}/category": _TAGS,
    f"GET {_TAGGING}/category/id:*": _HIDDEN,
    f"POST {_TAGGING}/category": _TAGS,
    f"POST {_TAGGING}/tag": _TAGS,
    f"POST {_TAGGING}/tag-association attach-multiple-tags-to-object": _TAGS,
    f"POST {_TAGGING}/tag-association detach-multiple-tags-from-object": _TAGS,
    f"POST {_TAGGING}/tag-association list-attached-tags-on-objects": _TAGS,
    f"POST {_TAGGING}/tag/id:* list-tags-for-category": _TAGS,
    f"GET {_TAGGING}/tag/id:*": _HIDDEN,
    f"POST {_TAGGING}/tag-association list-attached-objects-on-tags": _TAGS,
    "ReconfigureComputeResource_Task": acts(
        Reason.UPDATE_FAILED, no_right("Host.Inventory.EditCluster"), argument(in_task=True)
    ),
    "PbmRetrieveServiceContent": silent(broken(None)),
    "PbmQueryProfile": silent(broken(None)),
    "PbmRetrieveContent": silent(broken(None)),
    "PbmCheckRequirements": silent(broken(None)),
    "RecommendDatastores": acts(
        Reason.PROVISIONING_FAILED, argument(None)
    ),  # the clone itself tells what is wrong
    "QueryConfigTarget": acts(
        Reason.PROVISIONING_FAILED, no_right("System.Read"), broken(Reason.PROVISIONING_FAILED)
    ),
    "CreateImportSpec": imports(no_right("VApp.Import"), no_store()),
    "ImportVApp": imports(
        no_right("VApp.Import"),
        Typed("InsufficientStorageSpace", Reason.INSUFFICIENT_STORAGE),
    ),
    "HttpNfcLeaseProgress": silent(Typed("Timedout", None), no_right("VApp.Import", None)).but(
        may=_BUSY
    ),
    "HttpNfcLeaseAbort": imports(Typed("Timedout", None), other_power(None)).but(
        session_lost=_BROKE_OFF, may=_BROKE_OFF
    ),  # the mirror is what is told of
    "HttpNfcLeaseComplete": imports(
        Typed("Timedout", Reason.IMAGE_IMPORT_FAILED), other_power()
    ).but(session_lost=one_of(Reason.IMAGE_IMPORT_FAILED)),  # which ends the lease
    "CreateSnapshot_Task": imports(
        no_right("VirtualMachine.State.CreateSnapshot"),
        file("FileLocked", Reason.PROVIDER_BUSY, in_task=True),
    ),
    "MarkAsTemplate": imports(
        no_right("VirtualMachine.Provisioning.MarkAsTemplate"),
        other_power(),
    ),
    "Rename_Task": imports(
        no_right("VirtualMachine.Config.Rename"),
        Typed("InvalidName", Reason.INVALID_CONFIGURATION, {"name": "%"}, in_task=True),
    ),
}
"""By the call, in the order of the courses."""
