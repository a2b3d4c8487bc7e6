"""What the hosts of a place support: virtual hardware versions, and PCI devices by label.

Asked only for machines that need it, and kept as long as the inventory.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pyVmomi import vim

from banlieue.api.reasons import Reason
from banlieue.providers.vsphere.client.session import Login, Session
from banlieue.providers.vsphere.client.soap import moid
from banlieue.providers.vsphere.differing import version_number
from banlieue.providers.vsphere.places.inventory import Cluster, Host
from banlieue.providers.vsphere.places.placement import Plan
from banlieue.providers.vsphere.vms.shape import Offered, PciDevice
from banlieue.sdk.errors import InvalidSpec

_T = TypeVar("_T")


@dataclass(slots=True, kw_only=True)
class Offers:
    """Asks the environment browsers of clusters. Thread-safe."""

    session: Session
    monotonic: Callable[[], float]
    max_age: float
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)
    _known: dict[tuple[str, str], tuple[Any, float]] = field(init=False, default_factory=dict)

    def check_version(self, plan: Plan, cluster: Cluster) -> None:
        """Raise `InvalidSpec` unless hosts of the cluster can run the hardware version asked for.

        Nothing is known where the cluster tells nothing; then the vCenter decides.
        """
        wanted = plan.spec.hardware_version
        if wanted is None or cluster.browser is None:
            return
        hosts = self._versions(cluster.browser)
        able = {key for key, versions in hosts.items() if wanted in versions}
        if not hosts or able & set(cluster.hosts):
            return
        known = sorted({it for found in hosts.values() for it in found}, key=version_number)
        raise InvalidSpec(
            Reason.INVALID_CONFIGURATION,
            f"hardwareVersion {wanted} is supported by no host of cluster {cluster.name}; "
            f"choose one up to {known[-1] if known else 'the hosts'}",
        )

    def pci(self, plan: Plan, cluster: Cluster) -> Offered:
        """The PCI devices that hosts of the cluster offer; asks only for plans that need some."""
        if not plan.spec.pci_device_labels or cluster.browser is None:
            return {}
        browser = cluster.browser
        return self._kept("pci", browser, lambda: self._labels(browser, None))

    def hosts_with(self, plan: Plan, cluster: Cluster, hosts: Iterable[Host]) -> frozenset[str]:
        """Which of the hosts offer all the PCI devices of a plan; one call for each host, once."""
        browser, labels = cluster.browser, set(plan.spec.pci_device_labels)
        if not labels or browser is None:
            return frozenset(host.id for host in hosts)
        return frozenset(
            host.id for host in hosts if labels <= self._on_host(browser, host.id).keys()
        )

    def _on_host(self, browser: str, host: str) -> Offered:
        return self._kept("pci", f"{browser}/{host}", lambda: self._labels(browser, host))

    def _versions(self, browser: str) -> Mapping[str, frozenset[str]]:
        """The hardware versions by host."""
        return self._kept("versions", browser, lambda: self._ask_versions(browser))

    def _kept(self, what: str, key: str, ask: Callable[[], _T]) -> _T:
        with self._lock:
            known, until = self._known.get((what, key), (None, 0.0))
        if known is None or self.monotonic() >= until:
            known = ask()
            with self._lock:
                self._known[what, key] = known, self.monotonic() + self.max_age
        found: _T = known
        return found

    def _ask_versions(self, browser: str) -> dict[str, frozenset[str]]:
        def ask(login: Login) -> dict[str, frozenset[str]]:
            told = vim.EnvironmentBrowser(browser, login.ops).QueryConfigOptionDescriptor()
            found: dict[str, set[str]] = {}
            for version in told or ():
                for host in version.host if version.createSupported else ():
                    found.setdefault(moid(host), set()).add(version.key)
            return {host: frozenset(versions) for host, versions in found.items()}

        return self.session.run(ask)

    def _labels(self, browser: str, host: str | None) -> Offered:
        def ask(login: Login) -> Offered:
            where = vim.HostSystem(host, login.ops) if host else None
            told = vim.EnvironmentBrowser(browser, login.ops).QueryConfigTarget(host=where)
            found: dict[str, set[tuple[int, int]]] = {}
            for device in (told.dynamicPassthrough if told else None) or ():
                if device.customLabel:
                    kinds = found.setdefault(device.customLabel, set())
                    kinds.add((device.vendorId, device.deviceId))
            return {
                label: tuple(PciDevice(label, *kind) for kind in sorted(kinds))
                for label, kinds in found.items()
            }

        return self.session.run(ask)
