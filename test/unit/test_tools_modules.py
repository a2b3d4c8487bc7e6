from pathlib import Path

import pytest

from hack.tools import build
from hack.tools.catalog import TOOLS, Group, Stamp, Store, ToolError, pinned_version, tool_named
from hack.tools.clusterapis import CLUSTER_APIS, USUAL, cluster_api
from hack.tools.modules import module_directory
from test.kit.fakego import GO_MOD, InstallGo

pytest_plugins = ["test.kit.fixtures_go"]


@pytest.mark.parametrize(
    ("name", "flag"),
    [
        ("kubelet", "-X k8s.io/component-base/version.gitVersion=v1.36.3"),
        ("containerd", "-X github.com/containerd/containerd/v2/version.Version=v2.2.0"),
        ("clusterctl", "-X sigs.k8s.io/cluster-api/version.gitVersion=v1.14.2"),
        ("clusterctl", "-X sigs.k8s.io/cluster-api/version.gitMinor=14"),
        ("cluster-api-core", "-X sigs.k8s.io/cluster-api/version.gitVersion=v1.14.2"),
        ("cert-manager", "-X github.com/cert-manager/cert-manager/pkg/util.AppVersion=v1.21.1"),
    ],
)
def test_a_binary_reports_the_version_its_own_module_pins(
    store: Store, name: str, flag: str
) -> None:
    assert flag in store.link_flags(tool_named(name))


def test_another_stamp_gives_another_folder(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    before = store.build_path(tool_named("ctr"))
    elsewhere = store.build_path(tool_named("clusterctl"))

    monkeypatch.setattr(Stamp, "link_flags", lambda _self, version: [f"-X a.b={version}"])

    assert store.build_path(tool_named("ctr")) != before
    assert store.build_path(tool_named("clusterctl")) != elsewhere
    monkeypatch.undo()
    assert store.build_path(tool_named("ctr")) == before


def test_another_pin_of_one_module_leaves_the_others_where_they_are(store: Store) -> None:
    before = {tool.module: store.build_path(tool) for tool in TOOLS}

    (store.sources / "containerd" / "go.mod").write_text(GO_MOD.replace("v2.2.0", "v2.2.1"))

    after = {tool.module: store.build_path(tool) for tool in TOOLS}
    assert {module for module in before if before[module] != after[module]} == {"containerd"}


def test_kubernetes_reports_the_pinned_version(store: Store) -> None:
    flags = store.link_flags(tool_named("kube-apiserver"))

    assert "-X k8s.io/component-base/version.gitVersion=v1.36.3" in flags
    assert "-X k8s.io/component-base/version.gitMajor=1" in flags
    assert "-X k8s.io/component-base/version.gitMinor=36" in flags


def test_every_tool_of_this_checkout_names_a_module_that_pins_it() -> None:
    sources = Store.from_environment().sources
    for tool in TOOLS:
        text = (sources / tool.module / "go.mod").read_text(encoding="utf-8")
        if tool.package != ".":
            assert tool.package in text


@pytest.mark.parametrize("minor", CLUSTER_APIS)
def test_each_cluster_api_is_pinned_in_a_module_of_its_own(minor: str) -> None:
    chosen = cluster_api({"CAPI": minor})
    go_mod = Store.from_environment().sources / chosen.module / "go.mod"

    assert chosen.version.startswith(f"v{minor}.")
    assert pinned_version(go_mod, "sigs.k8s.io/cluster-api") == chosen.version
    assert f"\t{chosen.package}\n" in go_mod.read_text(encoding="utf-8")


def test_a_cluster_api_that_is_not_pinned_is_named_with_those_that_are() -> None:
    assert cluster_api({}) == cluster_api({"CAPI": ""}) == CLUSTER_APIS[USUAL]
    with pytest.raises(SystemExit, match=r"CAPI=1\.9: there are 1\.11, 1\.14"):
        cluster_api({"CAPI": "1.9"})


def test_staging_modules_follow_the_pinned_kubernetes() -> None:
    go_mod = Store.from_environment().sources / "kubernetes" / "go.mod"

    version = pinned_version(go_mod, "k8s.io/kubernetes").removeprefix("v1.")
    replaced = [line for line in go_mod.read_text(encoding="utf-8").splitlines() if "=>" in line]

    assert len(replaced) > 25
    assert all(line.endswith(f" v0.{version}") for line in replaced)


def test_a_module_without_the_pin_is_an_error(store: Store) -> None:
    go_mod = store.sources / "etcd" / "go.mod"

    with pytest.raises(ToolError, match=r"requires no version of go\.etcd\.io/etcd"):
        pinned_version(go_mod, "go.etcd.io/etcd")


@pytest.mark.parametrize(
    ("arguments", "built"),
    [
        ([], {"etcd", "vcsim", "kube-apiserver", "kube-controller-manager", "kubectl"}),
        (["--group", "test"], {tool.name for tool in TOOLS if tool.group is Group.TEST}),
        (["--group", "cluster"], {tool.name for tool in TOOLS if tool.group is Group.CLUSTER}),
        (["--group", "all"], {tool.name for tool in TOOLS if tool.group is not Group.PEER}),
        (["--group", "peer"], {"peer-cluster-api-vsphere"}),
        (["ctr", "etcd"], {"ctr", "etcd"}),
    ],
)
def test_a_group_or_names_decide_what_is_built(
    in_new_home: pytest.CaptureFixture[str],
    fake_go: InstallGo,
    arguments: list[str],
    built: set[str],
) -> None:
    fake_go()

    assert build.main(arguments) == 0

    store = Store.from_environment()
    assert {tool.name for tool in TOOLS if store.find(tool) is not None} == built
    assert in_new_home.readouterr().out.count("starting") == len(built)


def test_the_cluster_group_completes_a_node() -> None:
    names = {tool.name for tool in build.tools_of("cluster")}

    assert names >= {"kubelet", "kube-proxy", "kube-scheduler", "containerd", "ctr", "pause"}
    assert not names & {tool.name for tool in build.tools_of("test")}


def test_names_and_a_group_together_are_refused(
    in_new_home: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        build.main(["--group", "all", "etcd"])

    assert ended.value.code == 2
    assert "name tools or a group, not both" in in_new_home.readouterr().err


def test_the_list_says_what_each_tool_is_for(in_new_home: pytest.CaptureFixture[str]) -> None:
    assert build.main(["--list"]) == 0

    rows = [line.split(maxsplit=2) for line in in_new_home.readouterr().out.splitlines()]
    assert [(group, name) for group, name, _ in rows] == [(t.group, t.name) for t in TOOLS]
    assert all(state.startswith("not built, takes") for _, _, state in rows)


def test_sources_of_a_module_are_asked_of_go(
    store: Store, fake_go: InstallGo, tmp_path: Path
) -> None:
    fake_go(on_list=f"echo {tmp_path}")

    found = module_directory("cluster-api", "sigs.k8s.io/cluster-api", store.sources)

    assert found == tmp_path


def test_sources_that_are_not_there_are_downloaded_first(
    store: Store, fake_go: InstallGo, tmp_path: Path
) -> None:
    mark = tmp_path / "downloaded"
    fake_go(
        on_list=f"if [ -e {mark} ]; then echo {mark}; fi",
        on_mod=f'[ "$2 $3" = "download x.io/y" ] && mkdir {mark}',
    )

    assert module_directory("etcd", "x.io/y", store.sources) == mark


@pytest.mark.parametrize(
    ("on_list", "on_mod", "remedy"),
    [
        ('echo "go: module x.io/y: not a known dependency" >&2; exit 1', "", "add it there"),
        ("", 'echo "go: dial tcp: no such host" >&2; exit 1', "check the network"),
        ("", 'echo "go: x.io/y: bad zip file" >&2; exit 1', "fetching x.io/y failed"),
        ("", "exit 0", "go clean -modcache"),
        ("echo /no/such/folder", "exit 0", "go clean -modcache"),
    ],
)
def test_sources_that_cannot_be_had_say_what_to_do(
    store: Store, fake_go: InstallGo, on_list: str, on_mod: str, remedy: str
) -> None:
    fake_go(on_list=on_list or "true", on_mod=on_mod or "true")

    with pytest.raises(ToolError, match=remedy):
        module_directory("etcd", "x.io/y", store.sources)


def test_a_folder_without_go_mod_pins_nothing(store: Store) -> None:
    with pytest.raises(ToolError, match=r"nowhere holds no go\.mod, so it pins no x\.io/y"):
        module_directory("nowhere", "x.io/y", store.sources)
