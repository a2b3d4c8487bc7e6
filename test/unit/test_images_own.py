import subprocess
from pathlib import Path

import pytest

from hack.images import buildah, own, slim
from hack.images.own import OwnImage, parse_settings, pip_configuration
from hack.images.store import ImageError

SOURCES = ("Dockerfile", ".dockerignore", "LICENSE", "README.md", "pyproject.toml")
GIT = ("git", "-c", "user.name=n", "-c", "user.email=e@example.com")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    for name in (*SOURCES, "requirements/build.txt", "requirements/image.txt"):
        _write(root / name, name)
    _write(root / "hack/images/slim.py", "slim")
    _write(root / "src/banlieue/__init__.py", '__version__ = "7.8.9"\n')
    for folder in own.MANIFESTS:
        _write(root / "config" / folder / "role.yaml", "role")
    _write(root / "docs/page.md", "page")
    return root


def _folder(path: str, folders: set[str]) -> str:
    return next((it for it in folders if path.startswith(f"{it}/")), path)


def test_what_is_let_into_the_build_is_what_makes_an_image_stale() -> None:
    lines = (own.ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    let_in = {line.removeprefix("!") for line in lines if line.startswith("!")}
    image = OwnImage("localhost/banlieue:dev")

    assert "*" in lines
    named = {path.relative_to(own.ROOT).as_posix() for path in image.sources()}
    named -= {"Dockerfile", ".dockerignore"}
    assert {_folder(path, let_in) for path in named} == let_in


@pytest.mark.parametrize(
    "changed",
    [
        *SOURCES,
        "src/banlieue/new.py",
        "requirements/image.txt",
        "hack/images/slim.py",
        "config/rbac/role.yaml",
    ],
)
def test_a_change_of_what_is_built_in_makes_the_image_stale(tree: Path, changed: str) -> None:
    image = OwnImage("localhost/banlieue:dev", root=tree)
    before = image.digest()

    _write(tree / changed, "changed")

    assert image.digest() != before


@pytest.mark.parametrize(
    "changed", ["docs/page.md", "src/banlieue/__pycache__/x.pyc", "config/samples/vm.yaml"]
)
def test_other_changes_do_not(tree: Path, changed: str) -> None:
    image = OwnImage("localhost/banlieue:dev", root=tree)
    before = image.digest()

    _write(tree / changed, "changed")

    assert image.digest() == before


def test_the_base_image_and_the_labels_asked_for_count_too(tree: Path) -> None:
    name = "localhost/banlieue:dev"
    images = (
        OwnImage(name, root=tree),
        OwnImage(name, root=tree, base_image="python:3.13"),
        OwnImage(name, root=tree, version="1.0.0"),
        OwnImage(name, root=tree, revision="1.0.0"),
    )

    assert len({image.digest() for image in images}) == len(images)


def test_labels_tell_the_version_and_the_commit_of_what_is_inside(tree: Path) -> None:
    commit = _commit(tree)
    _write(tree / "docs/page.md", "other page")
    _commit(tree)

    assert _labels(tree) == {"VERSION": "7.8.9", "REVISION": commit}


def test_labels_admit_what_is_not_committed(tree: Path) -> None:
    commit = _commit(tree)
    _write(tree / "src/banlieue/new.py", "new")

    assert _labels(tree)["REVISION"] == f"{commit}-dirty"


def test_without_a_repository_the_commit_is_unknown(tree: Path) -> None:
    assert _labels(tree)["REVISION"] == "unknown"


def test_the_environment_wins_over_files_of_pip() -> None:
    listed = "global.timeout='9'\n:env:.timeout='10'\nglobal.index-url='https://i.example/x'\n"

    assert parse_settings(listed) == {"timeout": "10", "index-url": "https://i.example/x"}


def test_pip_learns_in_the_build_what_it_knows_outside(tmp_path: Path) -> None:
    certificates = tmp_path / "ca.crt"
    certificates.write_text("certificates")
    settings = {
        "index-url": "https://user:100%25@i.example/simple",
        "cert": str(certificates),
        "find-links": "/only/here",
    }

    files = pip_configuration(settings, tmp_path)

    assert files == {"pip": tmp_path / "pip.conf", "ca": certificates}
    assert files["pip"].read_text().splitlines()[:3] == [
        "[global]",
        "index-url = https://user:100%25@i.example/simple",
        "cert = /run/ca.pem",
    ]


def test_certificates_that_are_not_there_are_not_promised(tmp_path: Path) -> None:
    files = pip_configuration({"cert": "/nowhere/ca.crt"}, tmp_path)

    assert list(files) == ["pip"]
    assert "cert" not in files["pip"].read_text()


def test_a_missing_program_is_named_with_the_command_that_installs_it() -> None:
    with pytest.raises(ImageError, match=r"needs no-such-a and no-such-b; .*install .*no-such-a n"):
        buildah.require("no-such-a", "no-such-b")


def test_without_root_the_remedy_is_sudo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)

    with pytest.raises(ImageError, match="sudo"):
        buildah.require("sh")


@pytest.fixture
def site_packages(tmp_path: Path) -> Path:
    site = tmp_path / "site-packages"
    _write(
        site / "kubernetes/__init__.py",
        "__project__ = 'kubernetes'\n__version__ = '37.0'\nfrom . import client\n",
    )
    _write(site / "kubernetes/client/__init__.py", "import kubernetes.config\n")
    _write(site / "kubernetes/config/__init__.py", "")
    _write(site / "kubernetes/aio/__init__.py", "import kubernetes.aio.client\n")
    _write(site / "kubernetes/aio/client/__init__.py", "from kubernetes.aio import rest\n")
    _write(site / "kopf/_cogs/helpers/thirdparty.py", "from kubernetes.client import V1Pod\n")
    return site


def test_slimming_leaves_the_asyncio_client_alone(site_packages: Path) -> None:
    removed = slim.slim(site_packages)

    assert removed == len("import kubernetes.config\n")
    left = sorted(path.name for path in (site_packages / "kubernetes").iterdir())
    assert left == ["__init__.py", "aio"]
    names: dict[str, object] = {}
    exec((site_packages / "kubernetes/__init__.py").read_text(), names)  # noqa: S102 - just written
    assert (names["__project__"], names["__version__"]) == ("kubernetes", "37.0")


@pytest.mark.parametrize(
    ("module", "statement"),
    [
        ("other.py", "import kubernetes.config\n"),
        ("other.py", "def late():\n    from kubernetes import client\n"),
        ("other.py", "from kubernetes.client.rest import ApiException\n"),
        ("kubernetes/aio/watch.py", "from ..client import rest\n"),
        ("kubernetes/aio/deep/watch.py", "from ... import dynamic\n"),
    ],
)
def test_slimming_refuses_when_something_needs_the_other_half(
    site_packages: Path, module: str, statement: str
) -> None:
    _write(site_packages / module, statement)

    with pytest.raises(slim.NotSlim, match=module):
        slim.slim(site_packages)
    assert (site_packages / "kubernetes/client/__init__.py").exists()


def test_slimming_knows_relative_imports_that_stay_inside(site_packages: Path) -> None:
    _write(site_packages / "kubernetes/aio/watch.py", "from . import client\n")
    _write(site_packages / "kubernetes/aio/deep/watch.py", "from ..client import rest\n")

    assert slim.slim(site_packages)


def test_slimming_an_environment_without_the_client_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(slim.NotSlim, match="no asyncio client"):
        slim.slim(tmp_path)


def _labels(tree: Path) -> dict[str, str]:
    arguments = OwnImage("localhost/banlieue:dev", root=tree).label_arguments()
    return dict(argument.split("=", 1) for argument in arguments[1::2])


def _commit(tree: Path) -> str:
    if not (tree / ".git").exists():
        subprocess.run([*GIT, "init", "-q", str(tree)], check=True)
    subprocess.run([*GIT, "-C", str(tree), "add", "-A"], check=True)
    subprocess.run([*GIT, "-C", str(tree), "commit", "-q", "-m", "change"], check=True)
    return subprocess.run(
        [*GIT, "-C", str(tree), "rev-parse", "HEAD"], check=True, capture_output=True, text=True
    ).stdout.strip()


def _write(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
