"""Cluster API and banlieue in a management cluster, as users install them: images, `init`, wait."""

import json
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import banlieue
from hack.cluster.clusterapi.clusterctl import Clusterctl
from hack.cluster.clusterapi.kubectl import kubectl
from hack.cluster.clusterapi.repository import (
    PROVIDER,
    Upstream,
    WriteRelease,
    cached_repository,
)
from hack.cluster.clusterapi.webhooks import await_webhooks
from hack.cluster.interface import Cluster
from hack.components import semantic_version, write_components
from hack.images.catalog import archive_of
from hack.images.store import ImageError

NAMESPACE: Final = "banlieue-system"
OUR_IMAGE: Final = "localhost/banlieue:dev"

_WEBHOOK_SECONDS: Final = 120

Say = Callable[[str], None]


def install(cluster: Cluster, say: Say = lambda _: None) -> Clusterctl:
    """Bring everything into a cluster that is up, and return once every webhook answers.

    What is there already stays as it is, so that this may be repeated; only our pods are started
    again when their image is another than the one of this tree.

    Args:
        cluster: The management cluster.
        say: Is told every step and how long it took.

    Raises:
        ReleaseError, RepositoryError, ToolError: The repository cannot be rendered.
        ClusterError, ImageError: The images cannot be made or loaded.
        ClusterctlError, KubectlError: The installation failed.
        WebhookError: The webhooks do not answer within two minutes.
    """
    upstream = Upstream.pinned()
    with _step("repository", say):
        repository = cached_repository(upstream, release())
    ours = load_images(cluster, upstream, say)
    clusterctl = Clusterctl(repository, cluster.kubeconfig)
    with _step("clusterctl init", say):
        clusterctl.init()
    restart_stale(cluster.kubeconfig, image_id(ours), say)
    with _step("webhooks", say):
        await_webhooks(cluster.kubeconfig, _WEBHOOK_SECONDS)
    return clusterctl


def load_images(cluster: Cluster, upstream: Upstream, say: Say = lambda _: None) -> Path:
    """Load the images that the repository's components name, made now when they are stale.

    Returns:
        The archive of our own image.

    Raises:
        ImageError: One of them cannot be made.
        ClusterError: The cluster is not up or refuses one.
    """
    names = (*upstream.images(), OUR_IMAGE)
    with _step(f"{len(names)} image archives", say):
        archives = [archive_of(name, say=say) for name in names]
    with _step("images into the cluster", say):
        cluster.load(*archives)
    return archives[-1]


def restart_stale(kubeconfig: Path, wanted: str, say: Say = lambda _: None) -> None:
    """Start our pods again, if they run an older image of the same name, and wait for them.

    Args:
        kubeconfig: An administrator of the cluster.
        wanted: The image they should run, as `image_id` says it.
        say: Is told if that is necessary.

    Raises:
        KubectlError: They did not come up within three minutes, or cannot be asked for.
    """
    selected = ("--namespace", NAMESPACE, "--selector", f"cluster.x-k8s.io/provider={PROVIDER}")
    columns = "jsonpath={.items[*].status.containerStatuses[*].imageID}"
    found = kubectl(kubeconfig, "get", "pods", *selected, "-o", columns)
    if all(wanted in running for running in found.split()):
        return
    with _step("our pods, again with the new image", say):
        kubectl(kubeconfig, "rollout", "restart", "deployment", *selected)
        kubectl(kubeconfig, "rollout", "status", "deployment", *selected, "--timeout=180s")


def image_id(archive: Path) -> str:
    """What a kubelet calls the image of a docker-archive: `sha256:` and its configuration's digest.

    Raises:
        ImageError: It is no docker-archive.
    """
    try:
        with tarfile.open(archive) as tar:
            manifest = tar.extractfile("manifest.json")
            (image,) = json.loads(manifest.read() if manifest else "[]")
    except (KeyError, ValueError, tarfile.TarError) as error:
        raise ImageError(f"{archive} is no docker-archive of one image") from error
    digest = Path(image["Config"]).name.removesuffix(".json")
    return f"sha256:{digest}"


def kept_repository() -> Path:
    """The repository of this very tree; raises RepositoryError or ToolError."""
    return cached_repository(Upstream.pinned(), release())


def release(version: str | None = None) -> WriteRelease:
    """Writes what this tree would release, with the image built from it.

    Args:
        version: `v1.2.3`; None means the version of this tree.

    The writer raises ReleaseError when `config` cannot be built.
    """

    def write(folder: Path) -> str:
        named = version or semantic_version(banlieue.__version__)
        write_components(folder, named, OUR_IMAGE)
        return named

    return write


@contextmanager
def _step(what: str, say: Say) -> Iterator[None]:
    say(f"{what} ...")
    started = time.monotonic()
    yield
    say(f"{what}: done in {time.monotonic() - started:.1f} s")
