"""A vCenter whose templates are images of Nodes, one for each Kubernetes version."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pyVmomi import vim

from test.kit.guestplayer import KUBERNETES_KEY
from test.kit.managementcluster import NAMESPACE
from test.kit.ports import free_port
from test.kit.stack import provider
from test.kit.vcsim import VCSim
from test.kit.vsphere_client import VSphereClient

Object = dict[str, Any]

OLD: Final = "v1.34.0"
NEW: Final = "v1.34.1"
IMAGES: Final = {OLD: "nodes-old", NEW: "nodes-new"}
"""VMImage and its template, by the Kubernetes version it carries."""

_ORIGINAL: Final = "ubuntu"


@contextmanager
def node_vcenter(directory: Path, host: str) -> Iterator[VCSim]:
    """A simulator that pods of the management cluster reach, with a template for each version."""
    # The address may serve several simulators at once.
    listen = ("-l", f"{host}:{free_port()}")
    directory.mkdir(parents=True)
    with VCSim(directory, templates=[_ORIGINAL], arguments=listen) as vcenter:
        vcenter.url = f"https://{listen[1]}/sdk"
        with VSphereClient(vcenter.url) as admin:
            admin.login(vcenter.username, vcenter.password)
            for version, name in IMAGES.items():
                # The clones of a template take over what is said in it.
                said = {KUBERNETES_KEY: version}
                made = vcenter.create_foreign_vm(name, copy_of=_ORIGINAL, extra_config=said)
                admin.reference(vim.VirtualMachine, made.mo_ref).MarkAsTemplate()
        yield vcenter


def node_provider(name: str, vcenter: VCSim, host: str) -> Object:
    """The Provider of such a simulator."""
    assert host in vcenter.url
    connection = {"endpoint": vcenter.url, "thumbprints": [vcenter.thumbprint]}
    return provider(
        NAMESPACE,
        name,
        backend="vsphere",
        connection=connection,
        storage={"datastore": "LocalDS_0"},
        network={"portGroup": "DC0_DVPG0"},
    )
