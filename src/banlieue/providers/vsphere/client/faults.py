"""What a vCenter's faults mean in the uniform words, decided by type and never by text.

A fault is looked at first, then its cause, then the faults in its list (one per host, say): the
first that says something definite decides.
"""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from http.client import HTTPException
from typing import Any

from pyVmomi import vim, vmodl

from banlieue.api.reasons import Reason
from banlieue.providers.vsphere.client.transport import HttpStatus, Unreadable, Untrusted
from banlieue.sdk.errors import (
    DriverError,
    InvalidSpec,
    NativeError,
    NeedsOperator,
    Refused,
    Transient,
    Unreachable,
)

NATIVE: tuple[type[Exception], ...] = (vmodl.MethodFault, OSError, HTTPException, Unreadable)
"""Everything a call can raise that is not ours."""

LOST: tuple[type[Exception], ...] = (OSError, HTTPException, Unreadable)
"""A call that ended so may have been carried out all the same."""

_NATIVE_TEXT = 1024
_DEPTH = 4


class _Kind(Enum):
    TRANSIENT = "transient"
    OPERATOR = "operator"
    REFUSAL = "refusal"
    SPEC = "spec"


@dataclass(frozen=True, slots=True)
class _Rule:
    """What some faults mean; a vague one is used only if nothing inside it says more."""

    kind: _Kind
    reason: Reason | None
    message: str
    types: tuple[type[Exception], ...]
    vague: bool = False


def _rule(
    kind: _Kind,
    reason: Reason | None,
    message: str,
    *types: type[Exception],
    vague: bool = False,
) -> _Rule:
    return _Rule(kind, reason, message, types, vague)


# Subclasses stand before their bases: NotAuthenticated is a NoPermission, PasswordExpired an
# InvalidLogin, SSLVerifyFault a HostConnectFault, InaccessibleDatastore an InvalidDatastore.
_RULES = (
    _rule(
        _Kind.OPERATOR,
        Reason.PROVIDER_AUTH_FAILED,
        "the vCenter refused the credentials; correct username and password in the Secret",
        vim.fault.InvalidLogin,
    ),
    _rule(
        _Kind.OPERATOR,
        Reason.PROVIDER_AUTH_FAILED,
        "the vCenter ends every session at once; check the account and the vCenter's limits",
        vim.fault.NotAuthenticated,
        vmodl.fault.AuthenticationRequired,
        vmodl.fault.SessionNotFound,
    ),
    _rule(
        _Kind.OPERATOR,
        Reason.PROVIDER_TLS_INVALID,
        "a certificate on the way is not trusted; correct caBundle or thumbprints",
        vim.fault.SSLVerifyFault,
    ),
    _rule(
        _Kind.TRANSIENT,
        Reason.PROVIDER_UNREACHABLE,
        "a host does not answer its vCenter; it is tried again",
        vim.fault.HostConnectFault,
        vmodl.fault.HostCommunication,
        vim.fault.InvalidHostState,
    ),
    _rule(
        _Kind.TRANSIENT,
        Reason.PROVIDER_UNREACHABLE,
        "a host failed to carry out the step; it is tried again",
        vim.fault.HostPowerOpFailed,
        vim.fault.HostConfigFault,
        vague=True,
    ),
    _rule(
        _Kind.REFUSAL,
        Reason.INSUFFICIENT_STORAGE,
        "the storage is full or cannot be reached; free space or choose another storage class",
        vim.fault.NoDiskSpace,
        vim.fault.InsufficientStorageSpace,
        vim.fault.InaccessibleDatastore,
        vim.fault.NoCompatibleDatastore,
    ),
    _rule(
        _Kind.REFUSAL,
        Reason.QUOTA_EXCEEDED,
        "a limit or licence does not suffice; raise it or choose another failure domain",
        vim.fault.LimitExceeded,
        vmodl.fault.NotEnoughLicenses,
        vim.fault.LicenseAssignmentFailed,
    ),
    _rule(
        _Kind.REFUSAL,
        Reason.INSUFFICIENT_CAPACITY,
        "processors or memory do not suffice; free some or choose another failure domain",
        vim.fault.InsufficientResourcesFault,
        vim.fault.NoActiveHostInCluster,
    ),
    _rule(
        _Kind.REFUSAL,
        Reason.INSUFFICIENT_CAPACITY,
        "no host can take the VM; free capacity or choose another failure domain",
        vim.fault.NoCompatibleHost,
        vague=True,
    ),
    _rule(
        _Kind.TRANSIENT,
        Reason.PROVIDER_BUSY,
        "the vCenter works on it already; it is tried again",
        vim.fault.TaskInProgress,
        vim.fault.ConcurrentAccess,
        vim.fault.ResourceInUse,
        vim.fault.FileLocked,
        vim.fault.MethodDisabled,
        vim.fault.InvalidState,
        vmodl.fault.ManagedObjectNotFound,
    ),
    _rule(
        _Kind.OPERATOR,
        Reason.IMAGE_NOT_AVAILABLE,
        "a file or snapshot of the image is missing; restore the template",
        vim.fault.FileNotFound,
        vim.fault.SnapshotFault,
    ),
    _rule(
        _Kind.REFUSAL,
        Reason.NETWORK_NOT_AVAILABLE,
        "a network cannot be used from there; correct the Provider's network class",
        vim.fault.CannotAccessNetwork,
    ),
    _rule(
        _Kind.REFUSAL,
        Reason.STORAGE_CLASS_NOT_AVAILABLE,
        "a datastore cannot be used from there; correct the Provider's storage class",
        vim.fault.InvalidDatastore,
        vim.fault.CannotAccessVmDisk,
        vim.fault.CannotAccessFile,
    ),
    _rule(
        _Kind.REFUSAL,
        Reason.INSUFFICIENT_CAPACITY,
        "a placement rule forbids it there; choose another failure domain",
        vim.fault.RuleViolation,
    ),
    _rule(
        _Kind.SPEC,
        Reason.INVALID_CONFIGURATION,
        "the folder cannot take VMs; correct the folder",
        vim.fault.InvalidFolder,
    ),
    _rule(
        _Kind.OPERATOR,
        Reason.OWNERSHIP_CONFLICT,
        "the name is taken by another VM or file; rename or remove that",
        vim.fault.DuplicateName,
        vim.fault.AlreadyExists,
        vim.fault.FileAlreadyExists,
    ),
    _rule(
        _Kind.OPERATOR,
        Reason.RESTART_REQUIRED,
        "the change comes into force only while the VM is off; restart it",
        vim.fault.MemoryHotPlugNotSupported,
        vim.fault.CpuHotPlugNotSupported,
    ),
    _rule(
        _Kind.TRANSIENT,
        Reason.GUEST_AGENT_NOT_READY,
        "VMware Tools do not run in the guest; start them or use powerOffMode Hard",
        vim.fault.ToolsUnavailable,
    ),
    _rule(
        _Kind.OPERATOR,
        Reason.PROVIDER_VERSION_UNSUPPORTED,
        "this vCenter is too old for the step; upgrade it",
        vmodl.fault.MethodNotFound,
    ),
    _rule(
        _Kind.SPEC,
        Reason.UNSUPPORTED_BY_PROVIDER,
        "the vCenter does not support this configuration; change the spec",
        vmodl.fault.NotSupported,
        vmodl.fault.NotImplemented,
        vim.fault.VirtualHardwareCompatibilityIssue,
    ),
    _rule(
        _Kind.SPEC,
        Reason.INVALID_CONFIGURATION,
        "the vCenter refused the configuration; correct the spec",
        vmodl.fault.InvalidArgument,
        vim.fault.InvalidName,
        vim.fault.VmConfigFault,
        vim.fault.VmValidateMaxDevice,
        vim.fault.CustomizationFault,
        vim.fault.OutOfBounds,
        vague=True,
    ),
    _rule(
        _Kind.TRANSIENT,
        None,
        "the vCenter did not finish the step in time; it is tried again",
        vim.fault.Timedout,
        vmodl.fault.RequestCanceled,
    ),
)

_OTHERWISE = _rule(_Kind.TRANSIENT, None, "the vCenter failed to carry out the step")


def driver_error(
    error: BaseException,
    otherwise: Reason = Reason.INVENTORY_FAILED,
    *,
    nothing_made: bool = False,
) -> DriverError:
    """The uniform error for whatever a call or task failed with.

    Args:
        error: a fault, a transport error, or already a uniform error.
        otherwise: reason where the fault tells none.
        nothing_made: the fault answers a create and certainly nothing was made, so a want of
            capacity may send the machine elsewhere.
    """
    if isinstance(error, DriverError):
        return error
    if isinstance(error, vmodl.MethodFault):
        return _of_fault(error, otherwise, nothing_made=nothing_made)
    return _of_transport(error, otherwise)


@contextmanager
def translated(otherwise: Reason, *, nothing_made: bool = False) -> Iterator[None]:
    """Raise what calls inside raise in the uniform words."""
    try:
        yield
    except NATIVE as error:
        raise driver_error(error, otherwise, nothing_made=nothing_made) from error


def _of_transport(error: BaseException, otherwise: Reason) -> DriverError:
    native = NativeError(type(error).__name__, str(error)[:_NATIVE_TEXT])
    if isinstance(error, Untrusted):
        return NeedsOperator(
            Reason.PROVIDER_TLS_INVALID,
            "the endpoint's certificate is none of the pinned ones (its SHA-256 thumbprint is "
            f"{error.thumbprint}); correct thumbprints if that is right",
            native=native,
        )
    if isinstance(error, ssl.SSLCertVerificationError):
        return NeedsOperator(
            Reason.PROVIDER_TLS_INVALID,
            f"the endpoint's certificate is not trusted ({error.verify_message}); "
            "correct caBundle, or pin the certificate in thumbprints",
            native=native,
        )
    if isinstance(error, HttpStatus):
        return Unreachable(
            f"the endpoint answers with HTTP status {error.status} instead of a vCenter's service",
            native=native,
        )
    if isinstance(error, Unreadable):
        return Transient(
            otherwise, "the vCenter's answer cannot be read; it is asked again", native=native
        )
    return Unreachable("the vCenter gives no answer; it is tried again", native=native)


def _of_fault(error: Any, otherwise: Reason, *, nothing_made: bool) -> DriverError:  # noqa: ANN401 - any fault
    telling, rule = _most_telling(error)
    native = NativeError(fault_name(telling), (telling.msg or error.msg or "")[:_NATIVE_TEXT])
    if rule is None and isinstance(telling, vim.fault.NoPermission):
        return NeedsOperator(
            Reason.PROVIDER_PERMISSION_DENIED,
            f"the account lacks the privilege {telling.privilegeId or 'to see an object'} on "
            f"{_object_name(telling.object)}; grant it",
            native=native,
        )
    rule = rule or _OTHERWISE
    kinds: dict[_Kind, type[DriverError]] = {
        _Kind.TRANSIENT: Transient,
        _Kind.OPERATOR: NeedsOperator,
        _Kind.REFUSAL: Refused if nothing_made else NeedsOperator,
        _Kind.SPEC: InvalidSpec,
    }
    return kinds[rule.kind](rule.reason or otherwise, rule.message, native=native)


def _most_telling(error: Any) -> tuple[Any, _Rule | None]:  # noqa: ANN401 - any fault
    """The fault that decides, and what it means; no rule for a plain want of permission."""
    vague: tuple[Any, _Rule] | None = None
    for fault in _unfolded(error, _DEPTH):
        rule = next((rule for rule in _RULES if isinstance(fault, rule.types)), None)
        if rule is None and isinstance(fault, vim.fault.NoPermission):
            return fault, None
        if rule is not None and not rule.vague:
            return fault, rule
        if rule is not None and vague is None:
            vague = fault, rule
    return vague or (error, None)


def _unfolded(fault: Any, depth: int) -> Iterator[Any]:  # noqa: ANN401 - any fault
    """A fault, its cause and the faults it lists, outermost first."""
    if not isinstance(fault, vmodl.MethodFault) or depth == 0:
        return
    yield fault
    yield from _unfolded(fault.faultCause, depth - 1)
    listed = getattr(fault, "error", None)
    for inner in listed if isinstance(listed, list) else ():
        yield from _unfolded(inner, depth - 1)


def fault_name(fault: object) -> str:
    """The vendor's name of a fault, such as `NoPermission`."""
    return type(fault).__name__.rpartition(".")[2]


def _object_name(managed: Any) -> str:  # noqa: ANN401 - any managed object
    if managed is None:
        return "an object"
    return f"{type(managed).__name__.rpartition('.')[2]} {managed._moId}"  # noqa: SLF001 - no other way
