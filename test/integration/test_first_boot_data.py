"""What a guest on vSphere reads at its first boot, as cloud-init itself has it, and afterwards.

Needs Debian's package cloud-init: `apt-get install -y --no-install-recommends cloud-init`.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretBytes
from pyVmomi import vim

from banlieue.api.reasons import Reason
from banlieue.api.types import PowerOffMode, PowerState
from banlieue.providers.vsphere.vms import firstboot, guestinfo
from banlieue.sdk.driver import AddressPlan, Bootstrap, MachineState, NicPlan
from banlieue.sdk.errors import Foreign, InvalidSpec, Transient
from banlieue.sdk.powers import SeedRedactor
from banlieue.sdk.seed import telling
from banlieue.sdk.testing.conformance_target import AnyPlan, Bench, seen
from test.kit import cloudinit, guestdata, ignitionspec
from test.kit.soaprules import drop_reply
from test.kit.vsphere_client import VSphereClient
from test.kit.vsphere_places import UUID, plan
from test.kit.vsphere_target import VSphereTarget, vsphere_target
from test.kit.waiting import wait_until

pytestmark = pytest.mark.slow

WORD = "planted-4720-word-of-the-user"
USER_DATA = f"#cloud-config\nchpasswd:\n  expire: false\n  users: [{{name: a, password: {WORD}}}]\n"
KEYS = ("ssh-ed25519 AAAA a", "ssh-ed25519 BBBB b")
MULTIPART = """\
Content-Type: multipart/mixed; boundary=X
MIME-Version: 1.0

--X
Content-Type: text/cloud-config

#cloud-config
packages: [vim]
--X
Content-Type: text/x-shellscript

#!/bin/sh
--X--
"""
NICS = (
    NicPlan(
        "eth0",
        {},
        addresses=(
            AddressPlan("IPv4", "static", "10.0.0.7", 24, "10.0.0.1"),
            AddressPlan("IPv6", "slaac"),
        ),
        nameservers=("10.0.0.2",),
        search_domains=("example.com",),
        mtu=9000,
    ),
    NicPlan("lan1", {}, addresses=(AddressPlan("IPv4", "none"), AddressPlan("IPv6", "none"))),
    NicPlan(
        "lan2",
        {},
        addresses=(
            AddressPlan("IPv6", "static", "fd00::7", 64, "fd00::1"),
            AddressPlan("IPv4", "static", "10.1.0.7", 24, "10.1.0.1"),
        ),
    ),
    NicPlan("lan3", {}, addresses=(AddressPlan("IPv4", "dhcp"), AddressPlan("IPv6", "dhcp"))),
)


def seed(**more: Any) -> Bootstrap:  # noqa: ANN401 - fields of a Bootstrap
    return Bootstrap(**{"user_data": SecretBytes(USER_DATA.encode()), **more})


HOST_KEY = "ssh/ssh_host_ed25519_key.pub"
OWN_NETWORK = (
    "version: 2\nethernets: {ens192: {dhcp4: true}}\n",
    "network:\n  version: 2\n  ethernets: {ens192: {dhcp4: true}}\n",
    '{"network": {"version": 2, "ethernets": {"ens192": {"dhcp4": true}}}}',
)
ANY_KIND: dict[str, list[str]] = {
    "#!/bin/sh\necho hello\n": ["text/x-shellscript"],
    "## template: jinja\n#cloud-config\nhostname: {{ v1.instance_id }}\n": ["text/jinja2"],
    MULTIPART: ["text/cloud-config", "text/x-shellscript"],
}
WRONG = "#cloud-config\npackages: {vim: 1}\n"


def keys_of(bootstrap: Bootstrap) -> dict[str, str]:
    return guestinfo.extra_config(replace(plan(), nics=NICS, bootstrap=bootstrap))


# As cloud-init reads it


@pytest.fixture(scope="module")
def readings() -> dict[str, cloudinit.Reading]:
    """What cloud-init makes of each, asked once for all, as its start takes the time."""
    cases = {
        "whole": seed(ssh_authorized_keys=KEYS),
        **{text: seed(network_data=SecretBytes(text.encode())) for text in OWN_NETWORK},
        **{data: seed(user_data=SecretBytes(data.encode())) for data in (*ANY_KIND, WRONG)},
    }
    found = cloudinit.read(*map(keys_of, cases.values()))
    return dict(zip(cases, found, strict=True))


@pytest.mark.identity("11.1")
def test_cloud_init_finds_everything_where_it_looks(readings: dict[str, cloudinit.Reading]) -> None:
    found = readings["whole"]
    assert (found.instance_id, found.hostname, found.keys) == (UUID, "web", KEYS)
    assert found.user_data == (cloudinit.Part("text/cloud-config", USER_DATA),)
    (vendor,) = found.vendor_data
    assert vendor.type == "text/x-shellscript", "nothing of the user's data takes its place"
    assert found.complaints == ()
    assert found.template == f"vsphere://{UUID} {UUID}", "as kubeadm's configuration has it"


def test_the_network_is_rendered_for_every_distribution(
    readings: dict[str, cloudinit.Reading],
) -> None:
    files = readings["whole"].files
    assert files is not None
    netplan = files["netplan"]["etc/netplan/50-cloud-init.yaml"]
    assert netplan.count("macaddress: ") == netplan.count("set-name: ") == len(NICS)
    eni = "".join(files["eni"].values())
    for line in (
        "address 10.0.0.7/24",
        "mtu 9000",
        "dns-nameservers 10.0.0.2",
        "iface lan1 inet manual",
        "address fd00::7/64",
        "gateway fd00::1",
        "iface lan3 inet dhcp",
        "iface lan3 inet6 dhcp",
    ):
        assert line in eni, line
    assert "Gateway=fd00::1" in "".join(files["networkd"].values())
    redhat = files["sysconfig"]["etc/sysconfig/network-scripts/ifcfg-lan2"]
    assert "IPV6_DEFAULTGW=fd00::1" in redhat
    assert "GATEWAY=10.1.0.1" in redhat
    everything = "".join(text for found in files.values() for text in found.values())
    assert "::/64" not in everything, "a default route is for all"


@pytest.mark.parametrize("text", OWN_NETWORK)
def test_network_data_of_the_user_takes_the_place_of_ours(
    readings: dict[str, cloudinit.Reading], text: str
) -> None:
    found = readings[text]
    assert found.network == {"version": 2, "ethernets": {"ens192": {"dhcp4": True}}}
    assert found.instance_id == UUID


@pytest.mark.parametrize("data", ANY_KIND)
def test_user_data_of_any_kind_arrives_as_it_is(
    readings: dict[str, cloudinit.Reading], data: str
) -> None:
    assert [part.type for part in readings[data].user_data] == ANY_KIND[data]
    assert readings[data].complaints == ()


def test_cloud_inits_schema_complains_where_it_should(
    readings: dict[str, cloudinit.Reading],
) -> None:
    assert readings[WRONG].complaints, "else nothing was validated"


# The program by which a guest tells


@pytest.fixture
def guest(tmp_path: Path) -> Path:
    """Folders of a guest after cloud-init's vendor data was written, with programs that tell."""
    programs, vendor = tmp_path / "bin", tmp_path / "cloud/instances/i-1/scripts/vendor"
    for folder in (programs, vendor, tmp_path / "cloud/data"):
        folder.mkdir(parents=True)
    executable(programs / "vmware-rpctool", f'echo "$1" >>{tmp_path}/told\n')
    script = vendor / "part-001"
    executable(script, telling.for_cloud_init(UUID, firstboot.EAR))
    return tmp_path


def executable(path: Path, text: str) -> None:
    # What an earlier boot left running may be at the old one, which cannot be written to then.
    new = path.with_name(f".{path.name}")
    new.write_text(text if text.startswith("#!") else f"#!/bin/sh\n{text}")
    new.chmod(0o755)
    new.replace(path)


def boot(guest: Path, status: str, *, vendor: bool = False) -> None:
    """Run what cloud-init's final stage runs, in its order."""
    executable(guest / "bin/cloud-init", f"printf '....\\nstatus: {status}\\n'\n")
    environment = {"PATH": f"{guest / 'bin'}:{os.environ['PATH']}"}
    folders = ["cloud/instances/i-1/scripts/vendor"] if vendor else []
    for folder in (*folders, "cloud/scripts/per-boot"):
        for program in sorted((guest / folder).iterdir()):
            subprocess.run([program], env=environment, check=True, timeout=60)


def told(guest: Path) -> list[str]:
    log = guest / "told"
    return log.read_text().splitlines() if log.exists() else []


def test_a_guest_tells_at_the_end_of_its_first_boot_and_at_every_later_one(guest: Path) -> None:
    word = f"info-set guestinfo.banlieue.bootstrap {UUID}:done"
    boot(guest, "done", vendor=True)
    wait_until(lambda: told(guest) == [word], 10, "the guest's word")
    boot(guest, "error")
    assert told(guest) == [word, word], "what comes later is no first boot"


def test_a_first_boot_that_fails_or_is_interrupted_is_told_when_it_is_over(guest: Path) -> None:
    boot(guest, "running", vendor=True)
    boot(guest, "error")
    failed = f"info-set guestinfo.banlieue.bootstrap {UUID}:error"
    # The interrupted boot may still be waiting for its end, and then tells the same.
    wait_until(lambda: set(told(guest)) == {failed}, 10, "the guest's word")
    boot(guest, "done")
    done = failed.replace(":error", ":done")
    wait_until(lambda: done in told(guest), 10, "the guest's word")


def test_the_program_does_nothing_where_nobody_listens(guest: Path) -> None:
    (guest / "bin/vmware-rpctool").unlink()
    boot(guest, "done", vendor=True)
    boot(guest, "done")
    assert told(guest) == []


# On a vCenter


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VSphereTarget]:
    with vsphere_target(tmp_path_factory.mktemp("vcsim")) as made:
        yield made


@pytest.fixture
def bench(target: VSphereTarget) -> Iterator[Bench]:
    target.proxy.clear()
    target.vcenter.clear_delays()
    target.vcenter.guest(bootstrap="done", bootstrap_delay=0)
    with target.backend.connect(target.connection()) as driver:
        yield Bench(target, driver)


def options(bench: Bench, made: AnyPlan) -> dict[str, str]:
    assert isinstance(bench.target, VSphereTarget)
    return dict(bench.target.vcenter.vm(made.ref.name).extra_config)


def first(bench: Bench, made: AnyPlan) -> Any:  # noqa: ANN401 - a FirstBoot
    assert isinstance(bench.target, VSphereTarget)
    return bench.target.vcenter.vm(made.ref.name).first_boot


def redactor(bench: Bench) -> SeedRedactor:
    assert isinstance(bench.driver, SeedRedactor)
    return bench.driver


def ready(bench: Bench, made: AnyPlan) -> MachineState:
    """The VM when its guest has told all it has to tell."""
    bench.ensure(made)

    def told() -> bool:
        state = bench.state(made)
        return state.seed is not None and state.seed.done is not None and bool(state.addresses)

    bench.until("the guest tells", told)
    return bench.state(made)


def planned(bench: Bench, **more: Any) -> AnyPlan:  # noqa: ANN401 - fields of a Bootstrap
    made = bench.plan()
    fixed = (
        AddressPlan("IPv4", "static", "10.40.0.7", 24, "10.40.0.1"),
        AddressPlan("IPv6", "static", "fd40::7", 64, "fd40::1"),
    )
    nics = (replace(made.nics[0], addresses=fixed),)
    return replace(made, nics=nics, bootstrap=seed(ssh_authorized_keys=KEYS, **more))


@pytest.mark.identity("11.2", "11.3")
def test_cloud_init_finds_the_same_instance_after_the_secrets_are_gone(bench: Bench) -> None:
    made = planned(bench)
    state = ready(bench, made)
    had = options(bench, made)
    assert WORD in first(bench, made).user_data, "the guest had it before it was cleared"

    bench.run(made, lambda: redactor(bench).redact_seed(seen(made, state)))
    left = options(bench, made)
    assert all(firstboot.is_gone(left.get(key)) for key in firstboot.SECRET_KEYS)
    assert set(guestdata.decoded(left)) == {"metadata"}
    before, after = cloudinit.read(had, left)
    assert WORD in before.user_data[0].text
    assert before.complaints == ()
    assert after.found, "without metadata a guest takes itself for a new instance"
    assert after == replace(before, user_data=(), vendor_data=())

    off = replace(made, power=PowerState.POWERED_OFF, power_off_mode=PowerOffMode.HARD)
    for _ in range(2):
        bench.run(off, lambda: bench.driver.update(off, bench.state(off)))
        bench.run(made, lambda: bench.driver.update(made, bench.state(made)))
        bench.until("it has its addresses", lambda: bench.state(made).addresses == state.addresses)
    guest = first(bench, made)
    assert (guest.instances, guest.boots, guest.runs) == (1, 3, 1)
    assert bench.state(made).guest.hostname == made.hostname
    stays_the_same_guest(had, left, options(bench, made))


def stays_the_same_guest(first: dict[str, str], *later: dict[str, str]) -> None:
    """cloud-init boots with the secrets, twice without them, and once as if nothing had been kept.

    The last boot shows what the metadata is kept for.
    """
    before, *after, lost = cloudinit.boot(first, *later, {})
    for boot in after:
        assert boot == before, "another instance, address, host key or machine id"
    assert len(before.disk["machine-id"]) == 32
    assert "address 10.40.0.7/24" in "".join(before.disk.values())
    assert before.runs == ("ran",), "modules that run once per instance"
    assert (lost.instance_id, lost.runs) == ("iid-datasource-none", ("ran", "ran"))
    assert lost.disk[HOST_KEY] != before.disk[HOST_KEY]


def test_a_boot_that_is_interrupted_finds_its_data_again(
    bench: Bench, target: VSphereTarget
) -> None:
    target.vcenter.guest(bootstrap="never")
    made = planned(bench)
    bench.ensure(made)
    bench.until("it boots", lambda: first(bench, made).runs == 1)
    state = bench.state(made)
    assert state.seed is not None
    assert state.seed.done is None, "it has not told"
    target.vcenter.guest(bootstrap="done")
    target.vcenter.power_vm(made.ref.name, "off")
    target.vcenter.power_vm(made.ref.name, "on")
    bench.until("it is done", lambda: first(bench, made).done)
    assert (first(bench, made).runs, first(bench, made).instances) == (2, 1)
    assert WORD in first(bench, made).user_data
    assert ready(bench, made).seed == replace(state.seed, done=True)


def test_a_guest_that_failed_is_told(bench: Bench, target: VSphereTarget) -> None:
    target.vcenter.guest(bootstrap="error")
    state = ready(bench, planned(bench))
    assert state.seed is not None
    assert (state.seed.done, state.seed.kept) == (False, True)


IGNITION = (
    '{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/etc/token",'
    f'"contents":{{"source":"data:,{WORD}"}}}}]}}}}'
)


@pytest.mark.identity("11.4")
def test_ignition_is_completed_told_and_cleared(bench: Bench) -> None:
    data = {"user_data": SecretBytes(IGNITION.encode()), "user_data_format": "ignition"}
    made = planned(bench, **data)
    state = ready(bench, made)
    document = json.loads(guestdata.decoded(options(bench, made))["ignition.config.data"])
    assert ignitionspec.faults_of(document) == []
    found = ignitionspec.files_of(document)
    assert found["/etc/token"] == WORD
    assert found["/etc/hostname"] == f"{made.hostname}\n"
    assert f"BANLIEUE_PROVIDER_ID='{made.provider_id}'" in found["/etc/banlieue/instance.env"]
    assert "Address=10.40.0.7/24" in found["/etc/systemd/network/10-banlieue-eth0.network"]
    assert list(KEYS) == document["passwd"]["users"][0]["sshAuthorizedKeys"]
    bench.run(made, lambda: redactor(bench).redact_seed(seen(made, state)))
    assert set(guestdata.decoded(options(bench, made))) == {"metadata"}
    after = bench.state(made).seed
    assert after is not None
    assert (after.kept, after.done) == (False, True)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"{" + WORD.encode(), Reason.USER_DATA_INVALID),
        (b'{"ignition":{"version":"4.0.0"}}', Reason.USER_DATA_INVALID),
    ],
)
def test_an_invalid_ignition_document_is_refused_before_the_clone(
    bench: Bench, target: VSphereTarget, data: bytes, reason: Reason
) -> None:
    made = bench.plan()
    wrong = Bootstrap(user_data=SecretBytes(data), user_data_format="ignition")
    target.proxy.reset_counts()
    with pytest.raises(InvalidSpec) as refusal:
        bench.driver.create(replace(made, bootstrap=wrong))
    assert refusal.value.reason is reason
    assert WORD not in str(refusal.value)
    assert target.proxy.arrived["CloneVM_Task"] == 0


def test_what_a_template_has_is_not_for_its_clones(bench: Bench, target: VSphereTarget) -> None:
    stale = {
        "guestinfo.userdata": "#cloud-config",
        "guestinfo.ignition.config.data": "{}",
        firstboot.WORD_KEY: f"{UUID}:done",
    }
    made = replace(bench.plan(), bootstrap=Bootstrap())
    source = target.vcenter.create_foreign_vm("stale", copy_of="ubuntu", extra_config=stale)
    with admin_of(target) as admin:
        admin.reference(vim.VirtualMachine, source.mo_ref).MarkAsTemplate()
    image = bench.driver.find_image(
        target.image_source().model_copy(update={"ref": "stale"}), made.failure_domain
    )
    state = ready(bench, replace(made, image=image))
    assert set(guestdata.decoded(options(bench, made))) == {"metadata", "vendordata"}
    assert first(bench, made).user_data == ""
    assert state.seed is not None
    assert (state.seed.secret, state.seed.done) == (False, True)


# Hands off


@contextmanager
def admin_of(target: VSphereTarget) -> Iterator[VSphereClient]:
    """A session of somebody else."""
    with VSphereClient(target.vcenter.url, ca_pem=target.vcenter.ca_pem) as client:
        yield client.login(target.vcenter.username, target.vcenter.password)
        client.content.sessionManager.Logout()


def test_nothing_is_cleared_while_somebody_elses_task_runs(
    bench: Bench, target: VSphereTarget
) -> None:
    made = planned(bench)
    state = ready(bench, made)
    target.vcenter.set_delay("ReconfigVM_Task", 2.0, of="task")
    with admin_of(target) as admin:
        machine = admin.reference(vim.VirtualMachine, state.backend_id)
        task = machine.ReconfigVM_Task(vim.vm.ConfigSpec(annotation="by a backup"))
        with pytest.raises(Transient):
            redactor(bench).redact_seed(seen(made, state))
        assert WORD in str(bench.target.first_boot_data(state.backend_id))
        admin.outcome(task)
    target.vcenter.clear_delays()
    bench.run(made, lambda: redactor(bench).redact_seed(seen(made, state)))


def test_a_vm_whose_mark_was_taken_off_is_left_alone(bench: Bench, target: VSphereTarget) -> None:
    made = planned(bench)
    state = ready(bench, made)
    target.vcenter.change_vm(made.ref.name, extra_config={"banlieue.mark": ""})
    with pytest.raises(Foreign):
        redactor(bench).redact_seed(seen(made, state))
    assert WORD in str(bench.target.first_boot_data(state.backend_id))


def test_clearing_costs_a_look_a_change_and_a_proof(bench: Bench, target: VSphereTarget) -> None:
    made = planned(bench)
    state = ready(bench, made)
    target.proxy.reset_counts()
    bench.run(made, lambda: redactor(bench).redact_seed(seen(made, state)))
    arrived = target.proxy.arrived
    assert arrived["ReconfigVM_Task"] == 1
    assert sum(arrived.values()) - arrived["WaitForUpdatesEx"] <= 12, dict(arrived)


def test_two_processes_that_clear_at_once_end_in_the_same(bench: Bench) -> None:
    made = planned(bench)
    state = ready(bench, made)
    ref = seen(made, state)
    with bench.connect() as driver:
        other = Bench(bench.target, driver)
        sides = [(bench, redactor(bench)), (other, redactor(other))]
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda side: side[0].run(made, lambda: side[1].redact_seed(ref)), sides))
    assert set(guestdata.decoded(options(bench, made))) == {"metadata"}
    assert bench.state(made).uuid == state.uuid


def test_a_lost_reply_is_found_out_by_the_next_look(bench: Bench, target: VSphereTarget) -> None:
    made = planned(bench)
    state = ready(bench, made)
    target.proxy.reset_counts()
    target.proxy.add(drop_reply("ReconfigVM_Task", count=1))
    bench.run(made, lambda: redactor(bench).redact_seed(seen(made, state)))
    assert set(guestdata.decoded(options(bench, made))) == {"metadata"}
    assert target.proxy.arrived["ReconfigVM_Task"] == 1, "it was not made twice"
