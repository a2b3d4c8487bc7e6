"""What a vCenter's faults mean in the uniform words, decided by type and never by text.

A fault is looked at first, then its cause, then the faults in its list (one per host, say): the
first that says something definite decides.
"""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException
from typing import Any

from pyVmomi import vim, vmodl

from banlieue.api.reasons import Reason
from banlieue.providers.vsphere.client.faultrules import OTHERWISE, RULES, Kind, Rule
from banlieue.providers.vsphere.client.transport import HttpStatus, Unreadable, Untold, Untrusted
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
    if isinstance(error, Untold):
        return Transient(
            otherwise,
            "the vCenter leaves out an object that was asked for: it is going at this moment, or "
            "the account may not see it; it is asked again",
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
    rule = rule or OTHERWISE
    kinds: dict[Kind, type[DriverError]] = {
        Kind.TRANSIENT: Transient,
        Kind.OPERATOR: NeedsOperator,
        Kind.REFUSAL: Refused if nothing_made else NeedsOperator,
        Kind.SPEC: InvalidSpec,
    }
    return kinds[rule.kind](rule.reason or otherwise, rule.message, native=native)


def _most_telling(error: Any) -> tuple[Any, Rule | None]:  # noqa: ANN401 - any fault
    """The fault that decides, and what it means; no rule for a plain want of permission."""
    vague: tuple[Any, Rule] | None = None
    for fault in _unfolded(error, _DEPTH):
        rule = next((rule for rule in RULES if isinstance(fault, rule.types)), None)
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
