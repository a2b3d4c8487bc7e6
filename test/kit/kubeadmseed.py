"""What a guest with kubeadm makes of its seed: reads guestinfo, cloud-config and kubeadm's files.

Only what the guest itself could know: metadata and user data of its machine, nothing of any API.
"""

import base64
import gzip
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from test.kit.yaml_text import yaml_documents

INIT_FILE: Final = "/run/kubeadm/kubeadm.yaml"
JOIN_FILE: Final = "/run/kubeadm/kubeadm-join-config.yaml"

_TEMPLATE: Final = "## template: jinja"
_CLOUD_CONFIG: Final = "#cloud-config"
_EXPRESSION: Final = re.compile(r"\{\{-?\s*([\w.]+)\s*-?\}\}")
_CA: Final = "/etc/kubernetes/pki/ca"
_ETCD_CA: Final = "/etc/kubernetes/pki/etcd/ca"
_ENCODINGS: Final[Mapping[str, tuple[Callable[[bytes], bytes], ...]]] = {
    "": (),
    "text/plain": (),
    "b64": (base64.b64decode,),
    "base64": (base64.b64decode,),
    "gzip": (gzip.decompress,),
    "gz+b64": (base64.b64decode, gzip.decompress),
    "gz+base64": (base64.b64decode, gzip.decompress),
    "gzip+b64": (base64.b64decode, gzip.decompress),
    "gzip+base64": (base64.b64decode, gzip.decompress),
}


class SeedError(Exception):
    """The seed is nothing a guest could boot with; no message quotes user data."""


@dataclass(frozen=True, slots=True)
class Discovery:
    """How a guest that joins finds its cluster.

    `ca_hashes` are `sha256:` and the digest of the CA's public key.
    """

    endpoint: str
    token: str = field(repr=False)
    ca_hashes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Kubeadm:
    """What kubeadm is told to do.

    Attributes:
        instance_id: Instance of the metadata.
        node: Name of the Node.
        kubelet: Arguments of the kubelet by name.
        taints: Taints the kubelet registers with.
        control_plane: Whether it becomes a control plane.
        discovery: How it joins; None for the first control plane.
        endpoint: `host:port` of the cluster's API.
        cluster: The ClusterConfiguration of the first control plane, as text; else "".
        ca: Certificate and key of the cluster's CA, of a control plane only.
        etcd_ca: Those of etcd's.
    """

    instance_id: str
    node: str
    kubelet: Mapping[str, str]
    taints: tuple[Mapping[str, str], ...]
    control_plane: bool
    discovery: Discovery | None
    endpoint: str
    cluster: str = field(repr=False)
    ca: tuple[str, str] = field(repr=False)
    etcd_ca: tuple[str, str] = field(repr=False)


def guestinfo(extra_config: Mapping[str, str], key: str) -> str:
    """The text of a guestinfo key, decoded as its `.encoding` says; "" when there is none.

    Raises:
        SeedError: The encoding is unknown, or not what it says.
    """
    text = extra_config.get(f"guestinfo.{key}", "")
    encoding = extra_config.get(f"guestinfo.{key}.encoding", "")
    return _decoded(text, encoding, f"guestinfo.{key}") if text else ""


def read_seed(extra_config: Mapping[str, str]) -> Kubeadm:
    """Read a seed.

    Args:
        extra_config: Extra configuration of the machine.

    Raises:
        SeedError: Something is missing or cannot be read.
    """
    metadata = _mapping(guestinfo(extra_config, "metadata"), "guestinfo.metadata")
    user_data = guestinfo(extra_config, "userdata")
    files = dict(_files(_cloud_config(user_data, metadata)))
    instance_id = str(metadata.get("instance-id", ""))
    if INIT_FILE in files:
        return _first(instance_id, files)
    if JOIN_FILE in files:
        return _joining(instance_id, files)
    raise SeedError(f"no file of kubeadm among {sorted(files)}")


def _decoded(text: str, encoding: str, what: str) -> str:
    try:
        steps = _ENCODINGS[encoding]
        data = text.encode()
        for step in steps:
            data = step(data)
        return data.decode()
    except KeyError:
        raise SeedError(f"{what} is of the unknown encoding {encoding!r}") from None
    except (ValueError, OSError, EOFError):
        raise SeedError(f"{what} is not {encoding}") from None


def _mapping(text: str, what: str) -> dict[str, Any]:
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError:
        raise SeedError(f"{what} is no YAML") from None
    if not isinstance(found, dict):
        raise SeedError(f"{what} is no mapping")
    return found


def _cloud_config(text: str, metadata: Mapping[str, Any]) -> dict[str, Any]:
    first, _, rest = text.partition("\n")
    if first.strip() == _TEMPLATE:
        first, _, rest = _rendered(rest, metadata).partition("\n")
    if first.strip() != _CLOUD_CONFIG:
        raise SeedError("the user data is no cloud-config")
    return _mapping(rest, "the user data")


def _rendered(text: str, metadata: Mapping[str, Any]) -> str:
    """Put values in as cloud-init's Jinja does; keys with dashes go by underscores, too."""
    facts = {f"ds.meta_data.{key.replace('-', '_')}": value for key, value in metadata.items()}
    for prefix in ("", "v1."):
        facts[f"{prefix}local_hostname"] = metadata.get("local-hostname")
        facts[f"{prefix}instance_id"] = metadata.get("instance-id")

    def value(match: re.Match[str]) -> str:
        found = facts.get(match[1])
        if found is None:
            raise SeedError(f"nothing in the metadata is called {match[1]}")
        return str(found)

    rendered = _EXPRESSION.sub(value, text)
    if "{{" in rendered or "{%" in rendered:
        raise SeedError("the user data has a template that this guest cannot render")
    return rendered


def _files(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for item in config.get("write_files") or ():
        yield item["path"], _decoded(item["content"], item.get("encoding", ""), item["path"])


def _documents(text: str) -> dict[str, dict[str, Any]]:
    try:
        return {it["kind"]: it for it in yaml_documents(text) if it}
    except (yaml.YAMLError, KeyError, TypeError):
        raise SeedError("kubeadm's configuration cannot be read") from None


def _first(instance_id: str, files: Mapping[str, str]) -> Kubeadm:
    found = _documents(files[INIT_FILE])
    cluster = found.get("ClusterConfiguration") or {}
    return Kubeadm(
        instance_id,
        **_registration(found.get("InitConfiguration") or {}),
        control_plane=True,
        discovery=None,
        endpoint=str(cluster.get("controlPlaneEndpoint", "")),
        cluster=yaml.safe_dump(cluster),
        ca=_authority(files, _CA),
        etcd_ca=_authority(files, _ETCD_CA),
    )


def _joining(instance_id: str, files: Mapping[str, str]) -> Kubeadm:
    found = _documents(files[JOIN_FILE]).get("JoinConfiguration") or {}
    told = (found.get("discovery") or {}).get("bootstrapToken") or {}
    if not told.get("token") or not told.get("apiServerEndpoint"):
        raise SeedError("the join configuration has no bootstrap token or no endpoint")
    hashes = tuple(told.get("caCertHashes") or ())
    control_plane = "controlPlane" in found
    return Kubeadm(
        instance_id,
        **_registration(found),
        control_plane=control_plane,
        discovery=Discovery(told["apiServerEndpoint"], told["token"], hashes),
        endpoint=told["apiServerEndpoint"],
        cluster="",
        ca=_authority(files, _CA) if control_plane else ("", ""),
        etcd_ca=_authority(files, _ETCD_CA) if control_plane else ("", ""),
    )


def _registration(configuration: Mapping[str, Any]) -> dict[str, Any]:
    """Name, arguments and taints; version v1beta4 of kubeadm lists arguments, older ones map."""
    told = configuration.get("nodeRegistration") or {}
    if not told.get("name"):
        raise SeedError("the Node has no name")
    arguments = told.get("kubeletExtraArgs") or {}
    if isinstance(arguments, list):
        arguments = {it["name"]: it["value"] for it in arguments}
    taints = tuple(told.get("taints") or ())
    return {"node": told["name"], "kubelet": arguments, "taints": taints}


def _authority(files: Mapping[str, str], stem: str) -> tuple[str, str]:
    try:
        return files[f"{stem}.crt"], files[f"{stem}.key"]
    except KeyError:
        raise SeedError(f"a control plane without {stem}.crt or its key") from None
