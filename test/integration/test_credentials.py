"""Wrong credentials and certificates are told and harm nobody; no secret is ever shown."""

from typing import Final

import pytest

from test.kit.audit import AuditEntry
from test.kit.costs import wait_out
from test.kit.installed import Registered
from test.kit.running import Running
from test.kit.stack import Object, Role, condition
from test.kit.taps import Meter
from test.kit.targets import REAL
from test.kit.vsphere_target import VSphereTarget
from test.kit.watched import Watched

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("backend_kind", REAL, indirect=True)]

WRONG: Final = "planted-wrong-4714-password"
WORD: Final = "planted-4713-word-of-the-user"
USER_DATA: Final = f"#cloud-config\nchpasswd: {{expire: false, list: 'root:{WORD}'}}\n"
VMS: Final = ("db-0", "db-1", "db-2")
STORM_SECONDS: Final = 20.0
TELLING: Final = ("vm", "prov", "vmi", "vmc", "provc")


@pytest.mark.security("6.3")
def test_a_wrong_password_is_told_and_put_right_and_nothing_secret_is_shown(
    watched_install: Watched,
) -> None:
    registered = watched_install.registered
    provider = _at_work_with_user_data(watched_install)
    provider.stop()
    registered.apply_credentials(WRONG)
    before = {name: _facts(registered, name) for name in VMS}
    meter = Meter(registered.target)
    provider.start()
    found = _provider_with(registered, "ProviderAuthFailed")
    assert condition(found, "CredentialsValid") == ("False", "ProviderAuthFailed")
    assert condition(found, "ProviderReachable") == ("True", "Reconciled")
    assert "password" in _message(found, "Ready") or "credentials" in _message(found, "Ready")
    registered.create("late")
    registered.wait("late", lambda vm: condition(vm, "Ready")[0] == "False", 30, "told to wait")
    wait_out(registered, STORM_SECONDS)
    assert meter.calls()[meter.words.login] == 1, "a login that was refused is not repeated"
    assert {name: _facts(registered, name) for name in before} == before
    shown = _told(registered)

    process = provider.process.pid
    registered.apply_credentials()
    registered.provider_ready()
    registered.ready("late")
    assert meter.calls()[meter.words.login] == 2

    # A mistake while it runs: the session that is open goes on, and no other is needed then.
    _rewrite(registered, WRONG, cordoned=True)
    _provider_with(registered, "ProviderAuthFailed")
    _switch_off(registered, "late")
    _rewrite(registered, None, cordoned=False)
    registered.provider_ready()
    assert provider.process.pid == process
    assert meter.calls()[meter.words.login] == 3

    scan = watched_install.scan()
    scan.look("kubectl while the password was wrong", shown)
    scan.look("kubectl", _told(registered))
    assert scan.report() == ""


def test_a_certificate_nobody_vouched_for_is_told_and_a_pin_for_it_found_without_restart(
    running: Running,
) -> None:
    registered, target = running.registered, running.registered.target
    assert isinstance(target, VSphereTarget), "the only backend with certificates so far"
    known = running.made("db")
    facts, meter = _facts(registered, "db"), Meter(target)
    other = target.proxy.issue()
    target.proxy.use_certificate(other)
    found = _provider_with(registered, "ProviderTLSInvalid")
    assert condition(found, "ProviderReachable") == ("False", "ProviderTLSInvalid")
    assert other.thumbprint in _message(found, "Ready"), "so that it can be compared and pinned"
    assert _facts(registered, "db") == facts
    assert meter.calls()[meter.words.login] == 0, "no password goes to a stranger"

    processes = [role.process.pid for role in registered.stack.roles]
    registered.kube.apply(registered.provider_object(thumbprints=[other.thumbprint]))
    registered.provider_ready()
    running.same(known)
    assert [role.process.pid for role in registered.stack.roles] == processes


def _at_work_with_user_data(watched_install: Watched) -> Role:
    """Roles that log all they can, and three VMs with a secret in their user data."""
    registered, stack = watched_install.registered, watched_install.stack
    watched_install.planted += [WRONG, WORD]
    stack.controller("--log-level", "debug").start()
    provider = stack.provider(registered.target.backend.name, "--log-level", "debug").start()
    registered.provider_ready()
    since = stack.control_plane.audit_position()
    _grant_user_data(registered)
    for name in VMS:
        registered.create(name, userData={"secretRef": {"name": "first-boot"}})
    for name in VMS:
        registered.ready(name)
    assert len(_reads_of(registered, "first-boot", since)) >= len(VMS), "nobody read it"
    return provider


def _rewrite(registered: Registered, password: str | None, *, cordoned: bool) -> None:
    """Store a password (None: the right one), and have it read now by an edit of the Provider."""
    registered.apply_credentials(password)
    patch = {"spec": {"cordoned": cordoned}}
    registered.kube.patch("providers", registered.provider, patch, registered.stack.namespace)


def _switch_off(registered: Registered, name: str) -> None:
    patch = {"spec": {"desiredPowerState": "PoweredOff"}}
    registered.kube.patch("virtualmachines", name, patch, registered.namespace)
    registered.wait(name, lambda vm: vm["status"]["phase"] == "Stopped", 30, "off")


def _facts(registered: Registered, name: str) -> dict[str, object]:
    """What is known about a VM, whoever may log in."""
    status = (registered.find(name) or {})["status"]
    parts = ("addresses", "observedPowerState", "initialization", "host", "providerID", "resources")
    return {part: status[part] for part in parts}


def _grant_user_data(registered: Registered) -> None:
    """A Secret of the tenant and the right to read it, as an admin gives it."""
    kube, namespace = registered.kube, registered.namespace
    meta = {"namespace": namespace, "name": "first-boot"}
    data = {"value": USER_DATA, "user-data": USER_DATA}
    kube.apply({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": data})
    rbac = "rbac.authorization.k8s.io"
    rule = {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["first-boot"]}
    kube.apply(
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "Role",
            "metadata": meta,
            "rules": [{**rule, "verbs": ["get"]}],
        }
    )
    account = {
        "kind": "ServiceAccount",
        "name": f"banlieue-provider-{registered.target.backend.name}",
        "namespace": registered.stack.namespace,
    }
    kube.apply(
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": meta,
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "first-boot"},
            "subjects": [account],
        }
    )


def _reads_of(registered: Registered, secret: str, since: int) -> list[AuditEntry]:
    reads = registered.stack.control_plane.audit_reads(since)
    return [it for it in reads if (it.resource, it.name, it.code) == ("secrets", secret, 200)]


def _provider_with(registered: Registered, reason: str) -> Object:
    return registered.kube.wait_for(
        "providers",
        registered.provider,
        registered.stack.namespace,
        until=lambda obj: condition(obj, "Ready") == ("False", reason),
        timeout=30,
        what=reason,
    )


def _message(obj: Object, kind: str) -> str:
    found = [it["message"] for it in obj["status"]["conditions"] if it["type"] == kind]
    return str(found[0])


def _told(registered: Registered) -> str:
    """Everything kubectl has to tell about our kinds, and all Events."""
    kubectl = registered.stack.control_plane.kubectl
    kinds = ",".join((*TELLING, registered.plural))
    return "\n".join(
        (
            kubectl("describe", kinds, "--all-namespaces"),
            kubectl("get", kinds, "--all-namespaces", "-o", "yaml", "--show-managed-fields"),
            kubectl("get", "events", "--all-namespaces", "-o", "yaml"),
        )
    )
