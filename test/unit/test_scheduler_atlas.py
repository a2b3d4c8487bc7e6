"""Providers are read once per change, and never shown as they were."""

from collections.abc import Callable, Iterator, Mapping

import pytest

from banlieue.api.meta import Resource
from banlieue.api.resources import NAMESPACES, PROVIDER_CLASSES, PROVIDERS, VM_IMAGES
from banlieue.api.v1alpha1.vmimage import VMImage
from banlieue.controller.scheduling.atlas import Atlas
from banlieue.controller.scheduling.placement import Site
from banlieue.sdk.kube import Key, Obj, ObjectReader
from banlieue.sdk.runtime.cache import Cache
from banlieue.sdk.runtime.sources import Stream
from test.kit.controllerworld import NAMESPACE, SYSTEM, ControllerWorld, domain

ONE = Key(SYSTEM, "one")


class Counting:
    """A reader that counts what is read whole."""

    def __init__(self, cache: ObjectReader) -> None:
        self._cache = cache
        self.read: list[Key] = []

    def get(self, resource: Resource, key: Key) -> Obj | None:
        if resource in {PROVIDERS, PROVIDER_CLASSES}:
            self.read.append(key)
        return self._cache.get(resource, key)

    def list(self, resource: Resource, *, namespace: str = "") -> Iterator[Obj]:
        return self._cache.list(resource, namespace=namespace)

    def revisions(self, resource: Resource) -> Mapping[Key, object]:
        return self._cache.revisions(resource)

    def synced(self, *resources: Resource) -> bool:
        return self._cache.synced(*resources)


def image(world: ControllerWorld) -> VMImage:
    return VMImage.from_api(world.api.peek(VM_IMAGES, Key("", "ubuntu")) or {})


def shown(atlas: Atlas, world: ControllerWorld, provider: Key = ONE) -> Site:
    found = atlas.site(provider, image(world), NAMESPACE)
    assert found is not None
    return found


def test_what_did_not_change_is_not_read_again() -> None:
    world = ControllerWorld.ready(one={}, two={"backend": "that"})
    reader = Counting(world.api.cache)
    atlas = Atlas(reader)
    first = atlas.sites(image(world), NAMESPACE)
    reader.read.clear()
    again = atlas.sites(image(world), NAMESPACE)
    assert again == first
    assert reader.read == []
    assert all(one.domains is other.domains for one, other in zip(first, again, strict=True))
    world.api.edit(PROVIDERS, ONE, lambda obj: obj["spec"].update(cordoned=True))
    assert [it.cordoned for it in atlas.sites(image(world), NAMESPACE)] == [True, False]
    assert reader.read == [ONE, Key("", "this")]


@pytest.mark.parametrize(
    ("resource", "key", "change", "seen"),
    [
        (PROVIDERS, ONE, lambda obj: obj["spec"].update(paused=True), lambda it: it.paused),
        (
            PROVIDERS,
            ONE,
            lambda obj: obj["status"].update(failureDomains=[domain("x")]),
            lambda it: [one.name for one in it.domains] == ["x"],
        ),
        (
            PROVIDER_CLASSES,
            Key("", "this"),
            lambda obj: obj["spec"].update(paused=True),
            lambda it: it.paused,
        ),
        (
            PROVIDERS,
            ONE,
            lambda obj: obj["spec"].update(providerClassRef={"name": "gone"}),
            lambda it: not it.ready and "gone" in it.not_ready,
        ),
        (
            PROVIDERS,
            ONE,
            lambda obj: obj["spec"].update(allowedNamespaces={"from": "Same"}),
            lambda it: not it.allowed,
        ),
        (
            VM_IMAGES,
            Key("", "ubuntu"),
            lambda obj: obj["status"]["perProvider"][0].update(ready=False, reason="Importing"),
            lambda it: not it.images["ubuntu"].ready,
        ),
        (
            VM_IMAGES,
            Key("", "ubuntu"),
            lambda obj: obj["spec"].update(
                sources=[{"providerClass": "other", "kind": "Template", "ref": "x"}]
            ),
            lambda it: "no source" in it.images["ubuntu"].message,
        ),
    ],
)
def test_every_change_is_seen(
    resource: Resource,
    key: Key,
    change: Callable[[Obj], object],
    seen: Callable[[Site], object],
) -> None:
    world = ControllerWorld.ready()
    atlas = Atlas(world.api.cache)
    assert not seen(shown(atlas, world))
    world.api.edit(resource, key, change)
    assert seen(shown(atlas, world))


def test_a_class_that_comes_later_is_seen() -> None:
    world = ControllerWorld.ready()
    made = world.api.peek(PROVIDER_CLASSES, Key("", "this")) or {}
    world.api.drop(PROVIDER_CLASSES, Key("", "this"))
    atlas = Atlas(world.api.cache)
    assert not shown(atlas, world).ready
    world.api.put(PROVIDER_CLASSES, made)
    assert shown(atlas, world).ready


def test_labels_of_the_namespace_decide_anew_each_time() -> None:
    selector = {"from": "Selector", "selector": {"matchLabels": {"team": "a"}}}
    world = ControllerWorld.ready(one={"allowedNamespaces": selector})
    atlas = Atlas(world.api.cache)
    assert shown(atlas, world).allowed
    world.api.edit(NAMESPACES, Key("", NAMESPACE), lambda obj: obj["metadata"].pop("labels"))
    assert not shown(atlas, world).allowed


def test_a_provider_that_is_gone_is_gone() -> None:
    world = ControllerWorld.ready(one={}, two={})
    atlas = Atlas(world.api.cache)
    assert len(atlas.sites(image(world), NAMESPACE)) == 2
    world.api.drop(PROVIDERS, ONE)
    assert atlas.site(ONE, image(world), NAMESPACE) is None
    assert len(atlas.sites(image(world), NAMESPACE)) == 1


def test_a_rolled_back_object_of_the_same_version_is_another_revision() -> None:
    """After a restore of etcd a version may come again with other contents."""
    cache = Cache()
    store = cache.open(Stream(PROVIDERS))
    obj = {"metadata": {"namespace": SYSTEM, "name": "one", "uid": "u", "resourceVersion": "7"}}
    store.observe(None, {**obj, "spec": {"cordoned": False}})
    before = cache.revisions(PROVIDERS)[ONE]
    assert cache.revisions(PROVIDERS)[ONE] is before
    store.observe(None, {**obj, "spec": {"cordoned": True}})
    assert cache.revisions(PROVIDERS)[ONE] is not before
