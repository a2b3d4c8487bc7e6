"""What the operator does once when it starts: default classes, and its own image."""

import pytest

from banlieue.api import names
from banlieue.api.resources import DEPLOYMENTS, PROVIDER_CLASSES
from banlieue.api.v1alpha1.providerclass import Image, ProviderClassSpec, PullPolicy
from banlieue.operator import classes, deployment
from banlieue.operator.app import Settings
from banlieue.sdk.kube import Forbidden, Key, NotFound, Unavailable
from banlieue.sdk.provider.classes import default_class
from banlieue.sdk.registry import backend_names, load_backend
from banlieue.sdk.testing.memory_api import Call, MemoryApi, Moment
from test.kit.controllerworld import SYSTEM
from test.kit.operatorworld import OperatorWorld

DEFAULTS = [default_class(load_backend(name)) for name in backend_names()]


def there(api: MemoryApi) -> list[str]:
    return [obj["metadata"]["name"] for obj in api.peek_all(PROVIDER_CLASSES)]


async def test_a_class_is_made_for_every_backend_that_is_installed() -> None:
    world = OperatorWorld(Settings(image="a/b:c", classes=DEFAULTS))
    await world.operator.prepare()
    assert there(world.api) == sorted(backend_names())
    key = world.register(of="vsphere")
    await world.settle()
    assert world.container(key)["image"] == "a/b:c"
    assert world.container(key)["args"][:2] == ["provider", "vsphere"]


async def test_a_class_that_is_there_stays_as_it_is() -> None:
    world = OperatorWorld(Settings(classes=DEFAULTS))
    spec = {"backend": "vsphere", "image": {"tag": "v7"}}
    mine = world.api.put(PROVIDER_CLASSES, {"metadata": {"name": "vsphere"}, "spec": spec})
    await world.operator.prepare()
    assert world.api.peek(PROVIDER_CLASSES, Key("", "vsphere")) == mine
    assert "simulated" in there(world.api)


async def test_a_class_that_is_deleted_stays_deleted_until_the_next_start() -> None:
    world = OperatorWorld(Settings(classes=DEFAULTS))
    await world.operator.prepare()
    world.api.drop(PROVIDER_CLASSES, Key("", "simulated"))
    await world.settle()
    assert "simulated" not in there(world.api)
    world.restart()
    await world.operator.prepare()
    assert "simulated" in there(world.api)


@pytest.mark.parametrize("lost", [True, False], ids=["reply lost", "never sent"])
async def test_a_start_that_dies_goes_on_with_the_next(*, lost: bool) -> None:
    api, when = MemoryApi(), Moment.AFTER if lost else Moment.BEFORE

    def fail(_: Call, moment: Moment) -> None:
        if moment is when:
            raise Unavailable(0, "no answer")

    stop = api.intercept(fail)
    with pytest.raises(Unavailable):
        await classes.make_missing(api, DEFAULTS)
    stop()
    await classes.make_missing(api, DEFAULTS)
    assert there(api) == sorted(backend_names())


async def test_the_kinds_are_waited_for() -> None:
    api = MemoryApi()

    def absent(_: Call, moment: Moment) -> None:
        if moment is Moment.BEFORE:
            raise NotFound(404, "NotFound", "the server could not find the requested resource")

    api.intercept(absent)
    with pytest.raises(Unavailable, match="CRDs are missing"):
        await classes.make_missing(api, DEFAULTS)


async def test_without_the_right_to_make_classes_it_works_on() -> None:
    api = MemoryApi()

    def refuse(_: Call, moment: Moment) -> None:
        if moment is Moment.BEFORE:
            raise Forbidden(403, "Forbidden", "no")

    api.intercept(refuse)
    await classes.make_missing(api, DEFAULTS)


async def test_the_own_image_is_that_of_the_own_deployment() -> None:
    world = OperatorWorld(Settings())
    containers = [{"name": "sidecar", "image": "x"}, {"name": "manager", "image": "r:5000/b:v3"}]
    world.api.put(
        DEPLOYMENTS,
        {
            "metadata": {"namespace": SYSTEM, "name": names.OPERATOR_ACCOUNT},
            "spec": {"template": {"spec": {"containers": containers}}},
        },
    )
    await world.operator.prepare()
    world.add_backend()
    key = world.register()
    await world.settle()
    assert world.container(key)["image"] == "r:5000/b:v3"


async def test_without_a_deployment_there_is_no_own_image() -> None:
    assert await classes.own_image(MemoryApi(), SYSTEM) == ""


@pytest.mark.parametrize(
    ("own", "given", "expected"),
    [
        ("r/b:v1", None, "r/b:v1"),
        ("r/b:v1", Image(), "r/b:v1"),
        ("r/b:v1", Image(tag="v2"), "r/b:v2"),
        ("r/b:v1", Image(repository="m/b"), "m/b:v1"),
        ("r/b:v1", Image(repository="m/b", tag="v2"), "m/b:v2"),
        ("r/b@sha256:00", Image(tag="v2"), "r/b:v2"),
        ("r/b@sha256:00", Image(repository="m:5000/b"), "m:5000/b@sha256:00"),
        ("r/b:v1", Image(tag="sha256:11"), "r/b@sha256:11"),
        ("r:5000/b", Image(tag="v2"), "r:5000/b:v2"),
        ("r:5000/b", None, "r:5000/b"),
        ("", Image(repository="m/b"), "m/b"),
        ("", Image(tag="v2"), ""),
        ("", None, ""),
    ],
)
def test_each_part_that_a_class_leaves_out_is_as_in_the_own_image(
    own: str, given: Image | None, expected: str
) -> None:
    spec = ProviderClassSpec(backend="vsphere", machine=DEFAULTS[0].spec.machine, image=given)
    assert deployment.image(spec, own) == expected


def test_the_pull_policy_is_the_classs() -> None:
    assert Image().pull_policy is PullPolicy.IF_NOT_PRESENT
