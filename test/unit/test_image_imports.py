"""Importing images: read from a URL, verified, published in one step, deleted when unused."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from banlieue.api.events import EventReason
from banlieue.api.names import FINALIZER_IMAGE_COPIES, FINALIZER_IMAGE_IN_USE
from banlieue.api.resources import CONFIG_MAPS, PROVIDERS, VM_IMAGES
from banlieue.sdk.image.ports import ImageImporter
from banlieue.sdk.image.reconciler import ImageReconciler
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.testing.fakes import context_for
from test.kit.machinebench import MACHINE, PROVIDER, MachineBench, ServedProvider
from test.kit.mirror import Mirror, checksum
from test.kit.waiting import wait_until_async

IMAGE = Key("", "ubuntu")
CONTENT = bytes(range(256)) * 4096
HALF = len(CONTENT) // 2


class Importing:
    """A machine bench whose image comes from a mirror, and its image reconciler."""

    def __init__(self, mirror: Mirror) -> None:
        self.mirror = mirror
        self.bench = MachineBench()
        self.source(ref=mirror.url("ubuntu.img"))
        self.finalizers(FINALIZER_IMAGE_IN_USE, FINALIZER_IMAGE_COPIES)
        self.begin()

    def begin(self) -> None:
        """A process that remembers nothing."""
        ctx = context_for(self.bench.api, clock=self.bench.clock, recorder=self.bench.recorder)
        self.reconciler = ImageReconciler(ctx, self.bench.backend, self.bench)

    def source(self, **changes: object) -> None:
        source = {"providerClass": "simulated", "kind": "Url", "checksum": checksum(CONTENT)}
        self.edit(lambda obj: obj["spec"].update(sources=[{**source, **changes}]))

    def finalizers(self, *names: str) -> None:
        self.edit(lambda obj: obj["metadata"].update(finalizers=list(names)))

    def edit(self, change: Callable[[Obj], object]) -> None:
        self.bench.api.edit(VM_IMAGES, IMAGE, lambda obj: change(obj) and None)

    def delete(self, *, used: bool = False) -> None:
        self.bench.api.drop(VM_IMAGES, IMAGE)
        if not used:
            self.finalizers(FINALIZER_IMAGE_COPIES)

    async def look(self, seconds: float = 0.0) -> float:
        """One pass, after so many seconds; gives when the next one is due."""
        self.bench.clock.advance(seconds)
        after = (await self.reconciler.reconcile(IMAGE)).requeue_after
        return 0.0 if after is None else after

    @property
    def row(self) -> Obj:
        status = (self.bench.api.peek(VM_IMAGES, IMAGE) or {}).get("status") or {}
        rows: list[Obj] = status.get("perProvider") or [{}]
        return rows[0]

    async def until(self, what: Callable[[Obj], object], seconds: float = 0.0) -> Obj:
        """Passes until the row is so; the clock moves by so many seconds before each."""

        async def looked() -> bool:
            await self.look(seconds)
            return bool(what(self.row))

        await wait_until_async(looked, 20, f"the row, now {self.row}")
        return self.row

    async def imported(self) -> Obj:
        return await self.until(lambda row: row.get("ready") and "reason" not in row)

    def writes(self) -> int:
        return len(self.bench.api.writes())

    def reasons(self) -> list[EventReason]:
        return self.bench.recorder.reasons()

    def images(self) -> set[str]:
        return {ref for ref, it in self.bench.world.state.images.items() if it.imported}


@pytest.fixture
def mirror() -> Iterator[Mirror]:
    with Mirror({"ubuntu.img": CONTENT}) as mirror:
        yield mirror


@pytest.fixture
def it(mirror: Mirror) -> Importing:
    return Importing(mirror)


async def test_an_image_that_is_lacking_is_imported_everywhere_and_said_once(it: Importing) -> None:
    row = await it.imported()
    (copy,) = row["copies"]
    assert it.images() == {copy}
    assert row["readyFailureDomains"] == ["sim-a", "sim-b"]
    assert (row["resolvedRef"], row["bytes"]) == (copy, len(CONTENT))
    assert it.bench.world.state.parts == {}
    assert it.reasons() == [EventReason.IMAGE_IMPORT_STARTED, EventReason.IMAGE_IMPORT_COMPLETED]
    before = it.writes()
    assert await it.look() > 60
    assert it.writes() == before


async def test_progress_is_told_in_steps_of_size_and_of_time(it: Importing) -> None:
    it.mirror.hold(after=HALF)
    row = await it.until(lambda row: row.get("progressPercent"), seconds=10)
    # Half of the first of two failure domains, in whole steps.
    assert (row["reason"], row["ready"], row["progressPercent"]) == ("Importing", False, 20)
    before = it.writes()
    for _ in range(20):
        assert await it.look(0.1) < 5
    assert it.writes() == before
    it.mirror.hold(after=len(CONTENT))
    assert (await it.look(9.0)) < 5
    assert it.row["progressPercent"] == 20
    it.mirror.release()
    await it.imported()
    assert "progressPercent" not in it.row


async def test_what_is_not_what_the_checksum_says_is_refused(it: Importing) -> None:
    it.source(ref=it.mirror.url("ubuntu.img"), checksum=checksum(b"something else"))
    row = await it.until(lambda row: row.get("reason") == "ImageChecksumMismatch")
    assert row["ready"] is False
    assert checksum(CONTENT) in row["message"]
    assert it.images() == set()
    assert it.bench.world.state.parts == {}
    asked, written = len(it.mirror.requests), it.writes()
    for _ in range(5):
        assert await it.look(300) > 0
    assert (len(it.mirror.requests), it.writes()) == (asked, written)
    assert it.reasons() == [EventReason.IMAGE_IMPORT_STARTED, EventReason.IMAGE_IMPORT_FAILED]

    it.source(ref=it.mirror.url("ubuntu.img"))
    await it.imported()


async def test_an_import_that_fails_is_tried_again_with_growing_pauses(it: Importing) -> None:
    it.mirror.status = 503
    await it.until(lambda row: row.get("reason") == "ImageImportFailed")
    assert "503" in it.row["message"]
    pauses = []
    for _ in range(4):
        asked = len(it.mirror.requests)
        pauses.append(await it.look())
        assert len(it.mirror.requests) == asked
        await it.until(lambda _: len(it.mirror.requests) > asked, seconds=pauses[-1])  # noqa: B023
        written = it.writes()
        await it.until(
            lambda _: it.reconciler.memory(IMAGE, PROVIDER).retry_at > it.bench.clock.monotonic()
        )
        assert it.writes() == written
    assert pauses == sorted(pauses)
    assert pauses[-1] > 4 * pauses[0]
    it.mirror.status = 200
    await it.until(lambda row: row.get("ready") and "reason" not in row, seconds=60)
    assert it.reasons() == [
        EventReason.IMAGE_IMPORT_STARTED,
        EventReason.IMAGE_IMPORT_FAILED,
        EventReason.IMAGE_IMPORT_COMPLETED,
    ]


async def test_a_connection_that_breaks_leaves_nothing_behind(it: Importing) -> None:
    it.mirror.cut = HALF
    row = await it.until(lambda row: row.get("reason") == "ImageImportFailed")
    assert "server" in row["message"]
    assert it.bench.world.state.parts == {}
    it.mirror.cut = None
    await it.until(lambda row: row.get("ready") and "reason" not in row, seconds=60)


async def test_a_provider_killed_in_the_middle_begins_anew_and_ends_with_one_image(
    it: Importing,
) -> None:
    it.mirror.hold(after=HALF)
    await it.until(lambda row: row.get("progressPercent"), seconds=10)
    hung = it.bench.session  # as long as it is there, what the old process began goes on
    it.bench.restart()
    it.begin()
    await it.until(lambda _: len(it.bench.world.state.parts) > 1)
    it.mirror.release()
    row = await it.imported()
    assert it.images() == set(row["copies"])
    assert len(row["copies"]) == 1

    async def no_part() -> bool:
        return not it.bench.world.state.parts

    await wait_until_async(no_part, 10, "both parts to be gone")
    assert hung is not it.bench.session


async def test_parts_of_a_process_that_died_are_swept(it: Importing) -> None:
    copy_of = await it.imported()
    driver = it.bench.served.driver
    assert isinstance(driver, ImageImporter)
    (name,) = copy_of["copies"]
    left = it.bench.world.call(
        "import_begin", {"name": name, "domain": "domain-a"}, session=_login(it)
    )
    it.bench.control("set_image", image={"ref": "unrelated"})
    it.bench.clock.advance(601)
    it.bench.world.call("import_begin", {"name": name, "domain": "domain-a"}, session=_login(it))
    assert left["id"] not in it.bench.world.state.parts


async def test_after_a_restore_without_status_the_copy_is_found_again(it: Importing) -> None:
    before = await it.imported()
    asked = len(it.mirror.requests)
    it.edit(lambda obj: obj.update(status={}))
    it.bench.restart()
    it.begin()
    await it.look()
    assert len(it.mirror.requests) == asked
    assert it.row["resolvedRef"] == before["resolvedRef"]
    assert it.row["copies"] == before["copies"]


async def test_what_a_restore_left_in_the_row_goes(it: Importing) -> None:
    restored = {
        "providerNamespace": PROVIDER.namespace,
        "providerName": PROVIDER.name,
        "ready": False,
        "reason": "Importing",
        "progressPercent": 40,
        "copies": ["banlieue-of-old"],
    }
    it.edit(lambda obj: obj.update(status={"perProvider": [restored]}))
    row = await it.imported()
    assert "progressPercent" not in row
    assert row["copies"][0] == "banlieue-of-old"
    assert len(row["copies"]) == 2
    it.delete()
    await it.look()
    assert "copies" not in it.row


async def test_what_an_admin_put_there_is_not_imported(it: Importing) -> None:
    it.source(kind="Template", ref="ubuntu-24.04", importFrom=it.mirror.url("ubuntu.img"))
    await it.look()
    assert it.row["resolvedRef"] == "ubuntu-24.04"
    assert "copies" not in it.row
    it.source(kind="Template", ref="absent", importFrom=it.mirror.url("ubuntu.img"))
    assert (await it.imported())["resolvedRef"] != "ubuntu-24.04"


async def test_an_image_found_in_one_place_does_not_count_for_all(it: Importing) -> None:
    it.source(kind="Template", ref="ubuntu-24.04", checksum=None)
    it.bench.world.state.domains[1].images.remove("ubuntu-24.04")
    await it.look()
    assert (it.row["ready"], it.row["readyFailureDomains"]) == (True, ["sim-a"])
    assert it.row["reason"] == "ImageNotAvailable"


async def test_nothing_is_imported_before_the_image_is_held(it: Importing) -> None:
    it.finalizers()
    assert await it.look() < 30
    assert it.mirror.requests == []
    it.finalizers(FINALIZER_IMAGE_IN_USE, FINALIZER_IMAGE_COPIES)
    await it.imported()


async def test_nothing_is_imported_while_the_provider_is_paused(it: Importing) -> None:
    it.bench.served.writable = False
    await it.look()
    assert it.mirror.requests == []
    assert it.row["reason"] == "ProviderPaused"
    it.bench.served.writable = True
    await it.imported()


async def test_nothing_is_imported_or_deleted_by_a_copy_of_another_installation(
    it: Importing,
) -> None:
    await it.imported()
    installation = Key(PROVIDER.namespace, "banlieue-installation")
    it.bench.api.edit(
        CONFIG_MAPS, installation, lambda obj: obj["data"].update(clusterUID="another")
    )
    it.delete()
    await it.look()
    assert it.images() == set(it.row["copies"])


async def test_a_login_in_the_url_is_used_and_never_shown(it: Importing) -> None:
    it.mirror.login = "reader:planted-mirror-password"
    it.source(ref=it.mirror.url("ubuntu.img", login="reader:planted-wrong-password"))
    await it.until(lambda row: row.get("reason") == "ImageImportFailed")
    assert "401" in it.row["message"]
    it.source(ref=it.mirror.url("ubuntu.img", login="reader:planted-mirror-password"))
    await it.imported()
    told = repr(it.row) + repr(it.bench.recorder.events)
    assert "planted" not in told


async def test_a_server_that_is_not_there_is_told_without_the_url(it: Importing) -> None:
    it.source(ref="http://reader:planted@127.0.0.1:1/ubuntu.img")
    await it.until(lambda row: row.get("reason") == "ImageImportFailed")
    assert "planted" not in it.row["message"]
    assert "cannot be reached" in it.row["message"]


async def test_other_schemes_are_refused(it: Importing) -> None:
    it.source(kind="Template", ref="absent", importFrom="file:///etc/hostname")
    await it.until(lambda row: row.get("reason") == "ImageImportFailed")
    assert "http" in it.row["message"]


async def test_copies_go_with_the_image_and_templates_stay(it: Importing) -> None:
    await it.imported()
    templates = set(it.bench.world.state.images) - it.images()
    it.delete(used=True)
    await it.look()
    assert it.images(), "the controller has not said that nothing uses it"
    it.finalizers(FINALIZER_IMAGE_COPIES)
    it.bench.make_machine(MACHINE)
    await it.look()
    assert it.images(), "a machine is made from it"
    it.bench.delete(MACHINE)
    await it.look()
    assert it.images() == set()
    assert set(it.bench.world.state.images) == templates
    assert "copies" not in it.row
    assert (it.row["ready"], it.row["reason"]) == (False, "Deleting")


async def test_an_import_under_way_is_stopped_when_the_image_is_deleted(it: Importing) -> None:
    it.mirror.hold(after=HALF)
    await it.until(lambda row: row.get("progressPercent"), seconds=10)
    it.delete()
    await it.look()
    it.mirror.release()
    await it.until(lambda row: "copies" not in row)
    assert it.images() == set()
    assert it.bench.world.state.parts == {}


async def test_what_has_the_name_of_a_copy_and_was_not_imported_is_left_alone(
    it: Importing,
) -> None:
    (copy,) = (await it.imported())["copies"]
    it.bench.control("set_image", image={"ref": copy})
    it.delete()
    await it.look()
    assert copy in it.bench.world.state.images
    assert it.row["copies"] == [copy]
    assert "left alone" in it.row["message"]


async def test_a_copy_of_a_former_source_goes_with_the_image_too(it: Importing) -> None:
    first = (await it.imported())["copies"]
    it.mirror.contents["new.img"] = CONTENT[:HALF]
    it.source(ref=it.mirror.url("new.img"), checksum=checksum(CONTENT[:HALF]))
    second = (await it.imported())["copies"]
    assert second[:1] == first
    assert it.images() == set(second)
    it.delete()
    await it.look()
    assert it.images() == set()


async def test_a_provider_whose_backend_imports_nothing_says_what_to_do(it: Importing) -> None:
    class Plain:
        """The driver without its optional powers."""

        def __init__(self, driver: Any) -> None:  # noqa: ANN401 - any driver
            self.failure_domains = driver.failure_domains
            self.find_image = driver.find_image

    it.bench.opened[PROVIDER] = ServedProvider(
        it.bench.api,
        Plain(it.bench.served.driver),  # type: ignore[arg-type] # as much as is asked for
        it.bench.served.identity,
    )
    await it.look()
    assert it.row["reason"] == "ImageNotAvailable"
    assert "cannot import" in it.row["message"]
    assert it.mirror.requests == []


async def test_machines_are_made_from_the_copy(it: Importing) -> None:
    await it.imported()
    it.bench.make_machine()
    await it.bench.run()
    (vm,) = it.bench.vms()
    assert vm.disks[0].content == f"image:{it.row['resolvedRef']}"


async def test_a_copy_belongs_to_one_image_of_one_provider(it: Importing) -> None:
    (copy,) = (await it.imported())["copies"]
    raw = it.bench.api.peek(VM_IMAGES, IMAGE) or {}
    it.bench.api.put(
        VM_IMAGES, {**raw, "metadata": {**raw["metadata"], "name": "twin"}, "status": {}}
    )
    assert it.bench.api.peek(PROVIDERS, PROVIDER)

    async def twin() -> bool:
        await it.reconciler.reconcile(Key("", "twin"))
        return len(it.images()) == 2

    await wait_until_async(twin, 20, "the twin's own copy")
    assert copy in it.images()


def _login(it: Importing) -> str:
    answer = it.bench.world.call("login", {"username": "simulated", "password": "planted-password"})
    session: str = answer["session"]
    return session
