"""`make demo`: a local control plane, a vCenter simulator, all roles, three VMs becoming Ready.

    python -m test.kit.demo [--keep] [--vms N]

Exit code 0 means: every VirtualMachine became Ready with an address, was deleted, and the vCenter
is as it was before. Any failure says why and where the logs are.
"""

import argparse
import contextlib
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from test.kit.controlplane import ControlPlane
from test.kit.stack import (
    Stack,
    condition,
    credentials,
    is_ready,
    provider,
    provider_class,
    virtual_machine,
    vm_class,
    vm_image,
)
from test.kit.tools import tool
from test.kit.vcsim import VCSim

NAMESPACE = "demo"
TEMPLATE = "ubuntu-24.04"
PROVIDER = "demo-vcenter"
_STOP = '{"spec":{"desiredPowerState":"PoweredOff"}}'
_LOG_WIDTH = 140
_READY_SECONDS = 120.0
_GONE_SECONDS = 120.0


class DemoError(Exception):
    """The demo did not end as it should."""


class Demo:
    """The steps of the demo, in order."""

    def __init__(self, console: Console, directory: Path, names: list[str]) -> None:
        self.console = console
        self.directory = directory
        self.names = names
        self.started = time.monotonic()

    def run(self, *, keep: bool) -> None:
        """All steps; raises `DemoError`."""
        with contextlib.ExitStack() as stack:
            self._say("starting etcd, kube-apiserver and kube-controller-manager")
            plane = stack.enter_context(ControlPlane(self.directory / "control-plane"))
            self._say("starting a vCenter simulator with one template")
            vcenter = stack.enter_context(VCSim(self.directory / "vcsim", templates=[TEMPLATE]))
            before = vcenter.inventory_digest()
            roles = stack.enter_context(Stack(plane, self.directory))
            self._say("installing CRDs and the rights of each role")
            roles.install()
            self._say("starting the controller and the vSphere provider as processes of their own")
            for role in (roles.controller(), roles.provider("vsphere")):
                role.start()
            self._register(plane, vcenter)
            self._watch(plane)
            self.console.print()
            for arguments in (("vm", "-o", "wide"), ("vsm",), ("events",)):
                told = plane.kubectl("get", *arguments, "-n", NAMESPACE)
                self.console.print(told, soft_wrap=True, highlight=False)
            if keep:
                self._stay(plane)
            self._delete(plane)
            if vcenter.inventory_digest() == before:
                self._say("the vCenter is as it was before")
            elif keep:
                self._say(
                    "the vCenter is not as it was before; something was left on it on purpose?"
                )
            else:
                raise DemoError("the vCenter is not as it was before")

    def _register(self, plane: ControlPlane, vcenter: VCSim) -> None:
        kube = plane.kube
        namespace = "banlieue-system"
        self._say("registering the vCenter as a Provider; applying class, image, VirtualMachines")
        kube.apply(provider_class("vsphere", "VSphere"))
        kube.apply(credentials(namespace, f"{PROVIDER}-creds", vcenter.username, vcenter.password))
        kube.apply(
            provider(
                namespace,
                PROVIDER,
                backend="vsphere",
                connection={"endpoint": vcenter.url, "thumbprints": [vcenter.thumbprint]},
                storage={"datastore": "LocalDS_0"},
                network={"portGroup": "VM Network"},
            )
        )
        found = kube.wait_for(
            "providers", PROVIDER, namespace, until=is_ready, timeout=60, what="Ready"
        )
        domains = [item["name"] for item in found["status"]["failureDomains"]]
        self._say(f"Provider {PROVIDER} is Ready with failure domains {', '.join(domains)}")
        kube.apply(vm_class())
        kube.apply(vm_image({"vsphere": TEMPLATE}))
        kube.wait_for(
            "vmimages",
            "ubuntu",
            until=lambda it: condition(it, "Ready")[0] == "True",
            timeout=30,
            what="Ready",
        )
        kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        for name in self.names:
            kube.apply(virtual_machine(NAMESPACE, name))

    def _watch(self, plane: ControlPlane) -> None:
        deadline = time.monotonic() + _READY_SECONDS
        with Live(self._table([]), console=self.console, refresh_per_second=8) as live:
            for found in _polled(plane, deadline):
                live.update(self._table(found))
                if len(found) == len(self.names) and all(
                    is_ready(it) and it["status"].get("addresses") for it in found
                ):
                    return
        raise DemoError(f"not every VirtualMachine was Ready within {_READY_SECONDS:.0f} s")

    def _table(self, found: list[dict[str, Any]]) -> Table:
        table = Table(title=f"kubectl get vm -n {NAMESPACE}  ({self._elapsed():.0f} s)")
        for column in ("Name", "Provider", "Failure domain", "Power", "IP", "Ready", "Reason"):
            table.add_column(column)
        for obj in found:
            status = obj.get("status") or {}
            placed = status.get("scheduled") or {}
            ready, reason = condition(obj, "Ready")
            addresses = status.get("addresses") or [{}]
            table.add_row(
                obj["metadata"]["name"],
                placed.get("providerName", ""),
                placed.get("failureDomain", ""),
                status.get("observedPowerState", ""),
                addresses[0].get("address", ""),
                f"[{'green' if ready == 'True' else 'yellow'}]{ready}[/]",
                reason,
            )
        return table

    def _stay(self, plane: ControlPlane) -> None:
        self.console.print("\nStaying up until Ctrl-C. Things to try in another terminal:\n")
        for line in (
            f"export KUBECONFIG={plane.kubeconfig}",
            f'export PATH="{tool("kubectl").parent}:$PATH"',
        ):
            self.console.print(f"  {line}", soft_wrap=True, highlight=False)
        kubectl = "kubectl"
        for line in (
            f"get vm -n {NAMESPACE} -w",
            f"describe vm -n {NAMESPACE} {self.names[0]}",
            f"patch vm -n {NAMESPACE} {self.names[0]} --type=merge -p '{_STOP}'",
            f"delete vm -n {NAMESPACE} {self.names[0]}",
            f"get provider -n banlieue-system {PROVIDER} -o yaml",
        ):
            self.console.print(f"  {kubectl} {line}", soft_wrap=True, highlight=False)
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()

    def _delete(self, plane: ControlPlane) -> None:
        self._say("deleting the VirtualMachines; Ctrl-C stops at once")
        found = [it["metadata"] for it in plane.kube.list("virtualmachines")]
        for meta in found:
            plane.kube.patch(
                "virtualmachines",
                meta["name"],
                {"spec": {"deletionProtection": False, "deletionPolicy": "Delete"}},
                meta["namespace"],
            )
            plane.kube.delete("virtualmachines", meta["name"], meta["namespace"])
        for meta in found:
            plane.kube.wait_gone(
                "virtualmachines", meta["name"], meta["namespace"], timeout=_GONE_SECONDS
            )

    def _say(self, text: str) -> None:
        self.console.print(f"[dim]{self._elapsed():5.1f} s[/]  {text}", highlight=False)

    def _elapsed(self) -> float:
        return time.monotonic() - self.started


def _polled(plane: ControlPlane, deadline: float) -> Iterator[list[dict[str, Any]]]:
    while time.monotonic() < deadline:
        yield plane.kube.list("virtualmachines", NAMESPACE)
        time.sleep(0.2)  # sleep-ok: the pace of a table people watch


def main() -> int:
    """Run the demo; the exit code says how it ended."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--keep", action="store_true", default=bool(os.environ.get("KEEP")))
    parser.add_argument("--vms", type=int, default=3)
    options = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else _LOG_WIDTH)
    for number in (signal.SIGTERM, signal.SIGHUP):
        # A closed terminal leaves as little behind as Ctrl-C.
        signal.signal(number, signal.default_int_handler)
    directory = Path(tempfile.mkdtemp(prefix="banlieue-demo-"))
    demo = Demo(console, directory, [f"vm-{number + 1}" for number in range(options.vms)])
    try:
        demo.run(keep=options.keep)
    except KeyboardInterrupt:
        shutil.rmtree(directory, ignore_errors=True)
        console.print("\ninterrupted; everything was stopped and removed")
        return 130
    # The top of a program: whatever went wrong, say it in a line and name the logs.
    except Exception as error:  # noqa: BLE001 - see above
        console.print(f"[red]the demo failed:[/] {type(error).__name__}: {error}", soft_wrap=True)
        console.print(f"logs of every process are under {directory}", soft_wrap=True)
        return 1
    shutil.rmtree(directory, ignore_errors=True)
    console.print(f"[green]the demo ended well after {demo._elapsed():.0f} s[/]")
    return 0


if __name__ == "__main__":
    sys.exit(main())
