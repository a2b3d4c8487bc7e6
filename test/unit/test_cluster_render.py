import json
import ssl
import tomllib
from pathlib import Path

import pytest
import yaml
from cryptography import x509

from hack.cluster.interface import ClusterError
from hack.cluster.local import cgroups, checks, mountinfo, pki, render, toml
from hack.cluster.local.paths import INSIDE_STATE, VARIABLE, Place
from hack.cluster.local.ranges import Range

RANGE = Range.parse("10.90.0.0/16")
V1_MOUNTS = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
32 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
33 32 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
34 32 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
35 32 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
"""
V2_MOUNTS = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
35 32 0:38 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw
"""
DISK_MOUNTS = """\
27 1 254:0 / / rw,relatime - overlay overlay rw
28 27 254:1 / /disk rw,relatime - ext4 /dev/vda rw
29 28 0:40 / /disk/me/with\\040space rw,relatime - tmpfs tmpfs rw
30 27 254:1 / /disk rw,relatime - xfs /dev/vdb rw
"""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    found = Place.of("dev", {VARIABLE: str(tmp_path)})
    found.state.mkdir()
    return found


def test_toml_reads_as_it_was_meant() -> None:
    document: dict[str, toml.Value] = {
        "version": 3,
        "io.containerd.x": {"a": {"b": True, "c": ["x", 'quo"te', "back\\slash"]}, "d": "é\n"},
        "last": "a value after a table",
    }
    assert tomllib.loads(toml.dump(document)) == document


def test_containerd_finds_what_is_on_the_host() -> None:
    text = toml.dump(render.containerd(Path("/usr/sbin/runc"), Path("/usr/lib/cni")))
    plugins = tomllib.loads(text)["plugins"]
    runtime = plugins["io.containerd.cri.v1.runtime"]
    assert runtime["containerd"]["runtimes"]["runc"]["options"]["BinaryName"] == "/usr/sbin/runc"
    assert runtime["cni"]["bin_dirs"] == ["/usr/lib/cni"]
    sandbox = plugins["io.containerd.cri.v1.images"]["pinned_images"]["sandbox"]
    assert sandbox == render.PAUSE_IMAGE


def test_component_configuration_is_no_json_for_its_readers(place: Place) -> None:
    render.write_all(place, RANGE, Path("/usr/sbin/runc"), Path("/usr/lib/cni"))
    texts = {path: path.read_text(encoding="utf-8") for path in place.configuration.glob("*.yaml")}
    kinds = {yaml.safe_load(text)["kind"] for text in texts.values()}
    assert kinds == {"KubeletConfiguration", "KubeProxyConfiguration"}
    assert not any(text.startswith("{") for text in texts.values())


def test_the_kubelet_stays_in_the_clusters_own_control_group(place: Place) -> None:
    assert render.kubelet(RANGE, place.cgroup)["cgroupRoot"] == f"/{place.cgroup}"


def test_pods_get_addresses_of_the_range() -> None:
    (plugin,) = render.pod_network(RANGE)["plugins"]
    assert plugin["ipam"]["ranges"] == [[{"subnet": "10.90.0.0/17"}]]
    assert plugin["ipMasq"] is False


def test_every_daemon_has_its_command_line() -> None:
    lines = render.arguments(RANGE)
    assert tuple(lines) == render.DAEMONS
    flags = {flag for line in lines.values() for flag in line}
    assert "--service-cluster-ip-range=10.90.128.0/18" in flags
    assert "--node-ip=10.90.254.2" in flags


def test_every_file_a_flag_names_is_written(place: Place) -> None:
    pki.write_all(place, RANGE)
    render.write_all(place, RANGE, Path("/usr/sbin/runc"), Path("/usr/lib/cni"))
    named = [
        flag.partition("=")[2].removeprefix(f"{INSIDE_STATE}/")
        for line in render.arguments(RANGE).values()
        for flag in line
        if f"={INSIDE_STATE}/pki" in flag or f"={INSIDE_STATE}/configuration" in flag
    ]
    assert len(named) > 10
    assert not [name for name in named if not (place.state / name).is_file()]


def test_the_api_servers_certificate_names_all_its_addresses(place: Place) -> None:
    pki.write_all(place, RANGE)
    certificate = x509.load_pem_x509_certificate((place.pki / "apiserver.crt").read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    addresses = {str(address) for address in names.get_values_for_type(x509.IPAddress)}
    assert addresses == {"127.0.0.1", "10.90.254.2", "10.90.128.1"}
    assert "kubernetes.default.svc" in names.get_values_for_type(x509.DNSName)


def test_certificates_pass_where_checks_are_strict(place: Place) -> None:
    pki.write_all(place, RANGE)
    context = ssl.create_default_context(cafile=str(place.pki / "ca.crt"))
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(place.pki / "apiserver.crt", place.pki / "apiserver.key")
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = context.wrap_bio(to_client, to_server, server_hostname="10.90.254.2")
    theirs = server.wrap_bio(to_server, to_client, server_side=True)
    waiting = [ours, theirs]
    for _ in range(4):
        for side in list(waiting):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            waiting.remove(side)
    assert not waiting


def test_who_was_trusted_before_a_restart_still_is(place: Place) -> None:
    def kept() -> list[bytes]:
        names = ("ca.crt", "ca.key", "service-account.key", "service-account.pub")
        return [(place.pki / name).read_bytes() for name in names]

    pki.write_all(place, RANGE)
    before, node = kept(), (place.pki / "node.crt").read_bytes()
    pki.write_all(place, Range.parse("10.91.0.0/16"))
    assert kept() == before
    assert (place.pki / "node.crt").read_bytes() != node
    server = json.loads(place.kubeconfig.read_text(encoding="utf-8"))["clusters"][0]["cluster"]
    assert server["server"] == "https://10.91.254.2:6443"


def test_keys_and_kubeconfigs_are_their_owners_only(place: Place) -> None:
    pki.write_all(place, RANGE)
    secret = [*place.pki.glob("*.key"), *place.pki.glob("*.kubeconfig"), place.kubeconfig]
    assert len(secret) > 6
    assert not [path for path in secret if path.stat().st_mode & 0o077]


def test_hierarchies_of_both_versions_are_found() -> None:
    v1 = [(tree.root.name, tree.type) for tree in cgroups.hierarchies(V1_MOUNTS)]
    assert v1 == [("cpu,cpuacct", "cgroup"), ("systemd", "cgroup"), ("unified", "cgroup2")]
    assert [tree.root for tree in cgroups.hierarchies(V2_MOUNTS)] == [Path("/sys/fs/cgroup")]


def test_a_control_group_of_version_1_may_use_what_its_parent_may(tmp_path: Path) -> None:
    for file in ("cpuset.cpus", "cpuset.mems"):
        (tmp_path / file).write_text("0-1\n", encoding="ascii")
    (tmp_path / "unified").mkdir()
    trees = [
        cgroups.Hierarchy(tmp_path, "cgroup"),
        cgroups.Hierarchy(tmp_path / "unified", "cgroup2"),
    ]
    cgroups.create("banlieue-dev", trees)
    assert (tmp_path / "banlieue-dev" / "cpuset.cpus").read_text(encoding="ascii") == "0-1\n"
    assert not list((tmp_path / "unified").iterdir())


def test_control_groups_go_with_those_in_them(tmp_path: Path) -> None:
    (tmp_path / "banlieue-dev" / "pod" / "container").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    cgroups.remove("banlieue-dev", [cgroups.Hierarchy(tmp_path, "cgroup")])
    assert [entry.name for entry in tmp_path.iterdir()] == ["other"]


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        ("/var/lib", "overlay"),
        ("/disks", "overlay"),
        ("/disk/me", "xfs"),
        ("/disk/me/with space/x", "tmpfs"),
    ],
)
def test_the_innermost_and_last_mount_holds_a_folder(folder: str, expected: str) -> None:
    assert checks.file_system_type(Path(folder), DISK_MOUNTS) == expected


def test_mounts_in_a_folder_are_seen() -> None:
    found = checks.mounts_below(Path("/disk/me"), DISK_MOUNTS)
    assert found == [Path("/disk/me/with space")]


def test_mount_points_of_any_name_are_read() -> None:
    line = "31 1 7:0 / /a\\040b\\011c\\134d\\012é rw shared:1 - ext4 /dev/loop0 rw\n"
    assert mountinfo.mounts(line) == [mountinfo.Mount(Path("/a b\tc\\d\né"), "ext4")]
    assert any(mount.point == Path("/") for mount in mountinfo.mounts())


def test_all_that_is_missing_is_named_with_its_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setattr(checks, "find_program", lambda _: None)
    monkeypatch.setattr(checks, "_PLUGIN_FOLDERS", [str(tmp_path)])
    with pytest.raises(ClusterError) as caught:
        checks.find_programs()
    said = str(caught.value)
    assert "apt-get install" in said
    packages = ("runc", "containernetworking-plugins", "nftables", "iproute2")
    assert all(package in said for package in packages)
    assert checks.BUILD in said
    assert all(tool in said for tool in (*render.DAEMONS, *render.HELPERS))


def test_whoever_is_not_root_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(ClusterError, match="needs root"):
        checks.require_root()
