"""Each Provider says in a row of its own whether it has an image."""

import pytest

from banlieue.api.reasons import Reason
from banlieue.api.resources import PROVIDERS, VM_IMAGES
from banlieue.api.v1alpha1.vmimage import ImageSource
from banlieue.sdk.driver import FailureDomain, Image
from banlieue.sdk.errors import InvalidSpec, NeedsOperator
from banlieue.sdk.image.reconciler import ImageReconciler
from banlieue.sdk.kube import Key, Obj
from banlieue.sdk.testing.fakes import context_for
from test.kit.machinebench import PROVIDER, MachineBench

IMAGE = Key("", "ubuntu")


@pytest.fixture
def bench() -> MachineBench:
    return MachineBench()


def _reconciler(bench: MachineBench) -> ImageReconciler:
    return ImageReconciler(context_for(bench.api, clock=bench.clock), bench.backend, bench)


def _rows(bench: MachineBench) -> list[Obj]:
    status = (bench.api.peek(VM_IMAGES, IMAGE) or {}).get("status") or {}
    rows: list[Obj] = status.get("perProvider") or []
    return rows


async def test_an_image_that_is_there_is_ready_with_what_it_was_found_to_be(
    bench: MachineBench,
) -> None:
    await _reconciler(bench).reconcile(IMAGE)
    assert _rows(bench) == [
        {
            "providerNamespace": PROVIDER.namespace,
            "providerName": PROVIDER.name,
            "ready": True,
            "resolvedRef": "ubuntu-24.04",
            "readyFailureDomains": ["sim-a", "sim-b"],
        }
    ]


async def test_an_image_that_is_not_there_says_where_it_was_looked_for(bench: MachineBench) -> None:
    bench.api.edit(VM_IMAGES, IMAGE, lambda obj: obj["spec"]["sources"][0].update(ref="absent"))
    await _reconciler(bench).reconcile(IMAGE)
    (row,) = _rows(bench)
    assert (row["ready"], row["reason"]) == (False, "ImageNotAvailable")
    assert "absent" in row["message"]
    assert "sim-a" in row["message"]


async def test_a_class_of_its_own_beats_the_backend(bench: MachineBench) -> None:
    def two_sources(obj: Obj) -> None:
        special = {"providerClass": "pinned", "kind": "Template", "ref": "debian-12"}
        obj["spec"]["sources"].append(special)

    bench.api.edit(VM_IMAGES, IMAGE, two_sources)
    bench.api.edit(
        PROVIDERS, PROVIDER, lambda obj: obj["spec"]["providerClassRef"].update(name="pinned")
    )
    await _reconciler(bench).reconcile(IMAGE)
    assert [row["resolvedRef"] for row in _rows(bench)] == ["debian-12"]


async def test_what_did_not_change_is_not_written_again(bench: MachineBench) -> None:
    await _reconciler(bench).reconcile(IMAGE)
    writes = len(bench.api.writes())
    await _reconciler(bench).reconcile(IMAGE)
    assert len(bench.api.writes()) == writes


async def test_an_outage_keeps_the_row_and_asks_again_soon(bench: MachineBench) -> None:
    await _reconciler(bench).reconcile(IMAGE)
    before = _rows(bench)
    bench.control("inject", rule={"effect": "cut", "count": None})
    result = await _reconciler(bench).reconcile(IMAGE)
    assert _rows(bench) == before
    assert result.requeue_after is not None
    assert result.requeue_after < 60


async def test_a_provider_that_was_not_reached_yet_is_asked_soon(bench: MachineBench) -> None:
    bench.opened.clear()
    result = await _reconciler(bench).reconcile(IMAGE)
    assert _rows(bench) == []
    assert result.requeue_after is not None
    assert result.requeue_after < 60


async def test_rows_of_other_providers_are_left_alone(bench: MachineBench) -> None:
    other = {"providerNamespace": "x", "providerName": "y", "ready": True}
    bench.api.edit(VM_IMAGES, IMAGE, lambda obj: obj.update(status={"perProvider": [other]}))
    await _reconciler(bench).reconcile(IMAGE)
    assert other in _rows(bench)
    assert len(_rows(bench)) == 2


async def test_what_is_wrong_with_an_image_in_one_place_is_told_and_others_count(
    bench: MachineBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = bench.served.driver
    find = driver.find_image

    def ambiguous(image: ImageSource, where: FailureDomain) -> Image | None:
        if where.id == "domain-b":
            raise NeedsOperator(Reason.IMAGE_NOT_AVAILABLE, "two templates have that name")
        return find(image, where)

    monkeypatch.setattr(driver, "find_image", ambiguous)
    await _reconciler(bench).reconcile(IMAGE)
    (row,) = _rows(bench)
    assert (row["ready"], row["readyFailureDomains"]) == (True, ["sim-a"])
    assert (row["reason"], row["message"]) == ("ImageNotAvailable", "two templates have that name")


async def test_a_source_the_backend_cannot_use_is_told(
    bench: MachineBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(image: ImageSource, where: FailureDomain) -> Image | None:
        raise InvalidSpec(Reason.UNSUPPORTED_BY_PROVIDER, f"{image.kind} {where.id}: use Template")

    monkeypatch.setattr(bench.served.driver, "find_image", refuse)
    await _reconciler(bench).reconcile(IMAGE)
    (row,) = _rows(bench)
    assert (row["ready"], row["reason"]) == (False, "UnsupportedByProvider")
    assert "use Template" in row["message"]
