"""The control interface of our vCenter simulator, typed.

What is done here counts as done by somebody else: an administrator, or another program. It never
shows in the call counters. `hack/tools/vcsim/README.md` describes the interface itself.
"""

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from test.kit.vcsim_values import Counters, Inventory, Machine

_TIMEOUT: Final = 30.0


class ControlError(Exception):
    """The simulator refused a request; the message says why."""


class VCSimControl:
    """A client of the control interface. Machines are given by name, inventory path or moRef.

    Every method raises ControlError when the simulator refuses, OSError when it is not there.
    """

    def __init__(self, control_url: str) -> None:
        self.control_url = control_url

    # What happened

    def alive(self) -> bool:
        """Whether it answers; raises OSError if not."""
        self._get("/healthz")
        return True

    def counters(self) -> Counters:
        """The calls that clients made."""
        data = self._get("/counters")
        return Counters(
            total=data["total"],
            in_flight=data["inFlight"],
            peak_in_flight=data["peakInFlight"],
            soap=data["soap"],
            rest=data["rest"],
            clients=data["clients"],
            accounts=data["accounts"],
        )

    def reset_counters(self) -> None:
        """Count from zero again."""
        self._post("/counters/reset", {})

    def vms(self) -> tuple[Machine, ...]:
        """All machines and templates, in order of their moRefs."""
        return tuple(Machine.of(data) for data in self._get("/vms"))

    def find_vm(self, name: str) -> Machine | None:
        """The machine of that name, or None."""
        found = [machine for machine in self.vms() if machine.name == name]
        if len(found) > 1:
            raise ControlError(f"{len(found)} machines are called {name}")
        return found[0] if found else None

    def vm(self, name: str) -> Machine:
        """The machine of that name; raises ControlError when there is none."""
        machine = self.find_vm(name)
        if machine is None:
            raise ControlError(f"no machine is called {name}")
        return machine

    def inventory(self) -> Inventory:
        """Machines, folders, pools and datastore files, and a digest of it all."""
        data = self._get("/inventory")
        return Inventory(
            data["digest"], tuple(data["machines"]), tuple(data["folders"]), tuple(data["files"])
        )

    def inventory_digest(self) -> str:
        """A fingerprint that is the same as long as nothing was left behind or taken away."""
        return self.inventory().digest

    # Faults and delays

    def add_fault(
        self,
        method: str,
        fault: str,
        fields: Mapping[str, Any] | None = None,
        *,
        stage: Literal["call", "task"] = "call",
        object_type: str = "",
        name: str = "",
        account: str = "",
        probability: float = 1.0,
        skip: int = 0,
        count: int = 0,
        delay: float = 0.0,
        message: str = "",
    ) -> str:
        """Make calls fail; the first rule that matches is used.

        Args:
            method: SOAP method, `*` for all.
            fault: vSphere type, such as InsufficientResourcesFault.
            fields: Its fields, by their API names; references as {"type": …, "value": …}.
            stage: Whether the call fails, or the task it starts.
            object_type: Type of the object it is called on.
            name: Name or moRef of that object, or the name in the request (of a clone, a folder).
            account: Account of the session.
            probability: Of each matching call.
            skip: Matching calls that pass first.
            count: Calls that fail; 0 means without end.
            delay: Seconds before the call fails.
            message: Text of the fault.

        Returns:
            The rule's id.
        """
        rule = {
            "method": method,
            "fault": {"type": fault, **({"fields": dict(fields)} if fields else {})},
            "stage": stage,
            "type": object_type,
            "object": name,
            "account": account,
            "probability": probability,
            "skip": skip,
            "count": count,
            "delayMs": round(delay * 1000),
            "message": message,
        }
        return str(self._post("/faults", rule)["id"])

    def fault_hits(self, rule: str) -> int:
        """How many calls failed by that rule."""
        for found in self._get("/faults"):
            if found["id"] == rule:
                return int(found["hits"])
        raise ControlError(f"there is no rule {rule}")

    def clear_faults(self) -> None:
        """Drop all rules."""
        self._call("DELETE", "/faults")

    def set_delay(self, method: str, seconds: float, of: Literal["call", "task"] = "call") -> None:
        """Delay calls of a method (`*` for all), or the tasks it starts; 0 takes it away."""
        self._post("/delays", {"method": method, "milliseconds": round(seconds * 1000), "of": of})

    def clear_delays(self) -> None:
        """No delays any more."""
        self._call("DELETE", "/delays")

    # Guests

    def guest(
        self,
        *,
        machine: str = "",
        enabled: bool | None = None,
        delay: float | None = None,
        ipv4: bool | None = None,
        ipv6: bool | None = None,
        shutdown_delay: float | None = None,
        ignore_shutdown: bool | None = None,
        bootstrap: Literal["done", "error", "never"] | None = None,
        bootstrap_delay: float | None = None,
    ) -> None:
        """Change how guests behave; what is None stays.

        Args:
            machine: Name of the one machine it is for, which need not be there yet; "" for all.
            enabled: Tools, host name and addresses come up at all.
            delay: Seconds from power-on until they do.
            ipv4: IPv4 addresses by DHCP.
            ipv6: IPv6 addresses by router advertisement.
            shutdown_delay: Seconds from ShutdownGuest to power-off.
            ignore_shutdown: ShutdownGuest is accepted and nothing happens.
            bootstrap: How the first boot ends; `never`: it goes on and on.
            bootstrap_delay: Seconds from tools to its end.
        """
        settings = {
            "enabled": enabled,
            "delaySeconds": delay,
            "ipv4": ipv4,
            "ipv6": ipv6,
            "shutdownSeconds": shutdown_delay,
            "ignoreShutdown": ignore_shutdown,
            "bootstrap": bootstrap,
            "bootstrapSeconds": bootstrap_delay,
        }
        query = urllib.parse.urlencode({"machine": machine})
        wanted = {key: value for key, value in settings.items() if value is not None}
        self._post(f"/guest?{query}", wanted)

    # Accounts, permissions and sessions

    def set_account(self, name: str, password: str) -> None:
        """Let an account log in, or change its password; sessions that are open stay open."""
        self._post("/accounts", {"name": name, "password": password})

    def remove_account(self, name: str) -> None:
        """Let an account log in no more."""
        self._call("DELETE", f"/accounts/{urllib.parse.quote(name, safe='')}")

    def permit(self, account: str, entity: str, privileges: Sequence[str]) -> None:
        """Give an account exactly these privileges on an entity and below; "" is the root."""
        body = {"account": account, "entity": entity, "privileges": list(privileges)}
        self._post("/permissions", body)

    def deny(self, account: str, entity: str, privileges: Sequence[str]) -> None:
        """Leave an account an administrator's privileges but these, on an entity and below."""
        body = {"account": account, "entity": entity, "without": list(privileges)}
        self._post("/permissions", body)

    def hide(self, account: str, entity: str) -> None:
        """Hide an entity, and what is below it, from an account."""
        self.permit(account, entity, [])

    def clear_permissions(self, account: str = "", entity: str = "") -> None:
        """Make an account (all when empty) an administrator again, on one entity or everywhere."""
        query = urllib.parse.urlencode({"account": account, "entity": entity})
        self._call("DELETE", f"/permissions?{query}")

    def sessions(self) -> tuple[str, ...]:
        """The accounts of all open sessions, one each."""
        return tuple(session["account"] for session in self._get("/sessions"))

    def terminate_sessions(self, account: str = "") -> int:
        """End the sessions of an account (all when empty); returns how many there were."""
        return int(self._post("/sessions/terminate", {"account": account})["terminated"])

    # What others do to the inventory

    def set_policy(self, policy: str, datastores: Sequence[str]) -> None:
        """Let only these datastores fulfil a storage policy; at first every one does."""
        self._post("/policies", {"policy": policy, "datastores": list(datastores)})

    def set_instance_uuid(self, instance_uuid: str) -> None:
        """Let another vCenter answer: change `about.instanceUuid`."""
        self._post("/about", {"instanceUuid": instance_uuid})

    def create_foreign_vm(
        self,
        name: str,
        *,
        datacenter: str = "",
        folder: str = "",
        copy_of: str = "",
        uuid: str = "",
        instance_uuid: str = "",
        extra_config: Mapping[str, str] | None = None,
        annotation: str = "",
        power_on: bool = False,
    ) -> Machine:
        """Make a machine, or a copy of one with its extra configuration.

        Args:
            name: Its name.
            datacenter: Name of the datacenter; the first when empty.
            folder: Inventory path; the datacenter's top folder when empty.
            copy_of: Machine or template to clone.
            uuid: BIOS UUID; a fresh one when empty.
            instance_uuid: Instance UUID, which may be another machine's; a fresh one when empty.
            extra_config: Extra configuration, over that of the original.
            annotation: Notes.
            power_on: Whether it is switched on.
        """
        body = {
            "name": name,
            "datacenter": datacenter,
            "folder": folder,
            "copyOf": copy_of,
            "uuid": uuid,
            "instanceUuid": instance_uuid,
            "extraConfig": dict(extra_config or {}),
            "annotation": annotation,
            "powerOn": power_on,
        }
        return Machine.of(self._post("/vms", body))

    def destroy_vm(self, vm: str) -> None:
        """Switch a machine off and delete it."""
        self._post("/vms/destroy", {"vm": vm})

    def power_vm(self, vm: str, state: Literal["on", "off", "suspended"]) -> Machine:
        """Switch a machine."""
        return Machine.of(self._post("/vms/power", {"vm": vm, "state": state}))

    def move_vm(self, vm: str, folder: str) -> Machine:
        """Move a machine to another folder."""
        return Machine.of(self._post("/vms/move", {"vm": vm, "folder": folder}))

    def change_vm(
        self,
        vm: str,
        *,
        name: str = "",
        cpus: int = 0,
        memory_mib: int = 0,
        annotation: str = "",
        extra_config: Mapping[str, str] | None = None,
    ) -> Machine:
        """Reconfigure or rename a machine; an empty value takes an extra configuration key away."""
        body = {
            "vm": vm,
            "newName": name,
            "cpus": cpus,
            "memoryMB": memory_mib,
            "annotation": annotation,
            "extraConfig": dict(extra_config or {}),
        }
        return Machine.of(self._post("/vms/change", body))

    def snapshot_vm(self, vm: str, name: str) -> Machine:
        """Take a snapshot of a machine."""
        return Machine.of(self._post("/vms/snapshot", {"vm": vm, "name": name}))

    def ask(self, vm: str, text: str) -> None:
        """Stop a machine with a question that an admin has to answer; "" is the answer."""
        self._post("/vms/question", {"vm": vm, "text": text})

    def disable_methods(self, vm: str, *methods: str) -> None:
        """Forbid methods on a machine, as a backup program does; without any, allow all again."""
        self._post("/vms/disable", {"vm": vm, "methods": list(methods)})

    def set_connection(self, vm: str, state: str) -> None:
        """Make a machine `inaccessible` or `orphaned`, or `connected` again."""
        self._post("/vms/connection", {"vm": vm, "state": state})

    def register_again(self, vm: str) -> Machine:
        """Take a machine out of the inventory and register it again: off, with another moRef."""
        return Machine.of(self._post("/vms/reregister", {"vm": vm}))

    def rename(self, entity: str, name: str) -> None:
        """Rename a cluster, a folder or a datacenter."""
        self._post("/rename", {"entity": entity, "name": name})

    def create_folder(self, path: str) -> str:
        """Make the folders of a path such as /DC0/vm/team/a; returns the moRef of the last."""
        return str(self._post("/folders", {"path": path})["moRef"])

    def set_host(
        self,
        host: str,
        *,
        connection: Literal["connected", "disconnected", "notResponding", ""] = "",
        maintenance: bool | None = None,
    ) -> None:
        """Disconnect a host or put it into maintenance; its machines stay as they are."""
        body = {"host": host, "connection": connection}
        self._post("/hosts", body if maintenance is None else {**body, "maintenance": maintenance})

    def set_drs(self, cluster: str, mode: str) -> None:
        """Set DRS of a cluster: off, manual, partiallyAutomated or fullyAutomated."""
        self._post("/clusters", {"cluster": cluster, "drs": mode})

    def forget_tasks(self) -> int:
        """Drop all finished tasks, as vCenter does after some minutes; returns how many."""
        return int(self._post("/tasks/forget", {})["forgotten"])

    def _get(self, path: str) -> Any:  # noqa: ANN401 - JSON
        return self._call("GET", path)

    def _post(self, path: str, body: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
        return self._call("POST", path, json.dumps(body).encode())

    def _call(self, method: str, path: str, body: bytes | None = None) -> Any:  # noqa: ANN401 - JSON
        request = urllib.request.Request(  # noqa: S310 - the scheme is ours
            f"{self.control_url}{path}", data=body, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT) as answer:  # noqa: S310 - same
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                reason = error.read().decode(errors="replace")
            raise ControlError(f"{method} {path}: {reason}") from None
