"""What the entry point names: the backend, without its vendor library."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from banlieue.providers.vsphere.client.creates import CALL_TIMEOUT, Creates
from banlieue.providers.vsphere.differing import differing
from banlieue.providers.vsphere.models import KINDS, VSPHERE_MACHINES, VSphereMachineSpec
from banlieue.sdk.backend import Backend
from banlieue.sdk.driver import Connection, Driver


class Connector:
    """Opens sessions. Creates that were sent are remembered here, beyond any one session."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._creates: dict[tuple[str, ...], Creates] = {}

    @contextmanager
    def __call__(self, to: Connection) -> Iterator[Driver[VSphereMachineSpec]]:
        """Log in at the first endpoint that answers, log out at the end; raises `DriverError`."""
        from banlieue.providers.vsphere.client.session import Timings
        from banlieue.providers.vsphere.driver import open_driver

        with open_driver(to, self.creates(to), Timings(), self._monotonic) as driver:
            yield driver

    def creates(self, to: Connection) -> Creates:
        """What was sent to the vCenter at these endpoints."""
        with self._lock:
            return self._creates.setdefault(
                to.endpoints, Creates(self._monotonic, 2 * CALL_TIMEOUT)
            )


BACKEND: Backend[VSphereMachineSpec] = Backend(
    name="vsphere",
    machine_spec=VSphereMachineSpec,
    machine=VSPHERE_MACHINES,
    kinds=KINDS,
    connect=Connector(),
    storage_target_keys=frozenset(
        {"datastore", "datastoreCluster", "storagePolicy", "tag", "provisioning", "controller"}
    ),
    network_target_keys=frozenset({"portGroup", "tag", "adapter"}),
    provider_id_scheme="vsphere",
    admits_itself=True,
    differing=differing,
    settings_keys=frozenset(
        {
            "createTags",
            "failureDomains",
            "folder",
            "folderPolicy",
            "imageDatastore",
            "imageFolder",
        }
    ),
)
