"""Tells a Provider's admin of namespaces that ask for it and may not have it.

The tenant learns nothing: a Provider he may not use and one that does not exist are one answer.
The controller writes no status of Providers, so this is an event on the Provider. It is said once
for each namespace and version of the Provider's spec, however many machines wait.
"""

from collections import OrderedDict
from dataclasses import dataclass, field

from banlieue.api.events import EventReason
from banlieue.api.reasons import Reason
from banlieue.api.resources import PROVIDERS
from banlieue.controller.scheduling.placement import Decision, Demand, Unplaced
from banlieue.sdk.reconcile import Context

_REMEMBERED = 4096


@dataclass(slots=True)
class Refusals:
    """What was told already; forgotten with the process."""

    ctx: Context
    _told: OrderedDict[tuple[str, int, str], None] = field(default_factory=OrderedDict)

    def note(self, wanted: Demand, decision: Decision) -> None:
        """Take in a decision; nothing happens unless it refuses a Provider that is there."""
        if not isinstance(decision, Unplaced) or wanted.provider_ref is None:
            return
        if decision.reason is not Reason.PROVIDER_NOT_ALLOWED:
            return
        provider = self.ctx.cache.get(PROVIDERS, wanted.provider_ref)
        if provider is None:
            return
        meta, namespace = provider["metadata"], wanted.key.namespace
        told = (meta.get("uid") or "", meta.get("generation") or 0, namespace)
        if told in self._told:
            return
        self._told[told] = None
        if len(self._told) > _REMEMBERED:
            self._told.popitem(last=False)
        self.ctx.recorder.event(
            provider,
            EventReason.NAMESPACE_REFUSED,
            f"A VirtualMachine of namespace {namespace} asked for this Provider, and "
            "allowedNamespaces leaves that namespace out",
            warning=True,
        )
