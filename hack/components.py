"""What clusterctl and kubectl apply of a release: built from `config` by kustomize.

The image and the version are put in by an overlay in a temporary folder, so the tree stays as it
is and the same tree gives the same bytes.
"""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from banlieue.bootstrap import release as own_release
from hack.tools.catalog import ToolError, find_tool

ROOT: Final = Path(__file__).resolve().parents[1]
CONFIG: Final = ROOT / "config"
METADATA: Final = ROOT / "metadata.yaml"
COMPONENTS: Final = "infrastructure-components.yaml"

_DEVELOPMENT_IMAGE: Final = own_release.DEVELOPMENT_IMAGE.partition(":")[0]
_SEMANTIC: Final = re.compile(r"v(\d+)\.(\d+)\.(\d+)(-[0-9A-Za-z.-]+)?")
_SECONDS: Final = 120


class ReleaseError(Exception):
    """A release cannot be made; the message says what to do about it."""


@dataclass(frozen=True, slots=True)
class Image:
    """A container image: registry and name, and a tag or a digest."""

    name: str
    tag: str = ""
    digest: str = ""

    @classmethod
    def parse(cls, text: str, default_tag: str) -> "Image":
        """Read `name`, `name:tag` or `name@sha256:...`.

        Raises:
            ReleaseError: It is none of them, or its tag is `latest`.
        """
        name, _, digest = text.partition("@")
        tag = ""
        # A colon before the last slash belongs to the registry's port.
        if ":" in name.rpartition("/")[2]:
            name, _, tag = name.rpartition(":")
        if not re.fullmatch(r"[a-z0-9][a-z0-9._/:-]*", name) or (digest and ":" not in digest):
            raise ReleaseError(f"{text!r} is no image; give it as registry/name:tag")
        if tag == "latest":
            raise ReleaseError("an image of a release needs a tag that stays, not latest")
        return cls(name, tag or default_tag, digest)

    @property
    def tagged(self) -> str:
        """Name and tag."""
        return f"{self.name}:{self.tag}"


def write_components(directory: Path, version: str, image: str) -> Path:
    """Write what clusterctl reads of a release into a folder, which is made if missing.

    That is `infrastructure-components.yaml`, `metadata.yaml` and the templates.

    Args:
        directory: Where to.
        version: The release, as `v1.2.3`.
        image: What the Deployments run, as `registry/name:tag`.

    Returns:
        The components file.

    Raises:
        ReleaseError: `metadata.yaml` has no series for the version, or a part is not as expected.
    """
    check_series(version, yaml.safe_load(METADATA.read_text(encoding="utf-8")))
    directory.mkdir(parents=True, exist_ok=True)
    components = directory / COMPONENTS
    components.write_text(build(CONFIG / "default", version, image), encoding="utf-8")
    for path in (METADATA, *templates()):
        shutil.copyfile(path, directory / path.name)
    return components


def templates() -> tuple[Path, ...]:
    """The cluster templates and cluster classes of this tree."""
    found = [*ROOT.glob("templates/cluster-template*.yaml"), *ROOT.glob("templates/clusterclass*")]
    return tuple(sorted(found))


def backends() -> dict[str, Path]:
    """The kustomizations of the static providers, by backend."""
    found = sorted((CONFIG / "providers").glob("*/kustomization.yaml"))
    return {path.parent.name: path.parent for path in found if path.parent.name != "base"}


def build(folder: Path, version: str, image: str) -> str:
    """The objects of a kustomization as YAML, with the image and the version of a release.

    Raises:
        ReleaseError: kustomize refused, or kubectl is missing.
    """
    chosen = Image.parse(image, default_tag=version)
    with tempfile.TemporaryDirectory(prefix="banlieue-release-") as scratch:
        overlay = Path(scratch).resolve()
        replaced = {"name": _DEVELOPMENT_IMAGE, "newName": chosen.name}
        replaced |= {"digest": chosen.digest} if chosen.digest else {"newTag": chosen.tag}
        document = {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": [os.path.relpath(folder, overlay)],
            "images": [replaced],
            "labels": [{"pairs": {"app.kubernetes.io/version": version}}],
        }
        (overlay / "kustomization.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
        return _kustomize(overlay)


def semantic_version(python_version: str) -> str:
    """A version of the Python package as a release is named: `0.2.0rc1` is `v0.2.0-rc.1`.

    Raises:
        ReleaseError: It has another form.
    """
    try:
        return own_release.semantic_version(python_version)
    except own_release.VersionError as error:
        raise ReleaseError(str(error)) from error


def check_series(version: str, metadata: Mapping[str, Any]) -> None:
    """Refuse a version that clusterctl would not take with this `metadata.yaml`.

    Raises:
        ReleaseError: The version is no semantic one, its series is not listed, or a newer series
            is listed, of which clusterctl would look for a release in vain.
    """
    found = _SEMANTIC.fullmatch(version)
    if found is None:
        raise ReleaseError(f"{version!r} is no version; give it as v1.2.3 or v1.2.3-rc.1")
    wanted = (int(found[1]), int(found[2]))
    listed = [(series["major"], series["minor"]) for series in metadata["releaseSeries"]]
    if wanted not in listed:
        raise ReleaseError(
            f"{METADATA.name} has no release series {wanted[0]}.{wanted[1]} for {version}; add it, "
            "with the Cluster API contract it meets"
        )
    if max(listed) > wanted:
        newer = ".".join(map(str, max(listed)))
        raise ReleaseError(
            f"{METADATA.name} lists release series {newer}, newer than {version}; clusterctl would "
            "look for a release of it, so list a series only from its first release on"
        )


def _kustomize(folder: Path) -> str:
    try:
        answer = subprocess.run(
            [str(find_tool("kubectl")), "kustomize", str(folder)],
            capture_output=True,
            text=True,
            check=False,
            timeout=_SECONDS,
        )
    except ToolError as error:
        raise ReleaseError(str(error)) from error
    except subprocess.TimeoutExpired as error:
        raise ReleaseError(f"kustomize did not end within {_SECONDS} s") from error
    if answer.returncode:
        raise ReleaseError(f"kustomize: {answer.stderr.strip()}")
    return answer.stdout
