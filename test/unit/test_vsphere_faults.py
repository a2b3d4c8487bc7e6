import ssl
from http.client import RemoteDisconnected

import pytest
from pyVmomi import vim, vmodl

from banlieue.api.reasons import Reason
from banlieue.providers.vsphere.client.faults import driver_error, translated
from banlieue.providers.vsphere.client.transport import (
    HttpStatus,
    StaleConnection,
    Unreadable,
    Untrusted,
)
from banlieue.sdk.errors import (
    DriverError,
    InvalidSpec,
    NeedsOperator,
    Refused,
    Transient,
    Unreachable,
)

R = Reason


@pytest.mark.parametrize(
    ("fault", "kind", "reason"),
    [
        (vim.fault.InvalidLogin(), NeedsOperator, R.PROVIDER_AUTH_FAILED),
        (vim.fault.PasswordExpired(), NeedsOperator, R.PROVIDER_AUTH_FAILED),
        (vim.fault.NotAuthenticated(), NeedsOperator, R.PROVIDER_AUTH_FAILED),
        (vim.fault.NoPermission(), NeedsOperator, R.PROVIDER_PERMISSION_DENIED),
        (vim.fault.SSLVerifyFault(), NeedsOperator, R.PROVIDER_TLS_INVALID),
        (vim.fault.HostConnectFault(), Transient, R.PROVIDER_UNREACHABLE),
        (vmodl.fault.HostNotReachable(), Transient, R.PROVIDER_UNREACHABLE),
        (vim.fault.HostPowerOpFailed(), Transient, R.PROVIDER_UNREACHABLE),
        (vim.fault.TaskInProgress(), Transient, R.PROVIDER_BUSY),
        (vim.fault.ConcurrentAccess(), Transient, R.PROVIDER_BUSY),
        (vim.fault.FileLocked(), Transient, R.PROVIDER_BUSY),
        (vim.fault.MethodDisabled(), Transient, R.PROVIDER_BUSY),
        (vim.fault.InvalidPowerState(), Transient, R.PROVIDER_BUSY),
        (vmodl.fault.ManagedObjectNotFound(), Transient, R.PROVIDER_BUSY),
        (vim.fault.InsufficientMemoryResourcesFault(), Refused, R.INSUFFICIENT_CAPACITY),
        (vim.fault.InsufficientFailoverResourcesFault(), Refused, R.INSUFFICIENT_CAPACITY),
        (vim.fault.NoActiveHostInCluster(), Refused, R.INSUFFICIENT_CAPACITY),
        (vim.fault.NoCompatibleHost(), Refused, R.INSUFFICIENT_CAPACITY),
        (vim.fault.RuleViolation(), Refused, R.INSUFFICIENT_CAPACITY),
        (vim.fault.NoDiskSpace(), Refused, R.INSUFFICIENT_STORAGE),
        (vim.fault.InsufficientStorageSpace(), Refused, R.INSUFFICIENT_STORAGE),
        (vim.fault.InaccessibleDatastore(), Refused, R.INSUFFICIENT_STORAGE),
        (vim.fault.DatastoreNotWritableOnHost(), Refused, R.STORAGE_CLASS_NOT_AVAILABLE),
        (vim.fault.CannotAccessNetwork(), Refused, R.NETWORK_NOT_AVAILABLE),
        (vmodl.fault.NotEnoughLicenses(), Refused, R.QUOTA_EXCEEDED),
        (vim.fault.LimitExceeded(), Refused, R.QUOTA_EXCEEDED),
        (vim.fault.FileNotFound(), NeedsOperator, R.IMAGE_NOT_AVAILABLE),
        (vim.fault.DuplicateName(), NeedsOperator, R.OWNERSHIP_CONFLICT),
        (vim.fault.MemoryHotPlugNotSupported(), NeedsOperator, R.RESTART_REQUIRED),
        (vim.fault.ToolsUnavailable(), Transient, R.GUEST_AGENT_NOT_READY),
        (vmodl.fault.MethodNotFound(), NeedsOperator, R.PROVIDER_VERSION_UNSUPPORTED),
        (vmodl.fault.NotSupported(), InvalidSpec, R.UNSUPPORTED_BY_PROVIDER),
        (vmodl.fault.InvalidArgument(), InvalidSpec, R.INVALID_CONFIGURATION),
        (vim.fault.InvalidDeviceSpec(), InvalidSpec, R.INVALID_CONFIGURATION),
        (vim.fault.NicSettingMismatch(), InvalidSpec, R.INVALID_CONFIGURATION),
        (vim.fault.InvalidFolder(), InvalidSpec, R.INVALID_CONFIGURATION),
        (vim.fault.Timedout(), Transient, R.PROVISIONING_FAILED),
        (vmodl.fault.SystemError(), Transient, R.PROVISIONING_FAILED),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_a_fault_is_told_in_uniform_words(
    fault: Exception, kind: type[DriverError], reason: Reason
) -> None:
    error = driver_error(fault, R.PROVISIONING_FAILED, nothing_made=True)
    assert type(error) is kind
    assert error.reason is reason


def test_a_want_of_capacity_sends_nobody_elsewhere_when_something_may_have_been_made() -> None:
    error = driver_error(vim.fault.InsufficientCpuResourcesFault())
    assert type(error) is NeedsOperator
    assert error.reason is R.INSUFFICIENT_CAPACITY


def test_the_first_definite_fault_decides() -> None:
    caused = vim.fault.HostPowerOpFailed(faultCause=vim.fault.NoDiskSpace())
    assert driver_error(caused).reason is R.INSUFFICIENT_STORAGE
    listed = vim.fault.NoCompatibleHost(error=[vim.fault.CannotAccessNetwork()])
    assert driver_error(listed).reason is R.NETWORK_NOT_AVAILABLE
    deep = vmodl.fault.SystemError(faultCause=listed)
    assert driver_error(deep).reason is R.NETWORK_NOT_AVAILABLE
    unhelpful = vim.fault.NoCompatibleHost(error=[vmodl.fault.SystemError()])
    assert driver_error(unhelpful).reason is R.INSUFFICIENT_CAPACITY


def test_the_text_of_a_fault_decides_nothing_and_stays_native() -> None:
    text = "Permission denied: invalid login, out of memory"
    fault = vmodl.fault.SystemError(msg=text)
    error = driver_error(fault, R.UPDATE_FAILED)
    assert error.reason is R.UPDATE_FAILED
    assert error.native is not None
    assert (error.native.code, error.native.message) == ("SystemError", text)
    assert "Permission" not in error.message


def test_a_missing_privilege_is_named_with_its_object() -> None:
    fault = vim.fault.NoPermission(
        privilegeId="Network.Assign", object=vim.Network("network-7", None)
    )
    message = driver_error(fault).message
    assert "Network.Assign" in message
    assert "Network network-7" in message


@pytest.mark.parametrize(
    "failure",
    [
        ConnectionRefusedError(),
        TimeoutError(),
        RemoteDisconnected("closed"),
        StaleConnection(),
        ssl.SSLEOFError(),
        HttpStatus(503, "Service Unavailable"),
    ],
)
def test_no_answer_is_unreachable(failure: Exception) -> None:
    assert type(driver_error(failure)) is Unreachable


def test_certificates_are_told_apart_from_silence() -> None:
    expired = ssl.SSLCertVerificationError()
    expired.verify_message = "certificate has expired"
    for failure in (expired, Untrusted("AB:CD")):
        error = driver_error(failure)
        assert type(error) is NeedsOperator
        assert error.reason is R.PROVIDER_TLS_INVALID
    assert "has expired" in driver_error(expired).message
    assert "AB:CD" in driver_error(Untrusted("AB:CD")).message


def test_an_answer_nobody_can_read_is_tried_again() -> None:
    error = driver_error(Unreadable("reply"), R.UPDATE_FAILED)
    assert type(error) is Transient
    assert error.reason is R.UPDATE_FAILED


def test_uniform_errors_pass_unchanged() -> None:
    original = InvalidSpec(R.VALUE_NOT_ALLOWED, "no")
    with pytest.raises(InvalidSpec) as raised, translated(R.UPDATE_FAILED):
        raise original
    assert raised.value is original
