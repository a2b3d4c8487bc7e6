"""The words of conditions and events are valid, distinct, and have a meaning."""

from __future__ import annotations

import re

import pytest

from banlieue.api.conditions import ConditionType, Phase
from banlieue.api.events import EventReason
from banlieue.api.reasons import Reason
from banlieue.api.wording import ReasonClass

REASON = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")

UNIFORM = [
    "ProviderUnreachable",
    "ProviderAuthFailed",
    "ProviderPermissionDenied",
    "ProviderTLSInvalid",
    "ProviderBusy",
    "InsufficientCapacity",
    "InsufficientStorage",
    "QuotaExceeded",
    "ImageNotAvailable",
    "ImageImportFailed",
    "ImageChecksumMismatch",
    "NetworkNotAvailable",
    "StorageClassNotAvailable",
    "AddressPending",
    "AddressPoolExhausted",
    "GuestAgentNotReady",
    "GuestBootstrapFailed",
    "ShutdownTimedOut",
    "RestartRequired",
    "UnsupportedByProvider",
    "InvalidConfiguration",
    "OwnershipConflict",
    "VMMissing",
    "VMPaused",
    "ProvisioningFailed",
    "NoProviderMatched",
    "NoFailureDomainMatched",
    "ImageNotReady",
    "FirmwareUnsupported",
    "AntiAffinityUnsatisfied",
    "ProviderNotAllowed",
    "ClassNotFound",
    "ImageNotFound",
    "UserDataNotFound",
    "ProviderClassMismatch",
    "CapabilityInvalid",
    "RecoveryPending",
    "MovedByBackend",
    "DataDisksAtRisk",
    "BlockedByLinkedClone",
    "BlockedBySnapshot",
    "BackupInProgress",
    "WaitingForClusterInfrastructureReady",
    "WaitingForBootstrapData",
    "FailureDomainNotFound",
    "TooManyFailureDomains",
    "InstallationUnconfirmed",
    "NotReferenced",
    "AbsenceUnproven",
    "BackendIdentityChanged",
    "TeardownUndecided",
    "ForeignDiskAttached",
    "RebindPending",
    "WaitingForGrant",
    "UserDataTooLarge",
    "UserDataNotGranted",
]
"""Reasons users were promised; tools match them."""


def test_promised_reasons_exist() -> None:
    assert set(UNIFORM) - {reason.value for reason in Reason} == set()


@pytest.mark.parametrize("words", [Reason, ConditionType, EventReason], ids=lambda it: it.__name__)
def test_every_word_is_valid_and_explained(
    words: type[Reason | ConditionType | EventReason],
) -> None:
    for word in words:
        assert REASON.fullmatch(word), word
        assert word.meaning.endswith("."), word
        assert word.name.replace("_", "").lower() == word.value.lower()


def test_every_reason_says_what_follows_from_it() -> None:
    assert Reason.PROVIDER_UNREACHABLE.kind is ReasonClass.TRANSIENT
    assert Reason.PROVIDER_AUTH_FAILED.kind is ReasonClass.WAIT
    assert Reason.INVALID_CONFIGURATION.kind is ReasonClass.SPEC
    assert Reason.VM_MISSING.kind is ReasonClass.CONFLICT
    assert {reason.kind for reason in Reason} == set(ReasonClass)


def test_words_are_plain_strings_to_json() -> None:
    assert f"{Reason.VM_MISSING}" == "VMMissing"
    assert str(ConditionType.READY) == "Ready"


def test_phases_are_those_users_filter_by() -> None:
    assert [phase.value for phase in Phase] == [
        "Pending",
        "Provisioning",
        "Running",
        "Stopped",
        "Suspended",
        "Updating",
        "Migrating",
        "Failed",
        "Deleting",
        "Unknown",
    ]
