"""The local clusterctl repository: rendered components of Cluster API, cert-manager and banlieue.

Layout as clusterctl reads it, `<label>/<version>/<components file>` with `metadata.yaml` beside it.
Cluster API's release files are plain kustomize output of folders of its Go module, so nothing but
the module cache is needed. Repositories are named by the digest of what they hold and never change
once they are there.
"""

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hack.tools.catalog import Store, find_tool, pinned_version
from hack.tools.clusterapis import PATH, cluster_api
from hack.tools.modules import module_directory
from hack.user_cache import user_cache

CONFIGURATION: Final = Path(__file__).with_name("clusterctl.yaml")
PROVIDER: Final = "infrastructure-banlieue"
PROVIDER_COMPONENTS: Final = "infrastructure-components.yaml"
METADATA: Final = "metadata.yaml"

_CERT_MANAGER_OBJECTS: Final = Path(__file__).with_name("cert_manager.yaml")
_CHOSEN: Final = cluster_api()
_CLUSTER_API: Final = (_CHOSEN.module, PATH)
_CERT_MANAGER: Final = ("cert-manager", "github.com/cert-manager/cert-manager")
_IMAGE_LINE: Final = re.compile(r"^(\s+)image: \S+$", re.MULTILINE)
_PULL_LINE: Final = re.compile(r"^(\s+)imagePullPolicy: \w+$", re.MULTILINE)
_KEEP_UNUSED_SECONDS: Final = 30 * 24 * 3600

Kustomize = Callable[[Path], str]
WriteRelease = Callable[[Path], str]
"""Writes the files of a release of ours into an empty folder and returns the version, `v1.2.3`."""


class RepositoryError(Exception):
    """The repository cannot be rendered; the message says what to do about it."""


@dataclass(frozen=True, slots=True)
class _Component:
    label: str
    file: str
    folder: str
    image: str


_COMPONENTS: Final = (
    _Component("cluster-api", "core-components.yaml", _CHOSEN.core_config, "cluster-api-core"),
    _Component(
        "bootstrap-kubeadm",
        "bootstrap-components.yaml",
        "bootstrap/kubeadm/config/default",
        "cluster-api-bootstrap-kubeadm",
    ),
    _Component(
        "control-plane-kubeadm",
        "control-plane-components.yaml",
        "controlplane/kubeadm/config/default",
        "cluster-api-control-plane-kubeadm",
    ),
)


@dataclass(frozen=True, slots=True)
class Upstream:
    """Where the components of others come from.

    Attributes:
        cluster_api: Folder of Cluster API's Go module.
        cluster_api_version: Its version, `v1.2.3`; our images of its managers are tagged with it.
        cert_manager: Folder of cert-manager's Go module.
        cert_manager_version: Its version.
        kustomize: Builds a folder; returns the YAML.
    """

    cluster_api: Path
    cluster_api_version: str
    cert_manager: Path
    cert_manager_version: str
    kustomize: Kustomize

    @classmethod
    def pinned(cls) -> "Upstream":
        """What the modules under `hack/tools` pin; raises ToolError when they cannot be had."""
        return cls(
            cluster_api=module_directory(*_CLUSTER_API),
            cluster_api_version=_pinned(*_CLUSTER_API),
            cert_manager=module_directory(*_CERT_MANAGER),
            cert_manager_version=_pinned(*_CERT_MANAGER),
            kustomize=kubectl_kustomize,
        )

    def images(self) -> tuple[str, ...]:
        """The images that the components name, as they must be loaded into a cluster."""
        managers = (self._image(component) for component in _COMPONENTS)
        return (self._cert_manager_image(), *managers)

    def digest(self) -> str:
        """Hex SHA-256 over everything that decides what is rendered."""
        total = hashlib.sha256()
        for path in (Path(__file__), _CERT_MANAGER_OBJECTS):
            total.update(hashlib.sha256(path.read_bytes()).digest())
        total.update(f"{self.cluster_api_version} {self.cert_manager_version}".encode())
        return total.hexdigest()

    def write(self, repository: Path) -> None:
        """Render everything into a folder that has none of it yet.

        Raises:
            RepositoryError: The modules do not look as expected, or kustomize failed.
        """
        for component in _COMPONENTS:
            folder = repository / component.label / self.cluster_api_version
            folder.mkdir(parents=True)
            rendered = self.kustomize(self.cluster_api / component.folder)
            components = with_image(rendered, self._image(component))
            (folder / component.file).write_text(components, encoding="utf-8")
            shutil.copyfile(self.cluster_api / METADATA, folder / METADATA)
        folder = repository / "cert-manager" / self.cert_manager_version
        folder.mkdir(parents=True)
        (folder / "cert-manager.yaml").write_text(self._cert_manager_yaml(), encoding="utf-8")

    def _image(self, component: _Component) -> str:
        return f"localhost/{component.image}:{self.cluster_api_version}"

    def _cert_manager_image(self) -> str:
        return f"localhost/cert-manager:{self.cert_manager_version}"

    def _cert_manager_yaml(self) -> str:
        definitions = sorted((self.cert_manager / "deploy" / "crds").glob("*.yaml"))
        if not definitions:
            raise RepositoryError(f"{self.cert_manager} holds no CustomResourceDefinitions")
        objects = _CERT_MANAGER_OBJECTS.read_text(encoding="utf-8")
        ours = objects.replace("${IMAGE}", self._cert_manager_image())
        # Each of theirs starts with a separator.
        return "".join(path.read_text(encoding="utf-8") for path in definitions) + "---\n" + ours


def kubectl_kustomize(folder: Path) -> str:
    """What `kubectl kustomize` makes of a folder; nothing is written.

    Raises:
        ToolError: kubectl is not built.
        RepositoryError: The folder cannot be built.
    """
    answer = subprocess.run(
        [str(find_tool("kubectl")), "kustomize", str(folder)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "KUBECTL_KUBERC": "false"},
    )
    if answer.returncode:
        raise RepositoryError(f"kubectl kustomize {folder}: {answer.stderr.strip()}")
    return answer.stdout


def with_image(components: str, image: str) -> str:
    """Components whose only container runs `image`, which is never pulled when it is there.

    The text is changed, not the parsed objects: `${NAME:=default}` has to stay for clusterctl.

    Raises:
        RepositoryError: There is not exactly one container.
    """
    named, images = _IMAGE_LINE.subn(rf"\g<1>image: {image}", components)
    pulled, policies = _PULL_LINE.subn(r"\g<1>imagePullPolicy: IfNotPresent", named)
    if (images, policies) != (1, 1):
        raise RepositoryError(
            f"the components name {images} images and {policies} pull policies for {image}, "
            "one of each is expected"
        )
    return pulled


def cached_repository(
    upstream: Upstream, write_release: WriteRelease, cache: Path | None = None
) -> Path:
    """The repository of this very tree, rendered when it is not there yet.

    Args:
        upstream: The components of others.
        write_release: Writes ours.
        cache: Where repositories are kept; None means the user's cache folder.

    Raises:
        RepositoryError: It cannot be rendered.
        ToolError: A tool that it takes is not built.
    """
    cache = cache or user_cache() / "clusterctl"
    cache.mkdir(parents=True, exist_ok=True)
    others = _kept(cache / f"upstream-{upstream.digest()}", upstream.write)
    with _scratch(cache) as scratch:
        version = add_release(scratch, write_release)
        ours = _digest_of(scratch)
        name = hashlib.sha256(f"{others.name} {version} {ours}".encode()).hexdigest()

        def write(repository: Path) -> None:
            shutil.copytree(others, repository, dirs_exist_ok=True)
            shutil.copytree(scratch, repository, dirs_exist_ok=True)

        repository = _kept(cache / name, write)
    _discard_unused(cache, keep={others, repository})
    return repository


def add_release(repository: Path, write_release: WriteRelease) -> str:
    """Put one more release of ours into a repository; returns its version.

    Raises:
        RepositoryError: That version is there already, or the files clusterctl asks for are not
            among those of the release.
    """
    releases = repository / PROVIDER
    releases.mkdir(parents=True, exist_ok=True)
    with _scratch(releases) as scratch:
        version = write_release(scratch)
        for name in (PROVIDER_COMPONENTS, METADATA):
            if not (scratch / name).is_file():
                raise RepositoryError(f"the release {version} of {PROVIDER} has no {name}")
        target = releases / version
        if target.exists():
            raise RepositoryError(f"{target} is there already")
        shutil.copytree(scratch, target)
    return version


def _pinned(module: str, path: str) -> str:
    return pinned_version(Store.from_environment().sources / module / "go.mod", path)


def _kept(target: Path, write: Callable[[Path], None]) -> Path:
    if not target.is_dir():
        with _scratch(target.parent) as scratch:
            write(scratch)
            try:
                scratch.rename(target)
            except OSError:
                # Whoever else rendered it meanwhile has rendered the same.
                if not target.is_dir():
                    raise
    # The age of the folder says when it was last of use.
    os.utime(target)
    return target


@contextmanager
def _scratch(parent: Path) -> Iterator[Path]:
    scratch = Path(tempfile.mkdtemp(prefix=".unfinished-", dir=parent))
    scratch.chmod(0o755)
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _digest_of(folder: Path) -> str:
    total = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            total.update(f"{path.relative_to(folder).as_posix()} {content}\n".encode())
    return total.hexdigest()


def _discard_unused(cache: Path, keep: set[Path]) -> None:
    oldest = time.time() - _KEEP_UNUSED_SECONDS
    for folder in cache.iterdir():
        if folder not in keep and folder.stat().st_mtime < oldest:
            shutil.rmtree(folder, ignore_errors=True)
