"""What the world's faults mean in the uniform words of the SDK."""

from collections.abc import Iterator
from contextlib import contextmanager

from banlieue.api.reasons import Reason
from banlieue.sdk.errors import (
    DriverError,
    InvalidSpec,
    NativeError,
    NeedsOperator,
    Refused,
    Transient,
    Unreachable,
)
from banlieue.sdk.simulated.faults import Code, ConnectionLost, WorldFault

_MEANING: dict[str, tuple[type[DriverError], Reason, str]] = {
    Code.INVALID_LOGIN: (
        NeedsOperator,
        Reason.PROVIDER_AUTH_FAILED,
        "the endpoint refused the credentials; correct username and password in the Secret",
    ),
    Code.NOT_AUTHENTICATED: (
        Transient,
        Reason.PROVIDER_BUSY,
        "the session ended twice in a row; it is opened again",
    ),
    Code.NO_PERMISSION: (
        NeedsOperator,
        Reason.PROVIDER_PERMISSION_DENIED,
        "the account lacks a right; grant it what the Provider's PermissionsValid condition lists",
    ),
    Code.BUSY: (
        Transient,
        Reason.PROVIDER_BUSY,
        "another task runs on the VM; the step follows when it ends",
    ),
    Code.CHANGED: (
        Transient,
        Reason.PROVIDER_BUSY,
        "somebody else changed the VM meanwhile; it is looked at again",
    ),
    Code.INVALID_POWER_STATE: (
        Transient,
        Reason.PROVIDER_BUSY,
        "the VM's power changed meanwhile; it is looked at again",
    ),
    Code.NOT_FOUND: (
        Transient,
        Reason.PROVIDER_BUSY,
        "the VM changed meanwhile; it is looked at again",
    ),
    Code.NO_MEMORY: (
        Refused,
        Reason.INSUFFICIENT_CAPACITY,
        "no host of the failure domain has enough memory left; free some or choose another one",
    ),
    Code.NO_SPACE: (
        Refused,
        Reason.INSUFFICIENT_STORAGE,
        "the storage is full; free space or choose another storage class",
    ),
    Code.IMAGE_NOT_FOUND: (
        NeedsOperator,
        Reason.IMAGE_NOT_AVAILABLE,
        "the image is not in the failure domain; put it there or correct the VMImage's source",
    ),
    Code.POOL_NOT_FOUND: (
        NeedsOperator,
        Reason.STORAGE_CLASS_NOT_AVAILABLE,
        "the storage class names a pool the failure domain lacks; correct the Provider's target",
    ),
    Code.NETWORK_NOT_FOUND: (
        NeedsOperator,
        Reason.NETWORK_NOT_AVAILABLE,
        "the network class names a network the failure domain lacks; correct the Provider's target",
    ),
    Code.DISK_NOT_FOUND: (
        NeedsOperator,
        Reason.DISK_NOT_FOUND,
        "the disk to attach again does not exist or is in use; correct the disk's `existing`",
    ),
    Code.SNAPSHOT: (
        NeedsOperator,
        Reason.BLOCKED_BY_SNAPSHOT,
        "the VM has snapshots, which hold on to its disks; delete the snapshots",
    ),
    Code.INVALID_ARGUMENT: (
        InvalidSpec,
        Reason.INVALID_CONFIGURATION,
        "the endpoint refused the machine's configuration; correct its spec",
    ),
    Code.HOT_PLUG: (
        NeedsOperator,
        Reason.RESTART_REQUIRED,
        "CPUs and memory shrink only while the VM is off; restart it to apply the change",
    ),
    Code.GUEST_TIMEOUT: (
        Transient,
        Reason.SHUTDOWN_TIMED_OUT,
        "the guest did not shut down in time; look at its console or use powerOffMode Hard",
    ),
}
_OTHERWISE = "the endpoint failed to carry out the step; it is tried again"


def driver_error(
    code: str, message: str, *, otherwise: Reason = Reason.PROVISIONING_FAILED
) -> DriverError:
    """The uniform error for a fault of the world; `otherwise` is the reason of unknown ones."""
    kind, reason, words = _MEANING.get(code, (Transient, otherwise, _OTHERWISE))
    return kind(reason, words, native=NativeError(code, message))


@contextmanager
def uniform_errors(otherwise: Reason = Reason.PROVISIONING_FAILED) -> Iterator[None]:
    """Turn what the world raises into what a driver raises."""
    try:
        yield
    except WorldFault as fault:
        raise driver_error(fault.code, fault.message, otherwise=otherwise) from fault
    except ConnectionLost as lost:
        raise Unreachable("the endpoint gives no answer; it is tried again") from lost
