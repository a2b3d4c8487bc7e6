"""What the daemons of a node are told: flags and configuration files."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from hack.cluster.local import toml
from hack.cluster.local.paths import CONTAINERD_SOCKET, INSIDE_TOOLS, Place, inside
from hack.cluster.local.pki import (
    CONTROLLER_MANAGER,
    KUBELET,
    NODE_NAME,
    PROXY,
    SCHEDULER,
    kubeconfig_file,
    pki_inside,
)
from hack.cluster.local.ranges import Range

PAUSE_IMAGE: Final = "localhost/pause:1"
ETCD: Final = "etcd"
API_SERVER: Final = "kube-apiserver"
CONTAINERD: Final = "containerd"
# In the order in which they are started.
DAEMONS: Final = (ETCD, API_SERVER, CONTAINERD, CONTROLLER_MANAGER, SCHEDULER, KUBELET, PROXY)
# What is run besides the daemons.
HELPERS: Final = ("containerd-shim-runc-v2", "ctr")

_CONTAINERD_FILE: Final = "containerd.toml"
_KUBELET_FILE: Final = "kubelet.yaml"
_PROXY_FILE: Final = "kube-proxy.yaml"
_CNI_DIRECTORY: Final = "cni"
_CNI_FILE: Final = "10-banlieue.conflist"
_ETCD_URL: Final = "http://127.0.0.1:2379"
_ETCD_PEER_URL: Final = "http://127.0.0.1:2380"


def arguments(addresses: Range) -> Mapping[str, list[str]]:
    """The command line of every daemon, in the order of their start, without the program."""
    flags = {
        ETCD: _etcd(),
        API_SERVER: _api_server(addresses),
        CONTAINERD: {"config": inside("configuration", _CONTAINERD_FILE)},
        CONTROLLER_MANAGER: _controller_manager(),
        SCHEDULER: {
            "kubeconfig": _kubeconfig(SCHEDULER),
            "leader-elect": "false",
            "secure-port": "0",
        },
        KUBELET: {
            "config": inside("configuration", _KUBELET_FILE),
            "kubeconfig": _kubeconfig(KUBELET),
            "root-dir": inside("kubelet"),
            "hostname-override": NODE_NAME,
            "node-ip": str(addresses.node),
        },
        PROXY: {"config": inside("configuration", _PROXY_FILE)},
    }
    return {name: [f"--{flag}={value}" for flag, value in flags[name].items()] for name in DAEMONS}


def write_all(place: Place, addresses: Range, runc: Path, cni: Path) -> None:
    """Write the configuration files.

    Args:
        place: Whose.
        addresses: Its range.
        runc: The program on the host.
        cni: The folder of the CNI plugins on the host.
    """
    plugins = place.configuration / _CNI_DIRECTORY
    plugins.mkdir(parents=True, exist_ok=True)
    files = {
        place.configuration / _CONTAINERD_FILE: toml.dump(containerd(runc, cni)),
        # In block style: what starts with a brace is read as JSON.
        place.configuration / _KUBELET_FILE: _yaml(kubelet(addresses, place.cgroup)),
        place.configuration / _PROXY_FILE: _yaml(proxy(addresses)),
        plugins / _CNI_FILE: json.dumps(pod_network(addresses), indent=1),
    }
    for path, content in files.items():
        path.write_text(content, encoding="utf-8")


def containerd(runc: Path, cni: Path) -> Mapping[str, toml.Value]:
    """Configuration of containerd."""
    runtime: dict[str, toml.Value] = {
        "runtime_type": "io.containerd.runc.v2",
        "options": {"BinaryName": str(runc), "SystemdCgroup": False},
    }
    return {
        "version": 3,
        "root": inside("containerd"),
        "state": str(CONTAINERD_SOCKET.parent),
        "grpc": {"address": str(CONTAINERD_SOCKET)},
        "plugins": {
            "io.containerd.cri.v1.images": {
                "snapshotter": "overlayfs",
                "pinned_images": {"sandbox": PAUSE_IMAGE},
            },
            "io.containerd.cri.v1.runtime": {
                # Without CAP_SYS_RESOURCE no score can be lowered.
                "restrict_oom_score_adj": True,
                "containerd": {"default_runtime_name": "runc", "runtimes": {"runc": runtime}},
                "cni": {
                    "bin_dirs": [str(cni)],
                    "conf_dir": inside("configuration", _CNI_DIRECTORY),
                },
            },
        },
    }


def kubelet(addresses: Range, cgroup: str) -> Mapping[str, Any]:
    """Configuration of the kubelet."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": str(addresses.node),
        "readOnlyPort": 0,
        "tlsCertFile": pki_inside("node.crt"),
        "tlsPrivateKeyFile": pki_inside("node.key"),
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": pki_inside("ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{cgroup}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "volumePluginDir": inside("kubelet", "volumeplugins"),
        "evictionHard": {
            "nodefs.available": "1%",
            "imagefs.available": "1%",
            "memory.available": "100Mi",
        },
        "enforceNodeAllocatable": [],
        # Nobody could pull again what it collects.
        "imageGCHighThresholdPercent": 100,
        "makeIPTablesUtilChains": False,
        # There is no DNS, and names of the host's network mean nothing without a way there.
        "resolvConf": "",
    }


def proxy(addresses: Range) -> Mapping[str, Any]:
    """Configuration of kube-proxy."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clusterCIDR": str(addresses.pods),
        "hostnameOverride": NODE_NAME,
        "clientConnection": {"kubeconfig": _kubeconfig(PROXY)},
        # Their number is the host's to decide.
        "conntrack": {"maxPerCore": 0},
    }


def pod_network(addresses: Range) -> Mapping[str, Any]:
    """CNI: a link of its own for every pod, routed by the node, without translation."""
    return {
        "cniVersion": "1.0.0",
        "name": "banlieue",
        "plugins": [
            {
                "type": "ptp",
                "ipMasq": False,
                "ipam": {
                    "type": "host-local",
                    "ranges": [[{"subnet": str(addresses.pods)}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            }
        ],
    }


def environment() -> Mapping[str, str]:
    """Environment of the daemons: nothing of the host's, where a proxy may be set."""
    return {
        "PATH": f"{INSIDE_TOOLS}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/tmp",  # noqa: S108 - of the node's own
        "LANG": "C.UTF-8",
    }


def _etcd() -> Mapping[str, str]:
    return {
        "data-dir": inside("etcd"),
        "listen-client-urls": _ETCD_URL,
        "advertise-client-urls": _ETCD_URL,
        "listen-peer-urls": _ETCD_PEER_URL,
        "initial-advertise-peer-urls": _ETCD_PEER_URL,
        "initial-cluster": f"default={_ETCD_PEER_URL}",
        "log-level": "warn",
        # A power cut ends the cluster anyway.
        "unsafe-no-fsync": "true",
    }


def _api_server(addresses: Range) -> Mapping[str, str]:
    return {
        "etcd-servers": _ETCD_URL,
        "advertise-address": str(addresses.node),
        "secure-port": "6443",
        "tls-cert-file": pki_inside("apiserver.crt"),
        "tls-private-key-file": pki_inside("apiserver.key"),
        "client-ca-file": pki_inside("ca.crt"),
        "service-account-issuer": "https://kubernetes.default.svc",
        "service-account-key-file": pki_inside("service-account.pub"),
        "service-account-signing-key-file": pki_inside("service-account.key"),
        "service-cluster-ip-range": str(addresses.services),
        "authorization-mode": "Node,RBAC",
        "enable-admission-plugins": "NodeRestriction",
        "allow-privileged": "true",
        # Calls of webhooks go straight to the pods, so their errors say what is wrong.
        "enable-aggregator-routing": "true",
        "kubelet-preferred-address-types": "InternalIP",
        "kubelet-client-certificate": pki_inside("admin.crt"),
        "kubelet-client-key": pki_inside("admin.key"),
        "kubelet-certificate-authority": pki_inside("ca.crt"),
        "profiling": "false",
    }


def _controller_manager() -> Mapping[str, str]:
    kubeconfig = _kubeconfig(CONTROLLER_MANAGER)
    return {
        "kubeconfig": kubeconfig,
        "authentication-kubeconfig": kubeconfig,
        "authorization-kubeconfig": kubeconfig,
        "use-service-account-credentials": "true",
        "root-ca-file": pki_inside("ca.crt"),
        "service-account-private-key-file": pki_inside("service-account.key"),
        "allocate-node-cidrs": "false",
        # It makes this folder, by default in the host's /usr.
        "flex-volume-plugin-dir": inside("kubelet", "volumeplugins"),
        "leader-elect": "false",
        "secure-port": "0",
        "profiling": "false",
    }


def _kubeconfig(daemon: str) -> str:
    return pki_inside(kubeconfig_file(daemon))


def _yaml(document: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(document), default_flow_style=False, sort_keys=False)
