"""The image itself, run as a restricted pod runs it, without a cluster."""

import hashlib
import json
import os
import re
import selectors
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest

import banlieue
from banlieue.sdk.registry import backend_names
from hack import release
from hack.components import semantic_version
from hack.images.catalog import OWN, archive_of
from hack.images.store import ImageError

MOST_BYTES: Final = 250_000_000
ENDS_WITHIN_SECONDS: Final = 5.0

# In namespaces of its own: nothing may be written but /tmp, and no privilege can be had.
_RUN: Final = """
set -eu
root=$1; shift
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount -t tmpfs tmpfs "$root/tmp"
mount -t tmpfs tmpfs "$root/dev"
: > "$root/dev/null"
mount --bind /dev/null "$root/dev/null"
mount -o remount,bind,ro "$root"
exec chroot "$root" /usr/bin/setpriv --reuid 65532 --regid 65532 --clear-groups \\
    --no-new-privs --inh-caps=-all --bounding-set=-all /usr/bin/env -i "$@"
"""
_NAMESPACES: Final = ("--mount", "--pid", "--net", "--ipc", "--uts", "--fork", "--kill-child")

_BYTECODE: Final = """
import importlib.util, pathlib, sys, sysconfig
trees = {pathlib.Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib")}
sources = [path for tree in trees for path in tree.rglob("*.py")]
bad = []
for source in sources:
    compiled = pathlib.Path(importlib.util.cache_from_source(source))
    if not compiled.exists():
        bad.append(f"missing: {source}")
        continue
    header = compiled.read_bytes()[:16]
    unchecked = header[4:8] == (1).to_bytes(4, "little")
    fresh = header[8:] == importlib.util.source_hash(source.read_bytes())
    if header[:4] != importlib.util.MAGIC_NUMBER or not unchecked or not fresh:
        bad.append(f"invalid: {source}")
print(len(sources), *bad[:20], sep="\\n")
"""

_CONTROLLER: Final = """
cat > /tmp/kubeconfig <<END
apiVersion: v1
kind: Config
current-context: nowhere
clusters: [{name: nowhere, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: nobody, user: {token: none}}]
contexts: [{name: nowhere, context: {cluster: nowhere, user: nobody}}]
END
exec banlieue controller --kubeconfig /tmp/kubeconfig
"""


@dataclass(frozen=True, slots=True)
class Unpacked:
    """An image on disk: its configuration, its layers as tar files, and the tree they make."""

    config: dict[str, Any]
    texts: dict[str, str]
    layers: tuple[Path, ...]
    root: Path

    def command(self, *arguments: str) -> list[str]:
        shell = ("sh", "-c", _RUN, "sh", str(self.root), *self.config["config"]["Env"])
        return ["unshare", *_NAMESPACES, "--", *shell, *arguments]

    def run(self, *arguments: str) -> str:
        """What a program in the image prints; it has to succeed."""
        answer = subprocess.run(
            self.command(*arguments), capture_output=True, text=True, check=False, timeout=120
        )
        assert answer.returncode == 0, answer.stderr
        return answer.stdout

    def python(self, script: str) -> str:
        return self.run("/opt/venv/bin/python", "-c", script)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Unpacked:
    if os.geteuid() != 0:
        pytest.fail("the image is built and run in namespaces, which needs root")
    try:
        archive = archive_of(OWN)
    except ImageError as error:
        pytest.fail(str(error))
    directory = tmp_path_factory.mktemp("image")
    with tarfile.open(archive) as tar:
        tar.extractall(directory, filter="data")
    texts = {path.name: path.read_text() for path in directory.glob("*.json")}
    (entry,) = json.loads(texts["manifest.json"])
    layers = tuple(directory / layer for layer in entry["Layers"])
    root = directory / "root"
    for layer in layers:
        with tarfile.open(layer) as tar:
            # Nothing was deleted between the layers, so they need no more than this.
            assert not [name for name in tar.getnames() if "/.wh." in f"/{name}"]
            # Owners and modes of our own image are part of what is tested.
            tar.extractall(root, filter="fully_trusted", numeric_owner=True)  # noqa: S202 - ours
    return Unpacked(json.loads(texts[entry["Config"]]), texts, layers, root)


def test_the_configuration_is_what_a_restricted_pod_needs(image: Unpacked) -> None:
    config = image.config["config"]

    assert config["User"] == "65532:65532"
    assert config["Entrypoint"] == ["banlieue"]
    environment = dict(entry.split("=", 1) for entry in config["Env"])
    assert environment["USER"] == "banlieue"
    assert environment["PYTHONUNBUFFERED"] == "1"
    assert environment["PYTHONDONTWRITEBYTECODE"] == "1"


def test_labels_say_what_this_is(image: Unpacked) -> None:
    prefix = "org.opencontainers.image."
    labels = {
        name.removeprefix(prefix): value
        for name, value in image.config["config"]["Labels"].items()
        if name.startswith(prefix)
    }

    assert labels["title"] == "banlieue"
    assert labels["description"] == banlieue.__doc__.removesuffix(".")
    assert labels["licenses"] == "Apache-2.0"
    assert labels["version"] == banlieue.__version__
    assert re.fullmatch(r"[0-9a-f]{40}(-dirty)?|unknown", labels["revision"])
    assert "source" in labels


def test_it_stays_small(image: Unpacked) -> None:
    sizes = [layer.stat().st_size for layer in image.layers]

    assert sum(sizes) < MOST_BYTES
    # A change of this distribution alone is a small layer.
    assert sizes[-1] < 0.05 * sum(sizes)


def test_no_tool_that_builds_or_installs_is_left(image: Unpacked) -> None:
    unwanted = re.compile(
        r"(.*/)?(pip[\d.]*|uv|apt(-.*)?|c?gcc(-.*)?|cc|[cg]\+\+(-.*)?|ld|make|pkg-config"
        r"|ensurepip|setuptools|python3?[\d.]*-config|[^/]+\.whl|Python\.h)"
    )
    places = re.compile(r"(usr/|usr/local/|opt/venv/)?(bin|sbin|lib|include)/")
    names = [
        path.relative_to(image.root).as_posix()
        for path in image.root.rglob("*")
        if not path.is_dir() or (path / "__init__.py").exists()
    ]

    assert [name for name in names if places.match(name) and unwanted.fullmatch(name)] == []
    assert "usr/bin/env" in names


def test_nothing_in_it_gains_privileges(image: Unpacked) -> None:
    programs = [path for path in (image.root / "usr").rglob("*") if path.is_file()]

    assert [
        path for path in programs if path.lstat().st_mode & 0o6000 and not path.is_symlink()
    ] == []
    assert len(programs) > 1000


def test_no_trace_of_the_machine_that_built_it(image: Unpacked) -> None:
    hosts = sorted(_package_hosts())

    traces = [
        f"{name}: {host}" for name, text in image.texts.items() for host in hosts if host in text
    ]
    for layer in image.layers:
        with tarfile.open(layer) as tar:
            for member in tar:
                content = tar.extractfile(member) if member.isfile() else None
                data = content.read() if content else member.linkname.encode()
                traces += [f"{member.name}: {host}" for host in hosts if host.encode() in data]
                assert not any(host in member.name for host in hosts)
    assert traces == []


@pytest.mark.parametrize("name", ["hostname", "hosts", "resolv.conf", "machine-id", "pip.conf"])
def test_settings_of_the_machine_that_built_it_stay_there(image: Unpacked, name: str) -> None:
    path = image.root / "etc" / name

    assert not path.exists() or path.stat().st_size == 0


def test_it_helps(image: Unpacked) -> None:
    assert "banlieue controller" in image.run("banlieue", "--help")
    assert "--leader-elect" in image.run("banlieue", "controller", "--help")
    assert banlieue.__version__ in image.run("banlieue", "--version")


def test_it_runs_as_a_user_who_can_write_nothing(image: Unpacked) -> None:
    script = """
import errno, getpass, os, tempfile
print(os.getuid(), os.getgid(), os.getgroups(), getpass.getuser(), os.path.expanduser("~"))
status = open("/proc/self/status").read()
print([line.split()[1] for line in status.splitlines() if line.startswith(("CapEff", "CapBnd"))])
try:
    open("/usr/written", "w")
except OSError as error:
    print(errno.errorcode[error.errno])
tempfile.TemporaryFile().write(b"x")
"""

    assert image.python(script).splitlines() == [
        "65532 65532 [] banlieue /nonexistent",
        "['0000000000000000', '0000000000000000']",
        "EROFS",
    ]


def test_all_bytecode_is_there_and_valid(image: Unpacked) -> None:
    count, *bad = image.python(_BYTECODE).splitlines()

    assert bad == []
    assert int(count) > 1000


def test_libvirt_reaches_its_library(image: Unpacked) -> None:
    script = """
import libvirt
connection = libvirt.open("test:///default")
print(connection.getType(), [domain.name() for domain in connection.listAllDomains()])
connection.close()
"""

    assert image.python(script) == "TEST ['test']\n"


def test_every_backend_loads(image: Unpacked) -> None:
    script = """
from banlieue.sdk.registry import backend_names, load_backend
for name in backend_names():
    print(load_backend(name).name)
"""

    assert tuple(image.python(script).split()) == backend_names()


def test_the_kubernetes_client_is_the_half_that_is_used(image: Unpacked) -> None:
    script = """
import importlib.util, pkgutil, importlib
import kopf, kubernetes.aio
from banlieue.sdk import runtime
for module in pkgutil.walk_packages(runtime.__path__, runtime.__name__ + "."):
    importlib.import_module(module.name)
for module in pkgutil.iter_modules(kubernetes.aio.__path__, "kubernetes.aio."):
    if module.ispkg:
        importlib.import_module(module.name)
print(importlib.util.find_spec("kubernetes.client"), kubernetes.__version__)
"""

    answer = image.python(script).split()

    assert answer[0] == "None"
    locked = (Path(__file__).parents[2] / "requirements/image.txt").read_text()
    assert f"kubernetes=={answer[1]} " in locked


def test_what_is_installed_is_what_is_locked(image: Unpacked) -> None:
    script = """
from importlib.metadata import distributions
for found in distributions():
    print(found.metadata["Name"].lower().replace("_", "-"), found.version)
"""
    installed = dict(line.split() for line in image.python(script).splitlines())
    installed.pop("banlieue")

    locked = (Path(__file__).parents[2] / "requirements/image.txt").read_text()
    pins = dict(re.findall(r"^([a-z0-9-]+)==([^ ;]+)", locked, re.MULTILINE))
    assert {name: pins.get(name) for name in installed} == installed
    assert {"libvirt-python", "kopf", "kubernetes", "pyvmomi"} <= installed.keys()


def test_the_first_process_of_a_pod_ends_soon_when_told_to(image: Unpacked) -> None:
    with _started(image.command("sh", "-c", _CONTROLLER)) as process:
        first = _first_line(process)
        told = time.monotonic()
        os.kill(_child_of(process.pid), signal.SIGTERM)
        process.wait(ENDS_WITHIN_SECONDS)

    assert process.returncode == 0
    assert json.loads(first)
    assert time.monotonic() - told < ENDS_WITHIN_SECONDS


def test_a_release_brings_it_under_its_released_name(image: Unpacked, tmp_path: Path) -> None:
    version = semantic_version(banlieue.__version__)

    assert release.main(["--image", "registry.example/banlieue", "--out", str(tmp_path)]) == 0

    lines = (tmp_path / "checksums.txt").read_text().splitlines()
    listed = {name: digest for digest, name in (line.split("  ") for line in lines)}
    assert listed.keys() == {path.name for path in tmp_path.iterdir()} - {"checksums.txt"}
    for name, digest in listed.items():
        with (tmp_path / name).open("rb") as file:
            assert hashlib.file_digest(file, "sha256").hexdigest() == digest, name
    assert f"banlieue-{banlieue.__version__}-py3-none-any.whl" in listed
    with tarfile.open(tmp_path / f"banlieue-{version}-image.tar") as tar:
        content = tar.extractfile("manifest.json")
        assert content
        (entry,) = json.load(content)
        assert entry["RepoTags"] == [f"registry.example/banlieue:{version}"]
        assert entry["Layers"] == [layer.name for layer in image.layers]
        assert {entry["Config"], *entry["Layers"]} <= set(tar.getnames())


@contextmanager
def _started(command: list[str]) -> Iterator["subprocess.Popen[str]"]:
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _first_line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        assert selector.select(60), "the controller says nothing"
    return process.stdout.readline()


def _child_of(pid: int) -> int:
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)


def _package_hosts() -> set[str]:
    """Hosts that packages of this machine come from: mirrors of Debian, indexes of Python."""
    answers = [[sys.executable, "-m", "pip", "config", "list"]]
    if shutil.which("apt-get"):
        answers.append(["apt-get", "indextargets", "--format", "$(REPO_URI)"])
    text = "\n".join(
        subprocess.run(command, capture_output=True, text=True, check=True).stdout
        for command in answers
    )
    addresses = re.findall(r"[a-z+]+://[^\s'\"]+", text)
    hosts = {host for address in addresses if (host := urlsplit(address).hostname)}
    hosts |= set(re.findall(r"^\S*trusted-host='([^']+)'", text, re.MULTILINE))
    return hosts
