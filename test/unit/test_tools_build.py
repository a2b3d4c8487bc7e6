import fcntl
import io
import os
import time
from pathlib import Path

import pytest

from hack.tools import build, gobuild
from hack.tools.catalog import (
    TOOLS,
    Store,
    Tool,
    ToolError,
    find_tool,
    tool_named,
)
from test.kit.fakego import GO_MOD, InstallGo, executable

SIMULATOR = tool_named("vcsim")
ETCD = tool_named("etcd")
APISERVER = tool_named("kube-apiserver")
CONTROLLER_MANAGER = tool_named("kube-controller-manager")
PAUSE = tool_named("pause")
pytest_plugins = ["test.kit.fixtures_go"]


@pytest.fixture
def assets(tmp_path: Path) -> Path:
    folder = tmp_path / "assets"
    folder.mkdir()
    for name in ("etcd", "kube-apiserver", "kubectl"):
        executable(folder / name, "exit 0")
    return folder


def _ignore(_progress: gobuild.Progress) -> None:
    pass


def _built(store: Store, tool: Tool) -> Path:
    path = store.build_path(tool)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("binary")
    return path


@pytest.mark.parametrize("changed", ["go.mod", "go.sum", "main.go", "inner/inner.go"])
def test_another_pin_or_source_gives_another_folder(store: Store, changed: str) -> None:
    before = store.build_path(SIMULATOR)

    path = store.sources / "vcsim" / changed
    path.parent.mkdir(exist_ok=True)
    path.write_text(GO_MOD + "// changed\n")

    assert store.build_path(SIMULATOR) != before


def test_tests_prose_and_hidden_files_do_not_cost_a_build(store: Store) -> None:
    before = store.build_path(SIMULATOR)

    for name in ("main_test.go", "README.md", ".swp"):
        (store.sources / "vcsim" / name).write_text("x")

    assert store.build_path(SIMULATOR) == before


def test_a_renamed_source_gives_another_folder(store: Store) -> None:
    source = store.sources / "vcsim" / "one.go"
    source.write_text("package main\n")
    before = store.build_path(SIMULATOR)

    source.rename(source.with_name("two.go"))

    assert store.build_path(SIMULATOR) != before


def test_binaries_of_one_module_share_a_folder_named_by_the_module(store: Store) -> None:
    apiserver = store.build_path(APISERVER)

    assert apiserver.parent == store.build_path(CONTROLLER_MANAGER).parent
    assert apiserver.parent.name.startswith("kubernetes-")
    assert apiserver.name == "kube-apiserver"


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("kube-apiserver", "make tools"),
        ("kubelet", "python3 hack/tools/build.py --group cluster"),
    ],
)
def test_a_tool_that_is_not_built_names_what_builds_it(
    store: Store, name: str, remedy: str
) -> None:
    with pytest.raises(ToolError, match=f"^{name} is not built yet; run: {remedy}$"):
        find_tool(name, store)


def test_an_unknown_tool_is_answered_with_the_known_ones(store: Store) -> None:
    with pytest.raises(ToolError, match=r"etcd, vcsim, kube-apiserver.*kubelet, containerd"):
        find_tool("kubeadm", store)


def test_a_built_tool_is_found_and_marked_as_used(store: Store) -> None:
    path = _built(store, ETCD)
    os.utime(path.parent, (0, 0))

    assert find_tool("etcd", store) == path
    assert path.parent.stat().st_mtime > time.time() - 60


def test_assets_supply_what_they_hold_and_the_rest_is_built(store: Store, assets: Path) -> None:
    store = Store(store.sources, store.cache, assets)

    assert find_tool("etcd", store) == assets / "etcd"
    assert find_tool("kube-apiserver", store) == assets / "kube-apiserver"
    assert store.find(CONTROLLER_MANAGER) is None
    assert store.find(SIMULATOR) is None

    executable(assets / "kube-controller-manager", "exit 0")
    executable(assets / "vcsim", "exit 0")

    assert store.find(CONTROLLER_MANAGER) == assets / "kube-controller-manager"
    assert store.find(SIMULATOR) is None


@pytest.mark.parametrize("name", ["etcd", "kube-apiserver", "kubectl"])
def test_assets_without_a_required_binary_are_an_error(
    store: Store, assets: Path, name: str
) -> None:
    (assets / name).chmod(0o644)

    with pytest.raises(ToolError, match=f"KUBEBUILDER_ASSETS is set to .* no executable {name}"):
        Store(store.sources, store.cache, assets).find(tool_named(name))


def test_environment_decides_cache_and_assets(tmp_path: Path) -> None:
    home = Store.from_environment({"HOME": "/some/ada"})
    moved = Store.from_environment({"HOME": "/some/ada", "XDG_CACHE_HOME": str(tmp_path)})
    relative = Store.from_environment({"HOME": "/some/ada", "XDG_CACHE_HOME": "cache"})
    supplied = Store.from_environment({"HOME": "/some/ada", "KUBEBUILDER_ASSETS": str(tmp_path)})

    assert home.cache == relative.cache == Path("/some/ada/.cache/banlieue/tools")
    assert home.assets is None
    assert moved.cache == tmp_path / "banlieue" / "tools"
    assert supplied.assets == tmp_path


def test_a_build_leaves_only_an_executable_binary(store: Store, fake_go: InstallGo) -> None:
    fake_go('echo "$PWD $CGO_ENABLED" > "$output"')

    path = gobuild.build(ETCD, store, _ignore)

    assert path == find_tool("etcd", store)
    assert path.read_text() == f"{store.sources / 'etcd'} 0\n"
    assert os.access(path, os.X_OK)
    assert [entry.name for entry in path.parent.iterdir()] == ["etcd"]


def test_a_failed_build_leaves_nothing_and_shows_what_the_compiler_said(
    store: Store, fake_go: InstallGo
) -> None:
    fake_go(
        'echo half > "$output"; echo some/package; echo "# main"; echo "a.go:1: oops" >&2; exit 1'
    )

    with pytest.raises(ToolError, match=r"building etcd failed:\n# main\na.go:1: oops$"):
        gobuild.build(ETCD, store, _ignore)

    assert list(store.build_path(ETCD).parent.iterdir()) == []


def test_sources_that_change_during_a_build_do_not_get_a_stale_binary(
    store: Store, fake_go: InstallGo
) -> None:
    fake_go('echo old > "$output"; echo "// edited" >> go.mod')
    before = store.build_path(ETCD)

    with pytest.raises(ToolError, match="sources of etcd changed while it was built"):
        gobuild.build(ETCD, store, _ignore)

    assert not before.exists()
    assert store.find(ETCD) is None


def test_what_a_killed_build_left_is_cleared_away(store: Store, fake_go: InstallGo) -> None:
    fake_go()
    folder = store.build_path(ETCD).parent
    folder.mkdir(parents=True)
    (folder / ".unfinished-abc").write_text("half")

    gobuild.build(ETCD, store, _ignore)

    assert [entry.name for entry in folder.iterdir()] == ["etcd"]


def test_binaries_unused_for_a_month_are_thrown_away(store: Store, fake_go: InstallGo) -> None:
    fake_go()
    month = time.time() - 31 * 24 * 3600
    old, recent, other = (store.cache / name for name in ("etcd-1", "etcd-2", "vcsim-1"))
    for folder in (old, recent, other):
        folder.mkdir(parents=True)
    os.utime(old, (month, month))
    os.utime(other, (month, month))

    gobuild.build(ETCD, store, _ignore)

    assert not old.exists()
    assert recent.exists()
    assert other.exists()


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_no_go_says_how_to_get_it_and_offers_assets_only_where_they_help(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: Tool
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(ToolError) as refused:
        gobuild.build(tool, store, _ignore)

    said = str(refused.value)
    assert f"building {tool.module} needs Go 1.26.0 or newer; install it from https://go" in said
    helped = {"etcd", "kube-apiserver", "kube-controller-manager", "kubectl"}
    assert ("KUBEBUILDER_ASSETS" in said) == (tool.name in helped)


def test_no_go_is_said_before_anything_else(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    out = io.StringIO()

    with pytest.raises(ToolError, match="building pause needs Go"):
        build.build_missing([PAUSE], store, out)

    assert out.getvalue() == ""
    assert not store.cache.exists()


def test_an_old_go_that_cannot_renew_itself_is_refused(store: Store, fake_go: InstallGo) -> None:
    go = fake_go(version="go1.25.9")
    with pytest.raises(ToolError, match=r"is 1\.25\.9, but building etcd needs Go 1\.26\.0"):
        gobuild.require_go(store.sources / "etcd")

    fake_go(version="go1.25.9", toolchain="auto")
    assert gobuild.require_go(store.sources / "etcd") == str(go)

    fake_go(version="go1.27")
    assert gobuild.require_go(store.sources / "etcd") == str(go)


def test_a_cache_that_cannot_be_written_is_named_with_the_remedy(
    store: Store, fake_go: InstallGo
) -> None:
    fake_go()
    # A file in the way stops root too, whom permissions would not.
    store.cache.write_text("")

    with pytest.raises(ToolError) as refused:
        build.build_missing([ETCD], store, io.StringIO())

    assert f"the binaries go to {store.cache}, which cannot be written" in str(refused.value)
    assert "set XDG_CACHE_HOME to a folder that is" in str(refused.value)


def test_an_unreachable_module_proxy_is_told_from_a_broken_build(
    store: Store, fake_go: InstallGo
) -> None:
    fake_go(on_list='echo "go: x: Get y: dial tcp: lookup proxy: no such host" >&2; exit 1')

    with pytest.raises(ToolError, match="check the network and what `go env GOPROXY` names"):
        gobuild.build(ETCD, store, _ignore)


def test_the_command_says_nothing_when_all_is_there(store: Store) -> None:
    for tool in TOOLS:
        _built(store, tool)
    out = io.StringIO()

    build.build_missing(TOOLS, store, out)

    assert out.getvalue() == ""


def test_the_command_builds_what_is_missing_and_counts(store: Store, fake_go: InstallGo) -> None:
    fake_go()
    _built(store, APISERVER)
    out = io.StringIO()

    build.build_missing([CONTROLLER_MANAGER, APISERVER, ETCD], store, out)

    starts = [line for line in out.getvalue().splitlines() if "starting" in line]
    assert starts == [
        "[1/2] etcd: starting, about 2 min left in all",
        "[2/2] kube-controller-manager: starting, about 2 min left in all",
    ]
    assert store.find(CONTROLLER_MANAGER) is not None
    assert store.find(SIMULATOR) is None


def test_a_second_build_waits_and_says_so(store: Store) -> None:
    waits: list[str] = []
    with gobuild.build_lock(store.cache, lambda: waits.append("first")):
        held = (store.cache / ".lock").open("w")
        with held, pytest.raises(BlockingIOError):
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)

    with (store.cache / ".lock").open("w") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)

        def let_go() -> None:
            # Letting go inside the notice shows that it comes before the wait.
            waits.append("second")
            fcntl.flock(holder, fcntl.LOCK_UN)

        with gobuild.build_lock(store.cache, let_go):
            pass
    assert waits == ["second"]


def test_what_is_left_follows_the_table_then_the_pace() -> None:
    cold = gobuild.Progress(compiled=0, stale=100, packages=100, elapsed=1)
    halfway = gobuild.Progress(compiled=50, stale=100, packages=100, elapsed=100)
    warm = gobuild.Progress(compiled=0, stale=10, packages=100, elapsed=1)

    assert cold.seconds_left(60) == 59
    assert halfway.seconds_left(60) > 50
    assert warm.seconds_left(60) == 5


@pytest.mark.parametrize(
    ("arguments", "code", "answer"),
    [
        (["--print-path", "kubeadm"], 1, "error: no tool is called 'kubeadm'"),
        (["--print-path", "etcd"], 1, "error: etcd is not built yet; run: make tools"),
        (["--list"], 0, "test     etcd  "),
    ],
)
def test_command_line_answers(
    in_new_home: pytest.CaptureFixture[str], arguments: list[str], code: int, answer: str
) -> None:
    assert build.main(arguments) == code
    said = in_new_home.readouterr()
    assert (said.err if code else said.out).startswith(answer)
