"""What the driver knows of the folders it makes, without reading its vCenter again."""

from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest
from pyVmomi import vim

from banlieue.providers.vsphere.client.session import Session
from banlieue.providers.vsphere.places.folders import Folders
from banlieue.providers.vsphere.places.inventory import Inventory, InventoryCache, Place
from banlieue.sdk.errors import NeedsOperator
from test.kit.vsphere_places import inventory


@dataclass
class VCenter:
    """A session that makes folders, or refuses each with a fault, and counts what is asked."""

    refusal: Exception | None = None
    places: Inventory = field(default_factory=inventory)
    made: int = 0
    reads: int = 0

    def run(self, call: object) -> str:
        del call
        if self.refusal is not None:
            raise self.refusal
        self.made += 1
        return f"group-made{self.made}"

    def read(self, session: Session) -> Inventory:
        del session
        self.reads += 1
        return self.places


def made_by(vcenter: VCenter) -> tuple[Folders, InventoryCache]:
    session = cast("Session", vcenter)
    cache = InventoryCache(session, lambda: 0.0, 300.0, vcenter.read)
    return Folders(session=session, places=cache), cache


def duplicate(taken: Any) -> vim.fault.DuplicateName:  # noqa: ANN401 - any managed object
    return vim.fault.DuplicateName(name="web", object=taken)


def test_folders_that_were_made_are_known_and_nothing_is_read_again() -> None:
    vcenter = VCenter()
    folders, cache = made_by(vcenter)
    cache.get()

    deepest = folders.ensure("group-v2", ["blue", "a/b"])

    assert cache.get().path(deepest) == ("team", "blue", "a/b")
    assert cache.get().datacenter_of(deepest) is not None
    assert folders.ensure("group-v2", ["blue", "a/b"]) == deepest
    assert (vcenter.made, vcenter.reads) == (2, 1)


def test_a_folder_that_another_made_meanwhile_is_taken_and_all_is_read_again() -> None:
    vcenter = VCenter(duplicate(vim.Folder("group-v3", None)))
    folders, cache = made_by(vcenter)
    cache.get()

    assert folders.ensure("group-v2", ["web"]) == "group-v3"

    cache.get()
    assert vcenter.reads == 2


def test_what_is_no_folder_is_not_taken_for_one() -> None:
    folders, _ = made_by(VCenter(duplicate(vim.VirtualMachine("vm-1", None))))

    with pytest.raises(NeedsOperator, match="something else has its name"):
        folders.ensure("group-v2", ["web"])


def test_what_was_read_of_a_folder_stays() -> None:
    vcenter = VCenter()
    _, cache = made_by(vcenter)
    cache.get()

    cache.add_folder(Place("group-v2", "another name", "group-v4"))

    assert cache.get().path("group-v2") == ("team",)


def test_a_folder_made_before_the_first_read_comes_with_it() -> None:
    vcenter = VCenter()
    _, cache = made_by(vcenter)
    new = Place("group-v9", "new", "group-v1")
    cache.add_folder(new)
    vcenter.places = replace(vcenter.places, folders={**vcenter.places.folders, "group-v9": new})

    assert cache.get().path("group-v9") == ("new",)
    assert vcenter.reads == 1


def test_what_was_to_be_read_again_is_read_again_though_a_folder_was_made() -> None:
    vcenter = VCenter()
    folders, cache = made_by(vcenter)
    cache.get()
    cache.throw_away()

    folders.ensure("group-v2", ["blue"])

    cache.get()
    assert vcenter.reads == 2
