"""The player of guests against the workload API and one vCenter, without a management cluster."""

import base64
import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

from test.kit.guestnode import ETCD
from test.kit.guestplayer import KUBERNETES_KEY, Guest, GuestPlayer, everybody, nobody
from test.kit.ports import LOOPBACK, free_port
from test.kit.vcsim import VCSim
from test.kit.waiting import wait_until
from test.kit.workloadapi import WorkloadApi
from test.kit.workloadclient import NODES, PODS, SECRETS, WorkloadClient, public_key_hash

pytestmark = pytest.mark.e2e
pytest_plugins = ["test.kit.fixtures_vcsim"]

SECONDS = 20.0
TOKEN = "abcdef.0123456789abcdef"
REGISTRATION = {
    "name": "{{ local_hostname }}",
    "kubeletExtraArgs": [{"name": "provider-id", "value": "{{ ds.meta_data.provider_id }}"}],
}


def authority(name: str) -> tuple[str, str]:
    """Certificate and key of a CA, as Cluster API makes them."""
    key = rsa.generate_private_key(65537, 2048)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    today = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(today - timedelta(hours=1))
        .not_valid_after(today + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    return made.public_bytes(Encoding.PEM).decode(), private.decode()


class Lab:
    """A vCenter whose machines are to be one cluster."""

    def __init__(self, vcsim: VCSim, workload: WorkloadApi) -> None:
        self.vcsim, self.workload = vcsim, workload
        self.endpoint = f"{LOOPBACK}:{free_port()}"
        self.ca, self.etcd = authority("kubernetes"), authority("etcd")
        self.client = WorkloadClient(self.endpoint, self.ca[0])

    def plane(self, name: str, *, first: bool = False) -> None:
        files = {
            f"/etc/kubernetes/pki/{stem}.{end}": it
            for stem, pair in (("ca", self.ca), ("etcd/ca", self.etcd))
            for end, it in zip(("crt", "key"), pair, strict=True)
        }
        if not first:
            self.boot(name, self.joining(controlPlane={}), files)
            return
        cluster = {"kind": "ClusterConfiguration", "controlPlaneEndpoint": self.endpoint}
        init = {"kind": "InitConfiguration", "nodeRegistration": REGISTRATION}
        self.boot(name, {"/run/kubeadm/kubeadm.yaml": text(cluster, init)}, files)

    def worker(self, name: str, **told: object) -> None:
        self.boot(name, self.joining(**told), {})

    def joining(self, **told: object) -> dict[str, str]:
        token = {
            "token": TOKEN,
            "apiServerEndpoint": self.endpoint,
            "caCertHashes": [public_key_hash(self.ca[0])],
        }
        found = {
            "kind": "JoinConfiguration",
            "discovery": {"bootstrapToken": token},
            "nodeRegistration": REGISTRATION,
            **told,
        }
        return {"/run/kubeadm/kubeadm-join-config.yaml": text(found)}

    def boot(self, name: str, kubeadm: Mapping[str, str], files: Mapping[str, str]) -> None:
        config = [{"path": path, "content": it} for path, it in {**files, **kubeadm}.items()]
        user_data = yaml.safe_dump({"write_files": config}, width=10**6)
        metadata = {
            "instance-id": name,
            "local-hostname": name,
            "provider-id": f"vsphere://{name}",
        }
        self.vcsim.create_foreign_vm(
            name,
            extra_config={
                "guestinfo.metadata": json.dumps(metadata),
                "guestinfo.userdata": f"## template: jinja\n#cloud-config\n{user_data}",
                "guestinfo.vendordata": "#!/bin/sh\nid='one'\nx 'info-set guestinfo.word $id:done'",
                KUBERNETES_KEY: "v1.34.7",
            },
            power_on=True,
        )

    def allow(self, token: str, **data: str) -> None:
        """Make the Secret of a bootstrap token."""
        name, _, secret = token.partition(".")
        told = {
            "token-id": name,
            "token-secret": secret,
            "usage-bootstrap-authentication": "true",
            "expiration": (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ"),
            **data,
        }
        encoded = {key: base64.b64encode(it.encode()).decode() for key, it in told.items()}
        metadata = {"name": f"bootstrap-token-{name}", "namespace": "kube-system"}
        made = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": encoded}
        self.client.create(SECRETS, made)

    def word(self, name: str) -> str | None:
        """What a guest told of its first boot."""
        return self.vcsim.vm(name).extra_config.get("guestinfo.word")

    def node(self, name: str, ready: str = "True") -> dict[str, Any]:
        """Wait until a Node is there and so."""

        def found() -> dict[str, Any] | None:
            obj = self.client.get(f"{NODES}/{name}")
            return obj if obj and conditions(obj)["Ready"] == ready else None

        return wait_until(found, SECONDS, f"Node {name}: {ready}", retry_on=(OSError,))


def conditions(obj: dict[str, Any]) -> dict[str, str]:
    return {it["type"]: it["status"] for it in obj["status"]["conditions"]}


def text(*found: dict[str, Any]) -> str:
    return yaml.safe_dump_all(found, width=10**6)


@pytest.fixture
def lab(vcsim: VCSim, tmp_path: Path) -> Iterator[Lab]:
    with WorkloadApi(tmp_path) as workload:
        yield Lab(vcsim, workload)


def guest(player: GuestPlayer, name: str) -> Guest:
    """The guest of a VM, once it was seen."""

    def found() -> Guest | None:
        return next((it for it in player.guests.values() if it.machine.name == name), None)

    return wait_until(found, SECONDS, f"{name} to boot")


def test_machines_become_nodes_and_fall_silent(lab: Lab) -> None:
    with GuestPlayer([lab.vcsim], lab.workload) as player:
        lab.plane("one", first=True)
        first = lab.node("one")
        assert first["spec"]["providerID"] == "vsphere://one"
        assert first["status"]["nodeInfo"]["kubeletVersion"] == "v1.34.7"
        wait_until(lambda: lab.word("one") == "one:done", SECONDS, "its word")

        lab.worker("web")
        web = guest(player, "web")
        wait_until(lambda: "bootstrap token" in web.trouble, SECONDS, "the token to be refused")
        assert lab.client.get(f"{NODES}/web") is None
        lab.allow(TOKEN)
        found = lab.node("web")
        assert found["status"]["nodeInfo"]["systemUUID"] == lab.vcsim.vm("web").uuid

        lab.plane("two")
        lab.node("two")
        etcd = ["etcd-one", "etcd-two"]
        assert sorted(it["metadata"]["name"] for it in lab.client.members()) == etcd
        assert sorted(lab.workload.parts(lab.endpoint)[1]) == etcd

        # The leader is killed: the other one leads, and its pods go with its Node.
        lab.vcsim.destroy_vm("one")
        lab.node("one", "Unknown")
        led = next(it for it in lab.client.members() if it["metadata"]["name"] == "etcd-two")
        assert f"{ETCD}/leader-from" in led["metadata"]["annotations"]
        wait_until(lambda: lab.workload.parts(lab.endpoint)[1] == etcd[1:], SECONDS, "it to go")
        assert lab.client.get(f"{PODS}/etcd-one"), "nobody deleted the Node yet"
        lab.client.delete(f"{NODES}/one")
        wait_until(lambda: len(lab.client.items(PODS)) == 4, SECONDS, "its pods to be gone")

        # One that is switched off and on again is back.
        lab.vcsim.power_vm("web", "off")
        lab.node("web", "Unknown")
        lab.vcsim.power_vm("web", "on")
        lab.node("web")
        assert player.errors == []


def test_who_takes_no_provider_id_is_known_by_system_uuid(lab: Lab) -> None:
    with GuestPlayer([lab.vcsim], lab.workload, says_provider_id=nobody, held=everybody) as player:
        lab.plane("one", first=True)
        one = guest(player, "one")
        wait_until(lambda: one.trouble == "held", SECONDS, "it to be held")
        player.held = nobody
        found = lab.node("one")
        assert "providerID" not in found["spec"]
        assert found["status"]["nodeInfo"]["systemUUID"] == lab.vcsim.vm("one").uuid
        assert player.errors == []


def test_a_cluster_with_another_ca_is_not_joined(lab: Lab) -> None:
    with GuestPlayer([lab.vcsim], lab.workload) as player:
        lab.plane("one", first=True)
        lab.node("one")
        lab.allow(TOKEN, expiration="2020-01-01T00:00:00Z")
        lab.worker("late")
        late = guest(player, "late")
        wait_until(lambda: "expired" in late.trouble, SECONDS, "the token to be refused")
        lab.ca = authority("another")
        lab.worker("lost")
        lost = guest(player, "lost")
        wait_until(lambda: "another CA" in lost.trouble, SECONDS, "the cluster to be refused")
