"""How images come to a simulated hypervisor: as a part that grows, published by a rename."""

from collections.abc import Callable, Mapping
from typing import Any

from banlieue.sdk.simulated.faults import Code, WorldFault
from banlieue.sdk.simulated.hypervisor import Hypervisor
from banlieue.sdk.simulated.records import MIB_PER_GIB, Image, Part

PRIVILEGE = "Import"
METHODS = frozenset(
    {"import_begin", "import_grow", "import_publish", "import_drop", "image_delete"}
)

_ABANDONED = 600.0
"""Seconds without growing after which a part belongs to a process that died."""

_GIB = 1024 * 1024 * MIB_PER_GIB

Call = Callable[[Mapping[str, Any], str], Any]


class Imports:
    """The calls of an account that brings images, by name."""

    def __init__(self, hypervisor: Hypervisor) -> None:
        self._hypervisor = hypervisor

    def calls(self) -> dict[str, Call]:
        """Every method with what carries it out."""
        calls: dict[str, Call] = {
            "import_begin": self._begin,
            "import_grow": self._grow,
            "import_publish": self._publish,
            "import_drop": self._drop,
            "image_delete": self._delete,
        }
        return {name: self._guarded(call) for name, call in calls.items()}

    def _guarded(self, call: Call) -> Call:
        def guarded(params: Mapping[str, Any], account: str) -> Any:  # noqa: ANN401 - JSON
            denied = self._hypervisor.state.missing_privileges
            if any(privilege == PRIVILEGE for privilege, _ in denied):
                raise WorldFault(Code.NO_PERMISSION, f"the account lacks {PRIVILEGE}")
            return call(params, account)

        return guarded

    def _begin(self, params: Mapping[str, Any], _account: str) -> Part:
        """Make an empty part, and throw away those of the same image that nobody goes on with."""
        domain, name = self._hypervisor.domain(params["domain"]), str(params["name"])
        parts, now = self._hypervisor.state.parts, self._hypervisor.time()
        for part in [it for it in parts.values() if (it.name, it.domain) == (name, domain.id)]:
            if part.touched + _ABANDONED < now:
                del parts[part.id]
        part = Part(id=self._hypervisor.new_id("part"), name=name, domain=domain.id, touched=now)
        parts[part.id] = part
        return part

    def _grow(self, params: Mapping[str, Any], _account: str) -> Part:
        part = self._part(params)
        part.size += int(params["bytes"])
        part.touched = self._hypervisor.time()
        return part

    def _publish(self, params: Mapping[str, Any], _account: str) -> Image:
        """Let a part be the image of its name; one that is there stays as it is."""
        part, state = self._part(params), self._hypervisor.state
        del state.parts[part.id]
        domain = self._hypervisor.domain(part.domain)
        if part.name not in domain.images:
            gib = max(1, -(-part.size // _GIB))
            fresh = Image(ref=part.name, disk_gib=gib, imported=True, size=part.size)
            state.images.setdefault(part.name, fresh)
            domain.images.append(part.name)
        return state.images[part.name]

    def _drop(self, params: Mapping[str, Any], _account: str) -> dict[str, Any]:
        self._hypervisor.state.parts.pop(str(params["part"]), None)
        return {}

    def _delete(self, params: Mapping[str, Any], _account: str) -> dict[str, Any]:
        """Take an imported image, and parts of it, out of a failure domain."""
        domain, name = self._hypervisor.domain(params["domain"]), str(params["name"])
        state = self._hypervisor.state
        if name in domain.images:
            if not state.images[name].imported:
                raise WorldFault(Code.INVALID_ARGUMENT, f"image {name} was not imported")
            domain.images.remove(name)
        if not any(name in other.images for other in state.domains):
            state.images.pop(name, None)
        for part in [
            it for it in state.parts.values() if (it.name, it.domain) == (name, domain.id)
        ]:
            del state.parts[part.id]
        return {}

    def _part(self, params: Mapping[str, Any]) -> Part:
        part = self._hypervisor.state.parts.get(str(params["part"]))
        if part is None:
            raise WorldFault(Code.NOT_FOUND, f"there is no part {params['part']}")
        return part
