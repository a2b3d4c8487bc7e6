"""The first day: a VM comes, stops, restarts and goes, and says why when it cannot come."""

from base64 import b64encode
from datetime import UTC, datetime, timedelta

import pytest

from banlieue.api.meta import format_time
from banlieue.api.names import TOPOLOGY_HOST
from banlieue.sdk.testing.conformance_target import USER_DATA
from test.kit.mirror import Mirror, checksum
from test.kit.running import VMS
from test.kit.stack import Object, condition
from test.kit.story import Story
from test.kit.targets import VSPHERE
from test.kit.vsphere_rest import VSphereRest, rules_of
from test.kit.vsphere_target import VSphereTarget
from test.kit.waiting import wait_until

pytestmark = pytest.mark.slow

HELLO = """
    apiVersion: banlieue.io/v1alpha1
    kind: VirtualMachine
    metadata: {name: hello, namespace: team-a}
    spec:
      classRef: {name: small}
      imageRef: {name: ubuntu}
      sshAuthorizedKeys: [ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIExample somebody@example.org]
"""


def test_somebody_applies_a_vm_and_it_runs(story: Story) -> None:
    """Story 1: hello."""
    story.given(HELLO)

    story.ready("hello")
    status = story.status("hello")
    assert status["phase"] == "Running"
    assert any(it["type"] == "InternalIP" for it in status["addresses"])
    assert status["guest"]["agentConnected"]
    assert status["observedPowerState"] == "PoweredOn"
    assert status["providerID"].endswith(story.backend_vm("hello").uuid)
    story.hears("hello", "Scheduled", "Provisioned")


def test_a_deleted_vm_is_gone_and_nothing_else_changed(story: Story) -> None:
    """Story 2: delete."""
    story.vm("stays")
    story.ready("stays")
    before = [vm.fingerprint for vm in story.backend_vms()]
    story.vm("goes", disks=[{"name": "data", "sizeGiB": 1, "storageClass": "standard"}])
    story.ready("goes")
    uid = story.backend_vm("goes").id

    story.registered.delete("goes")

    assert uid not in {vm.id for vm in story.backend_vms()}
    assert [vm.fingerprint for vm in story.backend_vms()] == before


def test_a_vm_that_fits_nowhere_says_why_and_comes_once_it_fits(story: Story) -> None:
    """Story 3: why is it stuck."""
    story.given("""
        apiVersion: banlieue.io/v1alpha1
        kind: VMClass
        metadata: {name: golden}
        spec:
          hardware:
            cpus: 1
            memoryMiB: 512
            disks: [{name: root, storageClass: gold}]
          network: {interfaces: [{name: eth0, networkClass: lan}]}
    """)
    story.vm("stuck", classRef={"name": "golden"})

    message = story.condition("stuck", "Scheduled", "False", "StorageClassNotAvailable")
    assert "gold" in message
    assert story.registered.provider in message
    assert story.status("stuck")["phase"] == "Pending"

    classes = story.provider()["spec"]["capabilities"]
    gold = {**classes["storageClasses"][0], "name": "gold"}
    storage = [*classes["storageClasses"], gold]
    story.edit_provider(capabilities={**classes, "storageClasses": storage})
    story.ready("stuck")
    story.edit_provider(capabilities=classes)
    story.condition("stuck", "PlacementValid", "False", "StorageClassNotAvailable")


def test_a_vm_is_stopped_started_and_restarted_once(story: Story) -> None:
    """Story 4: stop, start, restart."""
    story.vm("web", powerOffMode="Soft")
    story.ready("web")

    story.edit("web", desiredPowerState="PoweredOff")
    story.sees("web", lambda vm: vm["status"]["phase"] == "Stopped")
    story.ready("web")
    story.edit("web", desiredPowerState="PoweredOn")
    story.sees("web", lambda vm: vm["status"]["phase"] == "Running")
    story.ready("web")
    story.hears("web", "PoweredOff", "PoweredOn")

    soon = format_time(datetime.now(UTC) + timedelta(seconds=3))
    before = story.backend_vm("web").uuid
    story.edit("web", restartAt=soon)
    story.sees("web", lambda vm: vm["status"].get("lastRestartTime") == soon, told="restarted")
    story.hears("web", "Restarted")
    story.ready("web")
    for _ in range(3):
        story.running.poke("web")
    story.running.provider.kill9()
    story.running.provider.start()
    story.registered.provider_ready()
    story.running.poke("web")
    assert story.events("web").count("Restarted") == 1
    assert story.backend_vm("web").uuid == before


def test_a_guest_that_does_not_listen_is_stopped_as_its_power_off_mode_says(story: Story) -> None:
    """Story 4: a guest that ignores the wish to stop."""
    story.vm("deaf", powerOffMode="Soft", powerOffTimeoutSeconds=5)
    story.ready("deaf")
    vm = story.backend_vm("deaf")
    story.admin.make_deaf(vm.name, vm.id)

    story.edit("deaf", desiredPowerState="PoweredOff")
    story.condition("deaf", "PowerStateSynced", "False", "ShutdownTimedOut")
    assert story.status("deaf")["observedPowerState"] == "PoweredOn"
    story.edit("deaf", powerOffMode="TrySoft")
    story.sees("deaf", lambda vm: vm["status"]["phase"] == "Stopped")
    story.edit("deaf", powerOffMode="Hard", desiredPowerState="PoweredOn")
    story.sees("deaf", lambda vm: vm["status"]["phase"] in {"Running", "Updating"})

    boots = story.admin.boots(vm.id)
    soon = format_time(datetime.now(UTC) + timedelta(seconds=2))
    story.edit("deaf", restartAt=soon)
    story.sees("deaf", lambda vm: vm["status"].get("lastRestartTime") == soon, told="restarted")
    wait_until(lambda: story.admin.boots(vm.id) != boots, 10, "a reset")


def test_an_image_is_imported_verified_and_deleted_when_unused(story: Story) -> None:
    """Story 10: image import."""
    content, backend = story.registered.target.image_content(), story.registered.target.backend.name
    with Mirror({"fresh.img": content}) as mirror:
        other = checksum(b"another content")
        story.given(_image("fresh", backend, mirror.url("fresh.img"), other))
        story.vm("waits", imageRef={"name": "fresh"})
        message = story.condition("waits", "Scheduled", "False", "ImageNotReady")
        assert "fresh" in message
        refused = story.image("fresh", lambda row: row["reason"] == "ImageChecksumMismatch")
        assert checksum(content) in refused["message"]

        mirror.hold(after=len(content) // 2)
        story.given(_image("fresh", backend, mirror.url("fresh.img"), checksum(content)))
        story.image("fresh", lambda row: row.get("progressPercent", 0) > 0)
        shown = story.kube.wait_for(
            "vmimages", "fresh", until=lambda obj: "progress" in obj["status"], what="summed up"
        )["status"]
        assert (shown["readyProviders"], shown["progress"][-1]) == ("0/1", "%")
        mirror.release()
        story.image("fresh", lambda row: row["ready"])
        story.ready("waits")

    story.kube.delete("vmimages", "fresh")
    wait_until(lambda: _why_it_stays(story, "fresh") == "ImageInUse", 30, "who uses the image")
    story.registered.delete("waits")
    wait_until(lambda: story.kube.find("vmimages", "fresh") is None, 60, "the image to go")


def _image(name: str, backend: str, url: str, digest: str) -> str:
    return f"""
        apiVersion: banlieue.io/v1alpha1
        kind: VMImage
        metadata: {{name: {name}}}
        spec:
          agent: present
          sources:
          - {{providerClass: {backend}, kind: Url, ref: "{url}", checksum: "{digest}"}}
    """


def _why_it_stays(story: Story, name: str) -> str:
    return condition(story.kube.get("vmimages", name), "Deleting")[1]


@pytest.mark.parametrize("stage", [VSPHERE], indirect=True, scope="module")
def test_labels_become_tags_and_machines_are_kept_apart(story: Story) -> None:
    """What stands beside a VM follows its VirtualMachine, and holds nothing up."""
    target = story.registered.target
    assert isinstance(target, VSphereTarget)
    rest = VSphereRest(target.vcenter)
    apart = {
        "antiAffinity": [
            {
                "topologyKey": TOPOLOGY_HOST,
                "labelSelector": {"matchLabels": {"app": "etcd"}},
                "mode": "required",
            }
        ]
    }
    mapping = [{"label": "example.org/team", "tag": "Team"}]
    story.edit_provider(tagMapping=mapping, settings={"createTags": "true"})
    names = ("etcd-0", "etcd-1")
    for name in names:
        _labelled(story, name, {"app": "etcd", "example.org/team": "blue"}, placement=apart)
    story.ready(*names)
    vms = [story.backend_vm(name).id for name in names]
    wait_until(lambda: all(rest.tags_on(vm) == {("Team", "blue")} for vm in vms), 30, "the tags")
    wait_until(lambda: set(vms) in rules_of(target.vcenter), 30, "the rule")

    red = {"metadata": {"labels": {"example.org/team": "red"}}}
    story.kube.patch(VMS, "etcd-0", red, story.team)
    wait_until(lambda: rest.tags_on(vms[0]) == {("Team", "red")}, 30, "the other tag")

    story.edit_provider(settings=None)
    wait_until(lambda: _is_followed(story.provider()), 60, "the Provider's edit to be followed")
    _labelled(story, "plain", {"example.org/team": "nobody-made-it"})
    story.ready("plain")
    message = story.condition("plain", "UpToDate", "False", "InvalidConfiguration")
    assert "createTags" in message
    story.edit_provider(tagMapping=None)


def _is_followed(obj: Object) -> bool:
    return bool(obj["status"]["observedGeneration"] == obj["metadata"]["generation"])


def _labelled(story: Story, name: str, labels: dict[str, str], **spec: object) -> None:
    story.kube.apply(
        {
            "apiVersion": "banlieue.io/v1alpha1",
            "kind": "VirtualMachine",
            "metadata": {"namespace": story.team, "name": name, "labels": labels},
            "spec": {"classRef": {"name": "small"}, "imageRef": {"name": "ubuntu"}, **spec},
        }
    )


def test_user_data_is_gone_from_the_backend_once_the_guest_has_had_it(story: Story) -> None:
    """The guest tells when its first boot is over; then nobody reads its secrets any more."""
    registered = story.registered
    story.given(f"""
        apiVersion: v1
        kind: Secret
        metadata: {{name: first-boot, namespace: {story.team}}}
        data: {{user-data: {b64encode(USER_DATA.encode()).decode()}}}
        ---
        apiVersion: rbac.authorization.k8s.io/v1
        kind: Role
        metadata: {{name: first-boot, namespace: {story.team}}}
        rules:
        - {{apiGroups: [""], resources: [secrets], resourceNames: [first-boot], verbs: [get]}}
        ---
        apiVersion: rbac.authorization.k8s.io/v1
        kind: RoleBinding
        metadata: {{name: first-boot, namespace: {story.team}}}
        roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: first-boot}}
        subjects:
        - kind: ServiceAccount
          name: banlieue-provider-{registered.target.backend.name}
          namespace: {registered.stack.namespace}
    """)
    story.vm(
        "seeded",
        userData={"secretRef": {"name": "first-boot"}},
        readinessGates=["AddressesAvailable", "GuestBootstrapped"],
    )

    story.ready("seeded")
    story.condition("seeded", "GuestBootstrapped", "True", "GuestBootstrapped")
    story.kube.wait_for(
        registered.plural,
        "seeded",
        story.team,
        until=lambda obj: condition(obj, "SeedRedacted") == ("True", "SeedRedacted"),
        timeout=30,
        what="its user data is gone",
    )
    left = registered.target.first_boot_data(story.backend_vm("seeded").id)
    assert USER_DATA.encode() not in left
    addresses = story.status("seeded")["addresses"]
    story.edit("seeded", desiredPowerState="PoweredOff", powerOffMode="Hard")
    story.sees("seeded", lambda vm: vm["status"]["phase"] == "Stopped", told="it is off")
    story.edit("seeded", desiredPowerState="PoweredOn")
    story.sees("seeded", lambda vm: vm["status"].get("addresses") == addresses, told="the same")
    story.ready("seeded")
