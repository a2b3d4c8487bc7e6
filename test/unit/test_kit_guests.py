"""The player of guests reads seeds as a guest with kubeadm does."""

import base64
import gzip
import json
from typing import Any

import pytest
import yaml

from test.kit.guestnode import ETCD, etcd_annotations, leads
from test.kit.kubeadmseed import SeedError, guestinfo, read_seed

SECRET = "abcdef.0123456789abcdef"
METADATA = {"instance-id": "one", "local-hostname": "web-1", "provider-id": "vsphere://one"}
PKI = {
    "/etc/kubernetes/pki/ca.crt": "cluster-certificate",
    "/etc/kubernetes/pki/ca.key": "cluster-key",
    "/etc/kubernetes/pki/etcd/ca.crt": "etcd-certificate",
    "/etc/kubernetes/pki/etcd/ca.key": "etcd-key",
}
REGISTRATION = {
    "name": "{{ local_hostname }}",
    "kubeletExtraArgs": [{"name": "provider-id", "value": "{{ ds.meta_data.provider_id }}"}],
}
JOIN = {
    "kind": "JoinConfiguration",
    "discovery": {
        "bootstrapToken": {
            "token": SECRET,
            "apiServerEndpoint": "10.0.0.9:6443",
            "caCertHashes": ["sha256:aa"],
        }
    },
    "nodeRegistration": REGISTRATION,
}


def packed(text: str) -> str:
    return base64.b64encode(gzip.compress(text.encode())).decode()


def seed(files: dict[str, str], metadata: dict[str, str] = METADATA) -> dict[str, str]:
    config = {"write_files": [{"path": path, "content": it} for path, it in files.items()]}
    text = f"## template: jinja\n#cloud-config\n{yaml.safe_dump(config, width=10**6)}"
    return {
        "guestinfo.metadata": packed(json.dumps(metadata)),
        "guestinfo.metadata.encoding": "gzip+base64",
        "guestinfo.userdata": packed(text),
        "guestinfo.userdata.encoding": "gzip+base64",
    }


def documents(*found: dict[str, Any]) -> str:
    return yaml.safe_dump_all(found)


def join_seed(configuration: dict[str, Any], **files: str) -> dict[str, str]:
    return seed({"/run/kubeadm/kubeadm-join-config.yaml": documents(configuration), **files})


def test_the_first_control_plane() -> None:
    cluster = {"kind": "ClusterConfiguration", "controlPlaneEndpoint": "10.0.0.9:6443"}
    init = {"kind": "InitConfiguration", "nodeRegistration": REGISTRATION}
    told = read_seed(seed({"/run/kubeadm/kubeadm.yaml": documents(cluster, init), **PKI}))
    assert (told.node, told.kubelet) == ("web-1", {"provider-id": "vsphere://one"})
    assert (told.control_plane, told.discovery) == (True, None)
    assert told.endpoint == "10.0.0.9:6443"
    assert told.ca == ("cluster-certificate", "cluster-key")
    assert told.etcd_ca == ("etcd-certificate", "etcd-key")
    assert yaml.safe_load(told.cluster) == cluster


def test_one_that_joins() -> None:
    taint = {"key": "node.cluster.x-k8s.io/uninitialized", "effect": "NoSchedule"}
    told = read_seed(join_seed({**JOIN, "nodeRegistration": {**REGISTRATION, "taints": [taint]}}))
    assert not told.control_plane
    assert told.taints == (taint,)
    assert told.discovery
    assert (told.discovery.token, told.discovery.ca_hashes) == (SECRET, ("sha256:aa",))
    assert told.ca == ("", "")


def test_a_control_plane_that_joins_has_the_keys() -> None:
    told = read_seed(join_seed({**JOIN, "controlPlane": {}}, **PKI))
    assert told.control_plane
    assert told.ca == ("cluster-certificate", "cluster-key")


def test_older_versions_map_arguments() -> None:
    registration = {"name": "web-1", "kubeletExtraArgs": {"provider-id": "it"}}
    told = read_seed(join_seed({**JOIN, "nodeRegistration": registration}))
    assert told.kubelet == {"provider-id": "it"}


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (join_seed({**JOIN, "controlPlane": {}}), "without"),
        (join_seed({**JOIN, "discovery": {}}), "no bootstrap token"),
        (join_seed({**JOIN, "nodeRegistration": {}}), "no name"),
        (join_seed({**JOIN, "nodeRegistration": {"name": "{{ v1.cloud }}"}}), r"called v1\.cloud"),
        (join_seed({**JOIN, "nodeRegistration": {"name": "{% if x %}"}}), "cannot render"),
        (seed({"/etc/motd": "hello"}), "no file of kubeadm"),
        ({"guestinfo.metadata": "{}", "guestinfo.userdata": f"#!/bin/sh\n{SECRET}"}, "no cloud-"),
        ({**join_seed(JOIN), "guestinfo.userdata.encoding": "rot13"}, "unknown encoding"),
        ({**join_seed(JOIN), "guestinfo.userdata.encoding": "gzip"}, "not gzip"),
        ({}, "no mapping"),
    ],
)
def test_what_no_guest_could_boot_with(broken: dict[str, str], message: str) -> None:
    with pytest.raises(SeedError, match=message) as caught:
        read_seed(broken)
    assert SECRET not in str(caught.value)


def test_nothing_is_shown_of_secrets() -> None:
    assert SECRET not in repr(read_seed(join_seed(JOIN)))


def test_a_key_that_is_not_there() -> None:
    assert guestinfo({}, "vendordata") == ""


def member(annotations: dict[str, str]) -> dict[str, Any]:
    return {"metadata": {"annotations": annotations}}


def test_members_of_etcd_find_each_other() -> None:
    first = etcd_annotations([])
    second = etcd_annotations([member(first)])
    assert second[f"{ETCD}/cluster-id"] == first[f"{ETCD}/cluster-id"]
    assert second[f"{ETCD}/member-id"] != first[f"{ETCD}/member-id"]
    both = [member(first), member(second)]
    assert [leads(it, both) for it in both] == [True, False]
    removed = member({**first, f"{ETCD}/member-removed": ""})
    third = etcd_annotations([removed, member(second)])
    assert third[f"{ETCD}/cluster-id"] == second[f"{ETCD}/cluster-id"]
