"""Courses of what stands beside VMs: tags, groups, storage, devices and images."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final
from uuid import uuid4

from pyVmomi import vim

from banlieue.api.resources import PROVIDERS
from banlieue.api.v1alpha1.vmimage import ImageSource, SourceKind
from banlieue.sdk.driver import Driver
from banlieue.sdk.errors import DriverError
from banlieue.sdk.image.ports import ImageImport, ImageImporter
from test.kit.faultcourses import making_with
from test.kit.faultmatrix import Course, Life, Step
from test.kit.mirror import Mirror, checksum
from test.kit.vsphere_client import VSphereClient
from test.kit.vsphere_rest import VSphereRest
from test.kit.vspherebench import DOMAIN, PROVIDER
from test.kit.waiting import wait_until_async

IMAGE: Final = "image.ova"
POLICED: Final = "policed"
POOLED: Final = "pooled"
"""Storage classes that the target has to offer: one by a policy, one by a datastore cluster."""
DEVICE: Final = "gpu"
"""The label of a PCI device that the target's hosts have to offer."""

_TAGGING: Final = "/rest/com/vmware/cis/tagging"
_PATIENCE: Final = 60.0
_BEGUN: Final = 20_000
"""Bytes of an image after which its disk is on its way."""


# Tags


async def _tag(life: Life, category: str = "") -> None:
    """Have the machine tagged in a category that nobody made yet, and see that it is so, once."""
    bench, name = life.bench, await life.one()
    category = category or f"{name}-{uuid4().hex[:6]}"
    mapping = [{"label": "example.org/team", "tag": category}]
    bench.api.edit(PROVIDERS, PROVIDER, lambda obj: obj["spec"].update(tagMapping=mapping))
    rest, vm = VSphereRest(bench.target.vcenter), bench.vm(name).mo_ref
    before = rest.categories_on(vm)
    life.arm()
    bench.edit(name, tags={category: "blue"})
    await bench.until(
        "the tag",
        lambda: (
            bench.is_ready(name)
            and bench.condition("UpToDate", name)[0] == "True"
            and rest.tags_on(vm) == {(category, "blue")}
        ),
        name,
        timeout=_PATIENCE,
    )
    for done in before:  # every process that begins asks for each category there is
        rest.drop_category(done)


async def tagging(life: Life) -> None:
    """A machine that gets a tag is disturbed."""
    await _tag(life)


async def tagging_first(life: Life) -> None:
    """The same with a process that knows no tag yet."""
    await life.one()
    await asyncio.to_thread(life.bench.restart)
    await _tag(life)


async def tagging_by_names(life: Life) -> None:
    """The same where the category is there, and the process has to learn which tags it has."""
    name = await life.one()
    category = f"{name}-{uuid4().hex[:6]}"
    rest = VSphereRest(life.bench.target.vcenter)
    rest.make_tag(rest.make_category(category), "green")
    await asyncio.to_thread(life.bench.restart)
    await _tag(life, category)


async def finding(life: Life) -> None:
    """The look for a template that a tag names is disturbed."""
    await life.start()
    rest, vcenter = VSphereRest(life.bench.target.vcenter), life.bench.target.vcenter
    category = f"{life.name}-{uuid4().hex[:6]}"
    template = next(vm.mo_ref for vm in vcenter.vms() if vm.template)
    rest.attach(rest.make_tag(rest.make_category(category), "gold"), "VirtualMachine", template)
    source = ImageSource(
        provider_class="vsphere", kind=SourceKind.TEMPLATE, ref=f"tag:{category}/gold"
    )
    where = life.bench.domains[DOMAIN]
    life.arm()

    async def found() -> bool:
        find: Callable[[Driver[Any]], bool] = lambda it: it.find_image(source, where) is not None  # noqa: E731
        return await life.bench.open_one().call(find)

    await wait_until_async(found, _PATIENCE, "the template", retry_on=(DriverError,))


# Groups


async def grouping(life: Life) -> None:
    """A machine that goes over to another group is disturbed.

    Not the first one it joins: a process that sees a group takes away what an earlier one left.
    """
    bench, name = life.bench, await life.one()
    vm = bench.vm(name).mo_ref
    before: set[str] = set()
    for number in range(2):
        if number:
            life.arm()
        bench.edit(name, antiAffinityGroup=f"{name}-{number}")
        await bench.until("the group", partial(_goes_over, life, vm, before), name)
        before = _groups_of(life, vm)


def _goes_over(life: Life, vm: str, before: set[str]) -> bool:
    now = _groups_of(life, vm)
    return len(now) == 1 and now != before


def _groups_of(life: Life, vm: str) -> set[str]:
    vcenter = life.bench.target.vcenter
    with VSphereClient(vcenter.url, ca_pem=vcenter.ca_pem) as admin:
        admin.login(vcenter.username, vcenter.password)
        found = admin.read(admin.at("DC0/host/DC0_C0"), "configurationEx.group")
        admin.content.sessionManager.Logout()
    return {
        group.name
        for group in found.get("configurationEx.group") or ()
        if isinstance(group, vim.cluster.VmGroup) and vm in {it._moId for it in group.vm or ()}
    }


# Storage


async def asking_policies(life: Life) -> None:
    """The look at storage policies is disturbed, when a session is opened."""
    bench = life.bench
    await asyncio.to_thread(bench.stop)
    life.arm()
    life.started = True
    await asyncio.to_thread(bench.start)
    await life.met()

    async def offered() -> bool:
        read: Callable[[Driver[Any]], Any] = lambda driver: driver.failure_domains()  # noqa: E731
        found = await bench.open_one().call(read)
        bench.domains = {DOMAIN: found[0]}
        return POLICED in found[0].storage_classes

    await wait_until_async(offered, _PATIENCE, "the class", retry_on=(DriverError,))


async def recommending(life: Life) -> None:
    """The look for a datastore of a cluster of them is disturbed."""
    await life.start()
    life.arm()
    await life.delete(await life.make("pod", disks=[{"name": "root", "storageClass": POOLED}]))


def _devices(_: str) -> Mapping[str, object]:
    return {"pciDeviceLabels": [DEVICE], "hardwareVersion": "vmx-19"}


# Images


async def _bring(life: Life, mirror: Mirror, heal: Callable[[], None] | None = None) -> None:
    """Have an image imported and deleted, and see that one template comes of it and no part stays.

    With `heal` the mirror is in trouble until the call was made, and then that is called.
    """
    bench = life.bench
    await life.start()
    name = f"banlieue-{uuid4().hex[:12]}"
    wanted = ImageImport(name, mirror.url(IMAGE), checksum(mirror.contents[IMAGE]))

    def step(driver: Driver[Any], *, delete: bool = False) -> bool:
        assert isinstance(driver, ImageImporter)
        where = bench.domains[DOMAIN]
        if delete:
            return driver.delete_image(name, where) is None
        return driver.import_image(wanted, where) is None

    async def done(*, delete: bool) -> bool:
        return await bench.open_one().call(partial(step, delete=delete))

    async def met() -> bool:
        with suppress(DriverError):
            await done(delete=False)
        return life.hit

    def there() -> list[tuple[str, bool]]:
        found = (vm for vm in bench.target.vcenter.vms() if vm.name.startswith(name))
        return [(vm.name, vm.template) for vm in found]

    life.arm()
    if heal is not None:
        await wait_until_async(met, _PATIENCE, "the call to be made")
        heal()
    for delete, left in ((False, [(name, True)]), (True, [])):
        what = "the deletion" if delete else "the import"
        await wait_until_async(
            partial(done, delete=delete), _PATIENCE, what, retry_on=(DriverError,)
        )
        assert there() == left, f"{what} left {there()}"


async def importing(mirror: Mirror, life: Life) -> None:
    """The import of an image is disturbed."""
    await _bring(life, mirror)


async def stalling(mirror: Mirror, life: Life) -> None:
    """What is said to the vCenter while a mirror sends nothing is disturbed."""
    with Mirror(mirror.contents) as own:
        own.hold(after=_BEGUN)
        await _bring(life, own, own.release)


async def breaking_off(mirror: Mirror, life: Life) -> None:
    """What is said to the vCenter when a mirror breaks off is disturbed."""
    with Mirror(mirror.contents) as own:
        own.cut = len(mirror.contents[IMAGE])
        await _bring(life, own, partial(setattr, own, "cut", None))


def _of(step: Callable[[Mirror, Life], Awaitable[None]], mirror: Mirror | None) -> Step:
    async def run(life: Life) -> None:
        assert mirror is not None
        await step(mirror, life)

    return run


def services(mirror: Mirror | None = None) -> Mapping[str, Course]:
    """Every call to services that VMs do not live by, and the imports of the mirror's image.

    Without a mirror it only tells which calls there are.
    """
    brought = _of(importing, mirror)
    return {
        "tags": {
            "POST /api/session": tagging_first,
            "POST /rest/com/vmware/cis/session": tagging_first,
            f"GET {_TAGGING}/category": tagging_first,
            f"GET {_TAGGING}/category/id:*": tagging_first,
            f"POST {_TAGGING}/category": tagging,
            f"POST {_TAGGING}/tag": tagging,
            f"POST {_TAGGING}/tag-association attach-multiple-tags-to-object": tagging,
            f"POST {_TAGGING}/tag-association detach-multiple-tags-from-object": tagging,
            f"POST {_TAGGING}/tag-association list-attached-tags-on-objects": tagging_first,
            f"POST {_TAGGING}/tag/id:* list-tags-for-category": tagging_by_names,
            f"GET {_TAGGING}/tag/id:*": tagging_by_names,
            f"POST {_TAGGING}/tag-association list-attached-objects-on-tags": finding,
            "ReconfigureComputeResource_Task": grouping,
        },
        "placing": {
            "PbmRetrieveServiceContent": asking_policies,
            "PbmQueryProfile": asking_policies,
            "PbmRetrieveContent": asking_policies,
            "PbmCheckRequirements": asking_policies,
            "RecommendDatastores": recommending,
            "QueryConfigTarget": making_with("pci", _devices),
        },
        "images": {
            "CreateImportSpec": brought,
            "ImportVApp": brought,
            "HttpNfcLeaseProgress": _of(stalling, mirror),
            "HttpNfcLeaseAbort": _of(breaking_off, mirror),
            "HttpNfcLeaseComplete": brought,
            "CreateSnapshot_Task": brought,
            "MarkAsTemplate": brought,
            "Rename_Task": brought,
        },
    }
