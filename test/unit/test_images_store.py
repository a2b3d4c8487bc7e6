import os
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hack.images import catalog
from hack.images.store import ImageError, Store, digest_of
from hack.tools.catalog import TOOLS_DIRECTORY, pinned_version, tool_named

TWO_HOURS = 7200


@dataclass
class Written:
    """An image of one word; counts how often it was made."""

    name: str = "localhost/thing:v1"
    content: str = "one"
    changes_to: str | None = None
    error: ImageError | None = None
    pause: threading.Event | None = None
    started: threading.Event = field(default_factory=threading.Event)
    times: int = 0

    def digest(self) -> str:
        return digest_of(self.content)

    def write(self, target: Path, say: object) -> str:
        del say
        self.times += 1
        self.started.set()
        if self.pause:
            assert self.pause.wait(10)
        digest = self.digest()
        target.write_text(self.content)
        self.content = self.changes_to or self.content
        if self.error:
            raise self.error
        return digest


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "cache" / "images")


def test_an_archive_is_made_once(store: Store) -> None:
    image = Written()

    first = store.archive(image, _silent)
    assert first.read_text() == "one"
    assert store.archive(image, _silent) == first
    assert image.times == 1


def test_a_changed_source_makes_it_stale_and_the_old_source_finds_the_old_archive(
    store: Store,
) -> None:
    first = store.archive(Written(content="one"), _silent)
    second = store.archive(Written(content="two"), _silent)

    assert (first.read_text(), second.read_text()) == ("one", "two")
    back = Written(content="one")
    assert store.archive(back, _silent) == first
    assert back.times == 0


def test_a_source_that_changes_meanwhile_leaves_a_true_archive_and_another_one_to_make(
    store: Store,
) -> None:
    image = Written(content="one", changes_to="two")

    assert store.archive(image, _silent).read_text() == "one"
    assert store.archive(image, _silent).read_text() == "two"
    assert store.archive(Written(content="one"), _silent).read_text() == "one"


def test_archives_out_of_use_for_an_hour_are_swept_and_no_others(store: Store) -> None:
    old = store.archive(Written(content="old"), _silent)
    recent = store.archive(Written(content="recent"), _silent)
    other = store.archive(Written(name="localhost/thing-else:v1", content="other"), _silent)
    for path in (old, other):
        _age(path, TWO_HOURS)

    store.archive(Written(content="new"), _silent)

    assert not old.exists()
    assert recent.exists()
    assert other.exists()


def test_use_keeps_an_archive_young(store: Store) -> None:
    kept = store.archive(Written(content="kept"), _silent)
    _age(kept, TWO_HOURS)
    store.archive(Written(content="kept"), _silent)

    store.archive(Written(content="new"), _silent)

    assert kept.exists()


def test_a_failed_build_leaves_nothing_and_touches_nothing(store: Store) -> None:
    good = store.archive(Written(content="good"), _silent)

    with pytest.raises(ImageError, match="no luck"):
        store.archive(Written(content="bad", error=ImageError("no luck")), _silent)

    assert [path.name for path in store.cache.iterdir() if path.suffix == ".tar"] == [good.name]
    assert not list(store.cache.glob(".unfinished*"))


def test_what_a_killed_build_left_is_removed_by_the_next(store: Store) -> None:
    store.cache.mkdir(parents=True)
    left = store.cache / ".unfinished-thing-v1-abc"
    left.write_text("half")

    store.archive(Written(), _silent)

    assert not left.exists()


def test_two_builders_make_it_once_and_the_second_says_that_it_waits(store: Store) -> None:
    image = Written(pause=threading.Event())
    said: list[str] = []
    waiting = threading.Event()
    found: list[Path] = []

    def hear(line: str) -> None:
        said.append(line)
        waiting.set()

    first = threading.Thread(target=lambda: found.append(store.archive(image, _silent)))
    second = threading.Thread(target=lambda: found.append(store.archive(image, hear)))
    first.start()
    assert image.started.wait(10)
    second.start()
    assert waiting.wait(10)
    assert image.pause is not None
    image.pause.set()
    first.join(10)
    second.join(10)

    assert image.times == 1
    assert len(found) == len(set(found)) + 1 == 2
    assert said == ["localhost/thing:v1: somebody else is making it, waiting"]


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"XDG_CACHE_HOME": "/c", "HOME": "/h"}, "/c/banlieue/images"),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/h"}, "/h/.cache/banlieue/images"),
        ({"HOME": "/h"}, "/h/.cache/banlieue/images"),
    ],
)
def test_archives_live_in_the_users_cache(environment: dict[str, str], expected: str) -> None:
    assert Store.from_environment(environment).cache == Path(expected)


def test_an_unknown_image_is_answered_with_the_known_ones(store: Store) -> None:
    with pytest.raises(ImageError, match=r"no image is called 'x'; there are .*localhost/pause:1"):
        catalog.archive_of("x", store, _silent)


def test_a_tool_that_is_not_built_is_named_with_the_remedy(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    with pytest.raises(
        ImageError, match=r"no image localhost/pause:1: pause is not built yet; run: \S+"
    ):
        catalog.archive_of(catalog.PAUSE, store, _silent)


@pytest.mark.parametrize(
    ("name", "module", "upstream"),
    [
        (catalog.CERT_MANAGER, "cert-manager", "github.com/cert-manager/cert-manager"),
        (catalog.CLUSTER_API_CORE, "cluster-api", "sigs.k8s.io/cluster-api"),
        (catalog.KUBEADM_BOOTSTRAP, "cluster-api", "sigs.k8s.io/cluster-api"),
        (catalog.KUBEADM_CONTROL_PLANE, "cluster-api", "sigs.k8s.io/cluster-api"),
    ],
)
def test_tags_are_the_versions_that_the_tools_are_pinned_to(
    name: str, module: str, upstream: str
) -> None:
    pinned = pinned_version(TOOLS_DIRECTORY / module / "go.mod", upstream)

    assert name.partition(":")[2] == pinned


def test_every_image_of_a_tool_names_one_that_exists() -> None:
    tools = [image.tool for image in catalog.IMAGES if isinstance(image, catalog.ToolImage)]

    assert len(tools) == len(catalog.IMAGES) - 1
    for name in tools:
        assert tool_named(name).name == name


def _age(path: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


def _silent(line: str) -> None:
    del line
