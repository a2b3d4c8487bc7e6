"""Asks a vCenter which managed object ids mean nothing any more, for many in a few calls."""

import contextlib
from collections.abc import Collection, Iterator
from typing import Any

from pyVmomi import vim, vmodl

from banlieue.providers.vsphere.client import faults
from banlieue.providers.vsphere.client.session import Login, Session
from banlieue.providers.vsphere.client.soap import moid, property_spec, read

_FEW = 4
"""VMs up to which one call for each is no more than what a filter for all takes."""

_COLLECTOR = vmodl.query.PropertyCollector


def proved(session: Session, vms: Collection[str]) -> frozenset[str]:
    """The VMs of which the vCenter itself says `ManagedObjectNotFound`.

    One that is hidden from the account is not among them. Raises what the vendor library raises.
    """
    if len(vms) <= _FEW:
        return frozenset(vm for vm in vms if _is_gone(session, vm))
    return session.run(lambda login: _of_filter(login, vms), reads=True)


def _is_gone(session: Session, vm: str) -> bool:
    try:
        read(session, {vm: vim.VirtualMachine}, ("name",))
    except vmodl.fault.ManagedObjectNotFound as error:
        return _means(error, vm)
    return False


def _of_filter(login: Login, vms: Collection[str]) -> frozenset[str]:
    """As a filter reports them that is told to, on a collector of its own; four calls."""
    shared = _COLLECTOR(login.content.property_collector, login.ops)
    collector = _COLLECTOR(moid(shared.CreatePropertyCollector()), login.ops)
    try:
        collector.CreateFilter(
            spec=_COLLECTOR.FilterSpec(
                objectSet=[
                    _COLLECTOR.ObjectSpec(obj=vim.VirtualMachine(vm, login.ops))
                    for vm in sorted(vms)
                ],
                propSet=[property_spec(vim.VirtualMachine, ("name",))],
                reportMissingObjectsInResults=True,
            ),
            partialUpdates=True,
        )
        update = collector.WaitForUpdatesEx("", _COLLECTOR.WaitOptions(maxWaitSeconds=0))
        return frozenset(_reported(update)) & frozenset(vms)
    finally:
        with contextlib.suppress(*faults.NATIVE):
            collector.DestroyPropertyCollector()


def _reported(update: Any) -> Iterator[str]:  # noqa: ANN401 - an UpdateSet, or None
    for told in update.filterSet if update is not None else ():
        for item in told.missingSet or ():
            key = moid(item.obj)
            if _means(item.fault, key):
                yield key


def _means(fault: Any, vm: str) -> bool:  # noqa: ANN401 - a MethodFault
    """Whether a fault says that there is no object of this id."""
    is_gone = isinstance(fault, vmodl.fault.ManagedObjectNotFound)
    return is_gone and fault.obj is not None and moid(fault.obj) == vm
