"""What it means that a provider may not read a Secret of a machine's first boot."""

import re
from datetime import timedelta

from banlieue.api import names
from banlieue.api.infrastructure.machine import Machine
from banlieue.api.reasons import Reason
from banlieue.sdk.errors import DriverError, NeedsOperator, Transient
from banlieue.sdk.kube import Forbidden, Key, Obj
from banlieue.sdk.machine.scope import Scope
from banlieue.sdk.outcome import CONTINUE, Outcome, Wait

_SLOW = 300.0
_ACCOUNT = re.compile(r"system:serviceaccount:(?P<namespace>[^:\s\"]+):(?P<name>[^:\s\"]+)")


def not_granted(scope: Scope, secret: str, refusal: Forbidden) -> DriverError:
    """Why the Secret may not be read, and who is to do what about it.

    Where an operator serves the Provider, the right is on its way, unless the machine is older than
    a grant lasts. Without an operator somebody has to give it.

    Args:
        scope: the machine.
        secret: name of the Secret, in the machine's namespace.
        refusal: the API server's answer.
    """
    if scope.open.provider.status.workload is None:
        return NeedsOperator(
            Reason.USER_DATA_NOT_GRANTED,
            f"{_account(refusal)} may not read Secret {secret}; run `{_command(scope, refusal)}`, "
            f"or bind a Role in namespace {scope.key.namespace} that lets it get that Secret",
        )
    if _too_old(scope):
        return NeedsOperator(
            Reason.USER_DATA_NOT_GRANTED,
            f"Secret {secret} was granted for a day, and the machine was not made in that time; "
            f"annotate its {_owner(scope)} with {names.ANNOTATION_RENEW_GRANT}=<the time now, in "
            "RFC 3339> to grant it for another day",
        )
    return Transient(
        Reason.WAITING_FOR_GRANT,
        f"{_account(refusal)} may not read Secret {secret} yet; the operator grants it while the "
        "machine is being made",
    )


def agrees_on_data(machine: Machine, owner: Obj) -> Outcome:
    """Do the Secrets a machine names belong to the Machine that owns it?

    Whoever may write a machine object may not thereby have any Secret of the namespace put into a
    guest: the bootstrap data of the Machine is what is granted, and all that is read.

    Args:
        machine: the machine object.
        owner: its Machine, read live.
    """
    bootstrap = (owner.get("spec") or {}).get("bootstrap") or {}
    granted = bootstrap.get("dataSecretName")
    spec = machine.spec
    named = [data.secret_ref.name for data in (spec.user_data, spec.network_data) if data]
    strange = sorted({name for name in named if name != granted})
    if not strange:
        return CONTINUE
    return Wait(
        Reason.USER_DATA_NOT_GRANTED,
        f"Secret {strange[0]} is not the bootstrap data of Machine {Key.of(owner).name}, so it is "
        "not read; replace the Machine",
        _SLOW,
    )


def _too_old(scope: Scope) -> bool:
    created = scope.machine.metadata.creation_timestamp
    age = scope.ctx.clock.now() - created if created else timedelta()
    return age >= timedelta(seconds=names.GRANT_SECONDS)


def _owner(scope: Scope) -> str:
    reference = scope.machine.spec.virtual_machine_ref
    return f"VirtualMachine {reference.name}" if reference else "Machine"


def _account(refusal: Forbidden) -> str:
    """Who was refused, as the API server names him; only it knows for certain who we are."""
    found = _ACCOUNT.search(refusal.message)
    return f"ServiceAccount {found['namespace']}/{found['name']}" if found else "the provider"


def _command(scope: Scope, refusal: Forbidden) -> str:
    found = _ACCOUNT.search(refusal.message)
    runs_in = found["namespace"] if found else names.SYSTEM_NAMESPACE
    elsewhere = f" --system-namespace {runs_in}" if runs_in != names.SYSTEM_NAMESPACE else ""
    chosen = f"-n {scope.key.namespace} --provider {scope.backend.name}"
    return f"banlieue bootstrap grant {chosen}{elsewhere}"
