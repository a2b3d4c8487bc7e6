"""Claims the addresses machines want from pools, and writes them into the machines' specs.

The provider waits for an address and touches no claim. A claim is released only when the VM that
used it is destroyed, or has lost the interface: an address that is given away while a VM still
answers to it takes two machines down.
"""

import contextlib
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field

from banlieue.api import names
from banlieue.api.events import EventReason
from banlieue.api.infrastructure.machine import Machine
from banlieue.api.meta import Resource
from banlieue.api.resources import IP_ADDRESS_CLAIMS, IP_ADDRESSES, VIRTUAL_MACHINES
from banlieue.api.types import IPFamily
from banlieue.api.v1alpha1.provider import ProviderMode
from banlieue.controller import writes
from banlieue.controller.addresses import claims, endings
from banlieue.controller.addresses.claims import Assigned, Wish
from banlieue.controller.infra.kinds import Found
from banlieue.controller.infra.machines import request_key
from banlieue.controller.vm.scope import Services
from banlieue.sdk.kube import AlreadyExists, Key, NotFound, Obj
from banlieue.sdk.machine import pausing
from banlieue.sdk.reconcile import Change, Request, Result

CONTROLLER = "addresses"
"""Name of the controller in queues, logs and metrics."""

_PROVIDER_SECONDS = 30.0

log = logging.getLogger(__name__)


@dataclass(slots=True)
class AddressReconciler:
    """Looks after the address claims of machines of all kinds."""

    services: Services
    _told: dict[Key, dict[str, str]] = field(default_factory=dict)

    async def reconcile(self, key: Key) -> Result:
        """Look at one machine, or at one claim nobody uses; `key` is one of `request_key`."""
        crd, _, name = key.name.partition("/")
        plain = Key(key.namespace, name)
        if crd == IP_ADDRESS_CLAIMS.crd_name:
            await endings.let_unused_go(self.services, plain)
            return Result()
        kind = next((it for it in self.services.kinds.named() if it.crd_name == crd), None)
        known = self.services.ctx.cache.get(kind, plain) if kind else None
        if kind is None or known is None or not (claims.wants_pool(known) or claims.is_held(known)):
            self._told.pop(key, None)
            return Result()
        found, machine = Found(kind, known), Machine.from_api(known)
        if machine.spec.provider_ref is None or await self._hands_off(machine):
            return Result()
        if (await self.services.keeper.standing()).problem is not None:
            # What was restored from another cluster asks the pools of the original for nothing.
            return Result(_PROVIDER_SECONDS)
        if machine.metadata.deletion_timestamp is not None:
            return await endings.settle(self.services, found)
        return await self._claim(found, machine)

    async def _hands_off(self, machine: Machine) -> bool:
        if pausing.moves_away(machine):
            return True
        return await pausing.why_paused(machine, pausing.live(self.services.ctx.api)) is not None

    async def _claim(self, found: Found, machine: Machine) -> Result:
        """Have a claim for each wish, and write into the spec what they gave."""
        reference = machine.spec.provider_ref
        provider = (
            self.services.provider(Key(reference.namespace, reference.name)) if reference else None
        )
        made_for, vm = machine.spec.virtual_machine_ref, None
        if made_for is not None:
            vm = self.services.ctx.cache.get(
                VIRTUAL_MACHINES, Key(found.key.namespace, made_for.name)
            )
            if vm is None or vm["metadata"].get("deletionTimestamp"):
                return Result()  # who it belongs to is still to come, or it is on its way out
        if provider is None or provider.spec.mode is ProviderMode.READ_ONLY:
            # In a drill the pools may be those of the original.
            return Result(_PROVIDER_SECONDS)
        wishes = claims.wishes(machine, provider.spec.capabilities)
        api = self.services.ctx.api
        if wishes:
            held = await writes.add_finalizer(api, found.kind, found.obj, names.FINALIZER_ADDRESSES)
            found, machine = Found(found.kind, held), Machine.from_api(held)
        owners = claims.owners(machine, found.kind, vm)
        given: dict[tuple[str, IPFamily], Assigned] = {}
        for wish in wishes:
            one = await self._one(found, machine, wish, owners)
            if one is not None:
                given[wish.nic, wish.family] = one
        interfaces = claims.filled_in(found.obj, given)
        if interfaces is not None:
            op = {"op": "replace", "path": "/spec/networkInterfaces", "value": interfaces}
            await writes.patch(api, found.kind, found.obj, [op])
        await endings.release_unplugged(self.services, found, machine, wishes)
        # A pool may be declared on the Provider later, which nobody tells of.
        return Result() if claims.is_complete(machine, given) else Result(_PROVIDER_SECONDS)

    async def _one(
        self, found: Found, machine: Machine, wish: Wish, owners: claims.Owners
    ) -> Assigned | None:
        """The address of one wish, None while there is none; the claim is made or put right."""
        api, key = self.services.ctx.api, Key(found.key.namespace, wish.claim)
        obj = self.services.ctx.cache.get(IP_ADDRESS_CLAIMS, key)
        if obj is None:
            if await self._has_it_otherwise(found, machine, wish, owners):
                return None
            try:
                obj = await api.create(
                    IP_ADDRESS_CLAIMS,
                    claims.claim(wish, machine, owners),
                    manager=names.MANAGER_CONTROLLER,
                )
            except AlreadyExists:
                obj = await api.get(IP_ADDRESS_CLAIMS, key)
            except NotFound:
                self._tell(
                    found,
                    wish,
                    f"{_what(wish)} cannot be claimed: the API server knows no IPAddressClaim; "
                    "install Cluster API's core provider and an IPAM provider",
                )
                return None
        foreign = claims.foreign(obj, wish, owners)
        if foreign is not None:
            why = f"{_what(wish)} cannot be claimed: IPAddressClaim {wish.claim} {foreign}"
            self._tell(found, wish, why)
            return None
        if obj["metadata"].get("deletionTimestamp"):
            await self._lost(found, machine, wish, obj)
            return None
        obj = await self._owned(obj, owners)
        return await self._given(found, machine, wish, obj)

    async def _has_it_otherwise(
        self, found: Found, machine: Machine, wish: Wish, owners: claims.Owners
    ) -> bool:
        """Whether the address came by another claim, as when its network had another pool."""
        entry = claims.entry_of(machine, wish)
        if entry is None or entry.address is None:
            return False
        namespace = found.key.namespace
        for obj in self.services.ctx.cache.list(IP_ADDRESS_CLAIMS, namespace=namespace):
            name = claims.address_name(obj)
            if name is None or not claims.serves(obj, wish, owners):
                continue
            address = await self._address(Key(namespace, name), live=False) or {}
            if (address.get("spec") or {}).get("address") == entry.address:
                await self._owned(obj, owners)
                return True
        return False

    async def _owned(self, obj: Obj, owners: claims.Owners) -> Obj:
        """Put right what a restore or a hand has taken off the claim."""
        present = obj["metadata"].get("ownerReferences") or []
        wanted = claims.with_owners(present, owners)
        held = obj["metadata"].get("finalizers") or []
        ops: writes.Ops = []
        if sorted(map(repr, map(_sorted, wanted))) != sorted(map(repr, map(_sorted, present))):
            ops.append({"op": "add", "path": "/metadata/ownerReferences", "value": wanted})
        if names.FINALIZER_ADDRESSES not in held:
            value = [*held, names.FINALIZER_ADDRESSES]
            ops.append({"op": "add", "path": "/metadata/finalizers", "value": value})
        if not ops:
            return obj
        return await writes.patch(self.services.ctx.api, IP_ADDRESS_CLAIMS, obj, ops)

    async def _lost(self, found: Found, machine: Machine, wish: Wish, obj: Obj) -> None:
        """Somebody deleted the claim of a machine that lives: it is made again when it is gone."""
        entry = claims.entry_of(machine, wish)
        if entry is not None and entry.address is not None:
            self._tell(
                found,
                wish,
                f"IPAddressClaim {wish.claim} was deleted while {wish.nic} has {entry.address}: "
                "the pool may give that address to somebody else",
            )
        await endings.unhold(self.services.ctx.api, obj)

    async def _given(self, found: Found, machine: Machine, wish: Wish, obj: Obj) -> Assigned | None:
        name = claims.address_name(obj)
        if name is None:
            trouble = claims.problem(obj)
            if trouble is not None:
                self._tell(found, wish, f"{_what(wish)} is not given: {trouble[0]}: {trouble[1]}")
            return None
        entry = claims.entry_of(machine, wish)
        final = entry is not None and entry.address is None
        # What is written now is written for good: a cached answer may be of a claim that was ended.
        if final and not await self._still_stands(obj):
            return None
        address = await self._address(Key(found.key.namespace, name), live=final)
        if address is None:
            return None
        given = claims.assigned(address, wish.claim, wish.family)
        if given is None:
            why = f"{_what(wish)} is not usable: IPAddress {name} is not one for this claim"
            self._tell(found, wish, why)
        elif entry is not None and entry.address not in {None, given.address}:
            self._tell(
                found,
                wish,
                f"{wish.nic} has {entry.address}, but its pool gave {given.address} to "
                f"IPAddressClaim {wish.claim}: the VM keeps what it has; reserve that in the pool",
            )
        else:
            return given
        return None

    async def _still_stands(self, obj: Obj) -> bool:
        """Whether the claim is the one that was looked at, and stays; read live."""
        with contextlib.suppress(NotFound):
            now = await self.services.ctx.api.get(IP_ADDRESS_CLAIMS, Key.of(obj))
            same = now["metadata"]["uid"] == obj["metadata"]["uid"]
            return same and not now["metadata"].get("deletionTimestamp")
        return False

    async def _address(self, key: Key, *, live: bool) -> Obj | None:
        cached = None if live else self.services.ctx.cache.get(IP_ADDRESSES, key)
        if cached is not None:
            return cached
        with contextlib.suppress(NotFound):
            found = await self.services.ctx.api.get(IP_ADDRESSES, key)
            return None if found["metadata"].get("deletionTimestamp") else found
        return None

    def _tell(self, found: Found, wish: Wish, message: str) -> None:
        """Say it once, on whatever its user looks at."""
        told = self._told.setdefault(request_key(found.kind, found.key), {})
        if told.get(wish.claim) == message:
            return
        told[wish.claim] = message
        reference = (found.obj.get("spec") or {}).get("virtualMachineRef") or {}
        vm = self.services.ctx.cache.get(
            VIRTUAL_MACHINES, Key(found.key.namespace, reference.get("name", ""))
        )
        self.services.ctx.recorder.event(
            vm or found.obj, EventReason.ADDRESS_NOT_ASSIGNED, message, warning=True
        )


def _what(wish: Wish) -> str:
    return f"networkInterfaces[{wish.nic}]: the {wish.family.value} address"


def _sorted(reference: dict[str, object]) -> list[tuple[str, object]]:
    return sorted(reference.items())


def machine(kind: Resource, change: Change) -> Iterable[Request]:
    """A machine that wants addresses from pools, or whose claims are still to be settled."""
    if change.new is not None and (claims.wants_pool(change.new) or claims.is_held(change.new)):
        yield Request(request_key(kind, change.key))


def claim(services: Services, change: Change) -> Iterable[Request]:
    """A claim came, was answered or goes: its machines look, or nobody uses it any more."""
    owners = ((change.new or change.old or {}).get("metadata") or {}).get("ownerReferences") or ()
    using = claims.machines_among(owners, services.kinds.named())
    for it in using:
        yield Request(Key(change.key.namespace, f"{it.namespace}/{it.name}"))
    if change.new is not None and change.new["metadata"].get("deletionTimestamp"):
        yield Request(request_key(IP_ADDRESS_CLAIMS, change.key))


def address(services: Services, change: Change) -> Iterable[Request]:
    """An address came: whoever uses its claim looks."""
    reference = (((change.new or {}).get("spec") or {}).get("claimRef")) or {}
    key = Key(change.key.namespace, reference.get("name", ""))
    found = services.ctx.cache.get(IP_ADDRESS_CLAIMS, key) if reference else None
    if found is not None:
        yield from claim(services, Change(IP_ADDRESS_CLAIMS, key, None, found))


def virtual_machines(change: Change) -> Iterable[Request]:
    """Whose claim it is: its status says why a pool gives nothing."""
    owners = ((change.new or change.old or {}).get("metadata") or {}).get("ownerReferences") or ()
    for owner in owners:
        if owner.get("kind") == VIRTUAL_MACHINES.kind and owner.get("controller"):
            yield Request(Key(change.key.namespace, owner["name"]))
