"""Tags of a vCenter by category and name: found, made where that is allowed, put on VMs.

Names change seldom and cost a call each, so they are kept; a name that is not known is looked up
again among what is new.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from banlieue.api.reasons import Reason
from banlieue.providers.vsphere.client.rest import Rest, RestError, refusal
from banlieue.sdk.errors import NeedsOperator

_CATEGORY, _TAG = "cis/tagging/category", "cis/tagging/tag"
_ASSOCIATION = "cis/tagging/tag-association"
_VM = "VirtualMachine"
_MAKE_CATEGORY = "InventoryService.Tagging.CreateCategory"
_MAKE_TAG = "InventoryService.Tagging.CreateTag"
_ATTACH = ("InventoryService.Tagging.AttachTag", "InventoryService.Tagging.ObjectAttachable")
_FRESH_SECONDS = 600.0
_MISS_SECONDS = 30.0
_CHUNK = 500

CREATE_SETTING = "createTags"
"""Setting of the Provider: whether categories and tags that are not there are made."""


@dataclass(slots=True)
class _Names:
    """Ids by name, and what they were last read for."""

    by_id: dict[str, str] = field(default_factory=dict)
    read_at: float | None = None

    def find(self, name: str) -> str | None:
        return next((key for key, known in self.by_id.items() if known == name), None)


class Tags:
    """The tags of one vCenter. Thread-safe."""

    def __init__(self, rest: Rest, monotonic: Callable[[], float], *, create: bool) -> None:
        self._rest = rest
        self._monotonic = monotonic
        self._create = create
        self._lock = threading.RLock()
        self._categories = _Names()
        self._tags: dict[str, _Names] = {}

    # Names

    def find(self, category: str, name: str) -> str | None:
        """The id of a tag; None when there is none. Raises `DriverError`."""
        with self._lock:
            key = self._category(category)
            return self._tag(key, name) if key else None

    def ensure(self, category: str, name: str) -> str:
        """The id of a tag, made if it is not there.

        Raises:
            NeedsOperator: it is not there and may not be made.
        """
        with self._lock:
            key = self._category(category)
            found = self._tag(key, name) if key else None
            if found is not None:
                return found
            if not self._create:
                what = f"tag {name!r} in category {category!r}" if key else f"category {category!r}"
                raise NeedsOperator(
                    Reason.INVALID_CONFIGURATION,
                    f"the vCenter has no {what}; make it, or allow it by settings.{CREATE_SETTING}",
                )
            if key is None:
                key = self._make_category(category)
                self._tags[key] = _Names(read_at=self._monotonic())
            return self._make_tag(key, name)

    def _category(self, name: str) -> str | None:
        return self._look(self._categories, name, _CATEGORY, self._list_categories)

    def _tag(self, category: str, name: str) -> str | None:
        names = self._tags.setdefault(category, _Names())
        return self._look(names, name, _TAG, lambda: self._list_tags(category))

    def _look(
        self, names: _Names, name: str, path: str, ids: Callable[[], Iterable[str]]
    ) -> str | None:
        """The id of a name; what is new is read when the name is not known or all is old."""
        now = self._monotonic()
        age = float("inf") if names.read_at is None else now - names.read_at
        known = names.find(name)
        if age < (_MISS_SECONDS if known is None else _FRESH_SECONDS):
            return known
        there = tuple(ids())
        fresh = names.by_id if age < _FRESH_SECONDS else {}
        read: dict[str, str] = {}
        for key in there:
            told = fresh.get(key) or self._name(path, key)
            if told is not None:
                read[key] = told
        names.by_id, names.read_at = read, now
        return names.find(name)

    def _name(self, path: str, key: str) -> str | None:
        try:
            answer = self._rest.get(path, key)
        except RestError as error:
            if error.missing or error.denied:
                return None
            raise refusal(error, "reading tags") from error
        return str((answer or {}).get("name") or "") or None

    def _list_categories(self) -> Iterable[str]:
        return _ids(self._answer(lambda: self._rest.get(_CATEGORY), "reading tag categories"))

    def _list_tags(self, category: str) -> Iterable[str]:
        def ask() -> object:
            return self._rest.post(
                _TAG,
                {"category_id": category},
                action="list-tags-for-category",
                identity=category,
            )

        return _ids(self._answer(ask, "reading tags"))

    # Making

    def _make_category(self, name: str) -> str:
        spec = {
            "name": name,
            "description": "made by banlieue",
            "cardinality": "SINGLE",
            "associable_types": [_VM],
        }
        with self._making(f"category {name!r}", _MAKE_CATEGORY):
            return self._made(_CATEGORY, spec, self._categories, lambda: self._category(name))

    def _make_tag(self, category: str, name: str) -> str:
        spec = {"name": name, "description": "", "category_id": category}
        names = self._tags.setdefault(category, _Names())
        with self._making(f"tag {name!r}", _MAKE_TAG):
            return self._made(_TAG, spec, names, lambda: self._tag(category, name))

    @staticmethod
    @contextmanager
    def _making(what: str, privilege: str) -> Iterator[None]:
        try:
            yield
        except RestError as error:
            raise refusal(error, f"making {what}", privilege) from error

    def _made(
        self,
        path: str,
        spec: Mapping[str, object],
        names: _Names,
        look: Callable[[], str | None],
    ) -> str:
        """Make something; what somebody else made at the same moment is taken.

        Raises `RestError`.
        """
        try:
            key = self._rest.post(path, spec, wrapped="create_spec")
        except RestError as error:
            names.read_at = None
            found = look() if error.exists else None
            if found is None:
                raise
            return found
        names.by_id[str(key)] = str(spec["name"])
        return str(key)

    # On VMs

    def attach(self, vm: str, tags: Iterable[str]) -> None:
        """Put tags on a VM; those that are on it stay. One call."""
        self._associate(vm, tags, "attach-multiple-tags-to-object")

    def detach(self, vm: str, tags: Iterable[str]) -> None:
        """Take tags off a VM. One call."""
        self._associate(vm, tags, "detach-multiple-tags-from-object")

    def _associate(self, vm: str, tags: Iterable[str], action: str) -> None:
        wanted = sorted(tags)
        if not wanted:
            return
        body = {"object_id": {"type": _VM, "id": vm}, "tag_ids": wanted}
        answer = self._answer(
            lambda: self._rest.post(_ASSOCIATION, body, action=action), "tagging VMs", *_ATTACH
        )
        if isinstance(answer, Mapping) and answer.get("success") is False:
            self.forget()
            raise NeedsOperator(
                Reason.INVALID_CONFIGURATION,
                "the vCenter refused some of the VM's tags; look whether their categories may be "
                "used on VMs, and hold one tag or several",
            )

    def attached(self, vms: Iterable[str]) -> dict[str, frozenset[str]]:
        """The tags that are on each of the VMs; one call for many."""
        keys, found = sorted(vms), dict[str, frozenset[str]]()
        for first in range(0, len(keys), _CHUNK):
            chunk = keys[first : first + _CHUNK]
            body = {"object_ids": [{"type": _VM, "id": key} for key in chunk]}
            found.update(dict.fromkeys(chunk, frozenset()))
            answer = self._answer(
                lambda body=body: self._rest.post(  # type: ignore[misc] # a default binds the loop's value
                    _ASSOCIATION, body, action="list-attached-tags-on-objects"
                ),
                "reading tags of VMs",
            )
            for item in answer if isinstance(answer, list) else ():
                key = (item.get("object_id") or {}).get("id")
                found[str(key)] = frozenset(map(str, item.get("tag_ids") or ()))
        return found

    def objects(self, category: str, name: str) -> frozenset[str] | None:
        """Ids of the objects that carry a tag; None when there is no such tag."""
        key = self.find(category, name)
        if key is None:
            return None
        body = {"tag_ids": [key]}
        answer = self._answer(
            lambda: self._rest.post(_ASSOCIATION, body, action="list-attached-objects-on-tags"),
            "reading what has a tag",
        )
        return frozenset(
            str(obj.get("id"))
            for item in (answer if isinstance(answer, list) else ())
            for obj in item.get("object_ids") or ()
        )

    def forget(self) -> None:
        """Read names again at the next use."""
        with self._lock:
            self._categories = _Names()
            self._tags = {}

    def _answer(self, ask: Callable[[], object], what: str, *privileges: str) -> object:
        try:
            return ask()
        except RestError as error:
            self.forget()
            raise refusal(error, what, *privileges) from error


def _ids(answer: object) -> list[str]:
    return [str(key) for key in answer] if isinstance(answer, list) else []


def may_create(settings: Mapping[str, str | int]) -> bool:
    """What the Provider's setting says; by default nothing is made.

    Raises:
        NeedsOperator: it is neither true nor false.
    """
    value = str(settings.get(CREATE_SETTING, "false")).lower()
    if value not in {"true", "false"}:
        raise NeedsOperator(
            Reason.CAPABILITY_INVALID,
            f"settings.{CREATE_SETTING} {value!r} is neither true nor false; correct it",
        )
    return value == "true"
