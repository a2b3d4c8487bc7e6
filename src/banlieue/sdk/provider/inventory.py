"""VMs on the backend that carry our mark and that no machine object claims. Pure."""

from collections.abc import Callable, Iterable, Sequence

from banlieue.api.v1alpha1.provider import Unclaimed, UnclaimedOwner, UnclaimedSample
from banlieue.sdk.driver import MachineState
from banlieue.sdk.identity import adopted_digest, valid_mark

MAX_SAMPLE = 20
MAX_OWNERS = 8192


def unclaimed(
    found: Sequence[MachineState],
    claimed: Iterable[str],
    installation_id: str,
    domain_name: Callable[[str], str | None],
) -> Unclaimed:
    """What the Provider's status says about them; the caller has read the whole backend.

    Args:
        found: every VM with a mark, as the driver's inventory gives it.
        claimed: UUIDs of all machine objects of the Provider.
        installation_id: only marks of this installation are ours. Marks that speak of another
            VM than the one they stand on came there by a copy, and do not count.
        domain_name: published name of a failure domain's id.
    """
    taken = {uuid.lower() for uuid in claimed}
    left = sorted(
        (
            state
            for state in found
            if state.mark
            and valid_mark(state.mark, state.uuid)
            and state.mark.owner.installation_id == installation_id
            and state.uuid.lower() not in taken
        ),
        key=lambda state: (state.name, state.uuid),
    )
    owners = {
        (mark.owner.digest, mark.epoch): UnclaimedOwner(
            hash=mark.owner.digest,
            epoch=mark.epoch,
            incoming=True if mark.incoming else None,
            vm=adopted_digest(state.name, mark.owner.digest, state.uuid),
        )
        for state in left
        if (mark := state.mark)
    }
    return Unclaimed(
        complete=True,
        count=len(left),
        sample=[_sample(state, domain_name) for state in left[:MAX_SAMPLE]],
        owners=[owner for _, owner in sorted(owners.items())][:MAX_OWNERS],
    )


def _sample(state: MachineState, domain_name: Callable[[str], str | None]) -> UnclaimedSample:
    owner = state.mark.owner if state.mark else None
    return UnclaimedSample(
        name=state.name[:256],
        owner=f"{owner.kind}/{owner.namespace}/{owner.name}"[:256] if owner else None,
        failure_domain=domain_name(state.failure_domain) if state.failure_domain else None,
    )
