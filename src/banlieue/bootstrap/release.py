"""Versions and the image that goes with them. Pure."""

import re
from dataclasses import dataclass

from banlieue import __version__

DEVELOPMENT_IMAGE = "localhost/banlieue:dev"
"""What the manifests of the tree name wherever our image stands."""

DEFAULT_REGISTRY = "localhost"
"""Where a release's image is when nobody names a registry: loaded onto the nodes."""

LABEL_VERSION = "app.kubernetes.io/version"

_PYTHON = re.compile(r"(\d+\.\d+\.\d+)(?:(a|b|rc|\.dev)(\d+))?")
_STAGES = {"a": "alpha", "b": "beta", "rc": "rc", ".dev": "dev"}
_TAG = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_REGISTRY = re.compile(r"[a-z0-9][a-z0-9.-]*(:[0-9]{1,5})?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*")


class VersionError(ValueError):
    """No version, or no registry; the message says what one looks like."""


@dataclass(frozen=True, slots=True)
class Release:
    """What is installed: a version, and the image that runs it."""

    version: str
    image: str

    @classmethod
    def of(cls, version: str = "", registry: str = "") -> "Release":
        """The release of a version (default: our own) in a registry, which may have a path.

        Raises:
            VersionError: one of them cannot be part of an image's name.
        """
        version = version or semantic_version(__version__)
        if not _TAG.fullmatch(version) or version == "latest":
            raise VersionError(
                f"{version!r} is no version: give a tag that stays, such as v1.2.3 (at most 63 "
                "letters, digits, dots, dashes and underscores)"
            )
        registry = registry.rstrip("/") or DEFAULT_REGISTRY
        if not _REGISTRY.fullmatch(registry):
            raise VersionError(
                f"{registry!r} is no registry: give host[:port][/path] without a scheme; the image "
                "is <registry>/banlieue:<version>"
            )
        return cls(version, f"{registry}/banlieue:{version}")


def semantic_version(python_version: str) -> str:
    """A version of the Python package as a release is named: `0.2.0rc1` is `v0.2.0-rc.1`.

    Raises:
        VersionError: it has another form.
    """
    found = _PYTHON.fullmatch(python_version)
    if found is None:
        raise VersionError(f"version {python_version!r} is not of the form 1.2.3 or 1.2.3rc1")
    base, stage, number = found.groups()
    return f"v{base}-{_STAGES[stage]}.{number}" if stage else f"v{base}"
