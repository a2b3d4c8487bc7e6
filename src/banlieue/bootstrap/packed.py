"""Reads the install manifests that the distribution carries. Pure but for reading these files.

They are the files of `config`, of which kustomize builds the same objects; only what they use of
kustomize is understood, and anything else is an error instead of a silent difference.
"""

import copy
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from banlieue.api import yaml_text
from banlieue.sdk.kube import Obj

KUSTOMIZATION = "kustomization.yaml"
DEFAULT = "default"
PROVIDER_BASE = "providers/base"
CRD = "crd"

_PACKED = Path(__file__).with_name("manifests")
_KNOWN = frozenset({"apiVersion", "kind", "resources", "labels"})
_KNOWN_LABELS = frozenset({"pairs", "includeTemplates", "includeSelectors"})
_WORKLOADS = frozenset({"Deployment"})


class ManifestError(Exception):
    """The manifests are not where they should be, or use what is not understood here."""


@cache
def folder() -> Path:
    """The manifests: packed into an installed distribution, `config` in a checkout.

    Raises:
        ManifestError: neither is there.
    """
    # An editable installation has a copy beside its metadata, which is as old as that is; it is not
    # beside this file.
    checkout = Path(__file__).resolve().parents[3] / "config"
    for found in (_PACKED, checkout):
        if (found / DEFAULT / KUSTOMIZATION).is_file():
            return found
    raise ManifestError(f"the install manifests are missing: neither {_PACKED} nor {checkout}")


def read(name: str) -> list[Obj]:
    """The objects of a folder of the manifests, such as `default`, without the kinds.

    Args:
        name: path of the folder below `config`.

    Raises:
        ManifestError: it is missing or not understood.
    """
    return list(_built(folder() / name))


def labelled(obj: Obj, pairs: Mapping[str, str], *, selectors: bool = False) -> Obj:
    """An object with labels on it and on its pods, and in its selector where asked for.

    The object is changed.
    """
    obj.setdefault("metadata", {}).setdefault("labels", {}).update(pairs)
    if obj["kind"] in _WORKLOADS:
        spec = obj["spec"]
        spec["template"].setdefault("metadata", {}).setdefault("labels", {}).update(pairs)
        if selectors:
            spec["selector"].setdefault("matchLabels", {}).update(pairs)
    return obj


def pairs_of(name: str) -> dict[str, str]:
    """The labels that the kustomization of a folder puts on everything."""
    document = _document(folder() / name / KUSTOMIZATION)
    return {key: it for entry in document.get("labels") or () for key, it in entry["pairs"].items()}


def _built(where: Path) -> Iterator[Obj]:
    document = _document(where / KUSTOMIZATION)
    unknown = sorted(set(document) - _KNOWN)
    if unknown:
        raise ManifestError(f"{where / KUSTOMIZATION} uses {', '.join(unknown)}")
    for resource in document.get("resources") or ():
        path = (where / resource).resolve()
        if path.name == CRD:
            continue  # made from the models
        for obj in _built(path) if path.is_dir() else _documents(path):
            for entry in document.get("labels") or ():
                _put_labels(obj, entry, where)
            yield obj


def _put_labels(obj: Obj, entry: Mapping[str, Any], where: Path) -> None:
    unknown = sorted(set(entry) - _KNOWN_LABELS)
    if unknown:
        raise ManifestError(f"labels in {where / KUSTOMIZATION} use {', '.join(unknown)}")
    selectors = bool(entry.get("includeSelectors"))
    if selectors or entry.get("includeTemplates"):
        labelled(obj, entry["pairs"], selectors=selectors)
    else:
        obj.setdefault("metadata", {}).setdefault("labels", {}).update(entry["pairs"])


def _document(path: Path) -> dict[str, Any]:
    (found,) = _documents(path)
    return found


def _documents(path: Path) -> list[dict[str, Any]]:
    return copy.deepcopy(_read(path))


@cache
def _read(path: Path) -> list[dict[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ManifestError(f"a manifest is missing: {path}: {error.strerror}") from error
    return [document for document in yaml.load_all(text, yaml_text.Loader) if document]
