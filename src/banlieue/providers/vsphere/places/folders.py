"""VM folders: which one a machine lies in, and how one that is not there is made.

A folder is made only where the machine or the Provider asks for it, one level after the other. The
name in its parent is the lock: of several who make the same folder at once one succeeds, and the
others take that one. No folder is ever removed: it may hold what is not ours.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from pyVmomi import vim

from banlieue.api.reasons import Reason
from banlieue.providers.vsphere.client.session import Login, Session
from banlieue.providers.vsphere.client.soap import moid
from banlieue.providers.vsphere.models import FolderPolicy, VSphereMachineSpec
from banlieue.providers.vsphere.places.inventory import (
    Datacenter,
    Inventory,
    InventoryCache,
    Place,
    below,
)
from banlieue.sdk.driver import Target
from banlieue.sdk.errors import InvalidSpec, NeedsOperator

FOLDER_SETTING = "folder"
POLICY_SETTING = "folderPolicy"

_LONGEST_NAME = 80


@dataclass(frozen=True, slots=True)
class Home:
    """What the Provider says about folders, for machines that say nothing."""

    folder: str | None = None
    policy: FolderPolicy = FolderPolicy.EXISTING

    @classmethod
    def of(cls, settings: Target) -> "Home":
        """From the Provider's settings; raises `NeedsOperator` for a policy that is none."""
        value = str(settings.get(POLICY_SETTING, FolderPolicy.EXISTING))
        try:
            policy = FolderPolicy(value)
        except ValueError:
            raise NeedsOperator(
                Reason.CAPABILITY_INVALID,
                f"settings.{POLICY_SETTING} {value!r} is not one of {', '.join(FolderPolicy)}; "
                "correct it",
            ) from None
        folder = settings.get(FOLDER_SETTING)
        return cls(str(folder) if folder is not None and str(folder) else None, policy)


def home_of(
    places: Inventory, datacenter: Datacenter, spec: VSphereMachineSpec, home: Home
) -> tuple[str, tuple[str, ...]]:
    """The id of the machine's folder, or of the deepest one there is and what is missing below.

    Raises:
        InvalidSpec: the folder is not there and is not to be made, or several could be meant.
    """
    wanted = spec.folder or home.folder
    policy = spec.folder_policy or home.policy
    if wanted is None:
        return datacenter.vm_folder, ()
    field_name = "folder" if spec.folder else f"settings.{FOLDER_SETTING} of the Provider:"
    here = {
        folder.id: places.path(folder.id)
        for folder in places.folders.values()
        if _lies_in(places, folder, datacenter.vm_folder)
    }
    if wanted in here:
        return wanted, ()
    path = below(wanted, datacenter.name, "vm")
    if path == ():
        return datacenter.vm_folder, ()
    hits = [key for key, steps in here.items() if steps == path]
    if not hits and path is not None and len(path) == 1:
        hits = [key for key, steps in here.items() if steps[-1:] == path]
    if len(hits) == 1:
        return hits[0], ()
    if path is not None and not hits and policy is FolderPolicy.CREATE:
        return _deepest(here, datacenter, path, wanted)
    problem = f"there are {len(hits)}" if hits else "there is none"
    remedy = "give the path of one that exists"
    if not hits and path is not None:
        remedy += ", or let it be made by folderPolicy Create"
    raise InvalidSpec(
        Reason.INVALID_CONFIGURATION,
        f"{field_name} {wanted!r}: {problem} of that name in datacenter {datacenter.name}; "
        f"{remedy}",
    )


def _deepest(
    here: dict[str, tuple[str, ...]], datacenter: Datacenter, path: tuple[str, ...], wanted: str
) -> tuple[str, tuple[str, ...]]:
    longest = max(path, key=len)
    if len(longest) > _LONGEST_NAME:
        raise InvalidSpec(
            Reason.INVALID_CONFIGURATION,
            f"folder {wanted!r}: a name in it is longer than {_LONGEST_NAME} characters; "
            "choose a shorter one",
        )
    by_path = {steps: key for key, steps in here.items()}
    for length in range(len(path) - 1, 0, -1):
        if path[:length] in by_path:
            return by_path[path[:length]], path[length:]
    return datacenter.vm_folder, path


def _lies_in(places: Inventory, folder: Place, top: str) -> bool:
    parent = folder.parent
    while parent:
        if parent == top:
            return True
        above = places.folders.get(parent)
        parent = above.parent if above else None
    return False


@dataclass(slots=True, kw_only=True)
class Folders:
    """Makes folders. Thread-safe."""

    session: Session
    places: InventoryCache
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)
    _made: dict[tuple[str, str], str] = field(init=False, default_factory=dict)

    def ensure(self, parent: str, names: Sequence[str]) -> str:
        """The id of the folder reached by these names; those that are missing are made.

        Raises:
            NeedsOperator: something that is no folder has the name.
        """
        for name in names:
            with self._lock:
                known = self._made.get((parent, name))
                if known is None:
                    known = self._make(parent, name)
                    self._made[parent, name] = known
            parent = known
        return parent

    def forget(self) -> None:
        """What was made may be gone."""
        with self._lock:
            self._made.clear()

    def _make(self, parent: str, name: str) -> str:
        def make(login: Login) -> str:
            return moid(vim.Folder(parent, login.ops).CreateFolder(name=_escaped(name)))

        try:
            made = self.session.run(make)
            self.places.add_folder(Place(made, name, parent))
        except vim.fault.DuplicateName as taken:
            if not isinstance(taken.object, vim.Folder):
                raise NeedsOperator(
                    Reason.INVALID_CONFIGURATION,
                    f"folder {name!r} cannot be made, as something else has its name; rename that, "
                    "or choose another folder",
                ) from taken
            made = moid(taken.object)
            # What else is there that was not known, nobody knows.
            self.places.throw_away()
        return made


def _escaped(name: str) -> str:
    """A name as a vCenter stores it."""
    return name.replace("%", "%25").replace("/", "%2f").replace("\\", "%5c")
