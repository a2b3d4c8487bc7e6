"""What a VirtualMachine's status says of addresses that its pools do not give."""

from banlieue.api.conditions import ConditionType
from banlieue.api.reasons import Reason
from banlieue.api.resources import IP_ADDRESS_CLAIMS
from banlieue.controller.addresses import claims
from banlieue.controller.vm.scope import Scope
from banlieue.sdk.conditions import false
from banlieue.sdk.kube import Key
from banlieue.sdk.outcome import CONTINUE, Outcome


async def tell_addresses(scope: Scope) -> Outcome:
    """Does a pool say why it gives no address? Then so does the status."""
    machine, raw = scope.machine, scope.machine_raw
    reference = machine.spec.provider_ref if machine else None
    if machine is None or raw is None or reference is None or not claims.wants_pool(raw):
        return CONTINUE
    provider = scope.services.provider(Key(reference.namespace, reference.name))
    for wish in claims.wishes(machine, provider.spec.capabilities) if provider else ():
        entry = claims.entry_of(machine, wish)
        claim = scope.ctx.cache.get(IP_ADDRESS_CLAIMS, Key(scope.key.namespace, wish.claim))
        trouble = claims.problem(claim) if claim else None
        if entry is None or entry.address is not None or trouble is None:
            continue
        reason, message = trouble
        exhausted = reason == claims.POOL_EXHAUSTED
        scope.settle(
            false(
                ConditionType.ADDRESSES_AVAILABLE,
                Reason.ADDRESS_POOL_EXHAUSTED if exhausted else Reason.ADDRESS_PENDING,
                f"networkInterfaces[{wish.nic}]: {wish.pool.kind} {wish.pool.name} gives no "
                f"{wish.family.value} address ({reason}): {message}",
            )
        )
        break
    return CONTINUE
