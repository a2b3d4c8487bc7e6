"""Templates that are named by a tag or by an item of a content library, instead of by name or path.

`tag:category/name` means the template that carries the tag. `library:library/item` means the VM
template that an item holds. An OVF or OVA item holds none: what deploys it makes a VM whose UUID
and mark would have to be written afterwards, so that a crash in between leaves a VM nobody knows.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from banlieue.api.reasons import Reason
from banlieue.providers.vsphere.client.rest import Rest, RestError, refusal
from banlieue.providers.vsphere.client.tags import Tags
from banlieue.sdk.errors import InvalidSpec, NeedsOperator

TAG, LIBRARY = "tag:", "library:"

_LIBRARY, _ITEM = "content/library", "content/library/item"
_TEMPLATE = "vcenter/vm-template/library-items"
_VM_TEMPLATE = "vm-template"
_MISS_SECONDS = 30.0


@dataclass(slots=True, kw_only=True)
class References:
    """Finds what a reference means, and keeps it for a while. Thread-safe."""

    rest: Rest
    tags: Tags
    monotonic: Callable[[], float]
    max_age: float
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)
    _known: dict[str, tuple[frozenset[str], float]] = field(init=False, default_factory=dict)

    def resolve(self, wanted: str) -> frozenset[str] | None:
        """Ids of the VMs a reference means, none if there is none; None for a plain name.

        Raises:
            DriverError: nobody could be asked, or it means something that cannot be cloned.
        """
        kind = next((it for it in (TAG, LIBRARY) if wanted.startswith(it)), None)
        if kind is None:
            return None
        now = self.monotonic()
        with self._lock:
            found, until = self._known.get(wanted, (frozenset(), 0.0))
        if now < until:
            return found
        outer, _, inner = wanted.removeprefix(kind).partition("/")
        if not outer or not inner:
            form = "tag:category/name" if kind == TAG else "library:library/item"
            raise InvalidSpec(
                Reason.INVALID_CONFIGURATION, f"{wanted!r} is not written as {form}; correct it"
            )
        found = self._tagged(outer, inner) if kind == TAG else self._item(outer, inner)
        age = self.max_age if found else _MISS_SECONDS
        with self._lock:
            self._known[wanted] = found, now + age
        return found

    def forget(self) -> None:
        """Ask again at the next use."""
        with self._lock:
            self._known.clear()

    def _tagged(self, category: str, name: str) -> frozenset[str]:
        return self.tags.objects(category, name) or frozenset()

    def _item(self, library: str, name: str) -> frozenset[str]:
        try:
            libraries = self._find(_LIBRARY, {"name": library})
            items = [
                key
                for found in libraries
                for key in self._find(_ITEM, {"name": name, "library_id": found})
            ]
            return frozenset(key for item in items if (key := self._template(library, name, item)))
        except RestError as error:
            raise refusal(error, "reading content libraries") from error

    def _find(self, path: str, spec: dict[str, str]) -> list[str]:
        answer = self.rest.post(path, spec, action="find", wrapped="spec")
        return [str(key) for key in answer] if isinstance(answer, list) else []

    def _template(self, library: str, name: str, item: str) -> str | None:
        try:
            kind = str((self.rest.get(_ITEM, item) or {}).get("type") or "")
            if kind == _VM_TEMPLATE:
                found = self.rest.get(_TEMPLATE, item) or {}
                return str(found.get("vm_template") or "") or None
        except RestError as error:
            if error.missing:
                return None
            raise
        raise NeedsOperator(
            Reason.IMAGE_NOT_AVAILABLE,
            f"item {name!r} of content library {library!r} is of type {kind or 'unknown'}, and "
            "cannot be cloned; keep it there as a VM template, or give its URL with a checksum",
        )
