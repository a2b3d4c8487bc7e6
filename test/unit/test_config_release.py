"""What makes a release, apart from kustomize, the wheel and the image."""

import hashlib
import io
import json
import tarfile
from pathlib import Path

import pytest
import yaml

import banlieue
from hack import release
from hack.components import METADATA, Image, ReleaseError, check_series, semantic_version

ROOT = Path(__file__).resolve().parents[2]
CONTRACT = "v1beta2"


def series(*versions: tuple[int, int]) -> dict[str, object]:
    listed = [{"major": it[0], "minor": it[1], "contract": CONTRACT} for it in versions]
    return {"releaseSeries": listed}


def test_this_tree_can_be_released() -> None:
    metadata = yaml.safe_load(METADATA.read_text(encoding="utf-8"))
    check_series(semantic_version(banlieue.__version__), metadata)
    assert metadata["apiVersion"] == "clusterctl.cluster.x-k8s.io/v1alpha3"
    assert metadata["kind"] == "Metadata"
    assert {it["contract"] for it in metadata["releaseSeries"]} == {CONTRACT}


def test_the_settings_name_what_there_is() -> None:
    settings = json.loads((ROOT / "clusterctl-settings.json").read_text(encoding="utf-8"))
    assert settings["name"] == "infrastructure-banlieue"
    assert (ROOT / settings["config"]["configFolder"] / "kustomization.yaml").is_file()
    metadata = yaml.safe_load(METADATA.read_text(encoding="utf-8"))
    check_series(settings["config"]["nextVersion"], metadata)


@pytest.mark.parametrize(
    ("python", "semantic"),
    [
        ("0.1.0", "v0.1.0"),
        ("1.20.3rc2", "v1.20.3-rc.2"),
        ("0.2.0a1", "v0.2.0-alpha.1"),
        ("0.2.0.dev7", "v0.2.0-dev.7"),
    ],
)
def test_a_release_is_named_like_the_package(python: str, semantic: str) -> None:
    assert semantic_version(python) == semantic


def test_other_versions_are_refused() -> None:
    with pytest.raises(ReleaseError, match=r"not of the form"):
        semantic_version("0.1")
    with pytest.raises(ReleaseError, match=r"'0\.1\.0' is no version; give it as v1\.2\.3"):
        check_series("0.1.0", series((0, 1)))


def test_a_version_without_a_series_is_refused() -> None:
    with pytest.raises(ReleaseError, match=r"no release series 0\.2 for v0\.2\.0; add it"):
        check_series("v0.2.0", series((0, 1)))


def test_a_series_from_the_future_is_refused() -> None:
    with pytest.raises(ReleaseError, match=r"lists release series 0\.10, newer than v0\.9\.1"):
        check_series("v0.9.1", series((0, 9), (0, 10)))
    check_series("v0.10.0-rc.1", series((0, 9), (0, 10)))


@pytest.mark.parametrize(
    ("text", "image"),
    [
        ("localhost/banlieue", Image("localhost/banlieue", "v1")),
        ("example.com:5000/team/banlieue", Image("example.com:5000/team/banlieue", "v1")),
        ("example.com:5000/banlieue:v2", Image("example.com:5000/banlieue", "v2")),
        ("example.com/b@sha256:ab", Image("example.com/b", "v1", "sha256:ab")),
    ],
)
def test_an_image_is_read(text: str, image: Image) -> None:
    assert Image.parse(text, "v1") == image


@pytest.mark.parametrize("text", ["", "Example.com/b", "a b", "x@sha256", "x:latest"])
def test_other_images_are_refused(text: str) -> None:
    with pytest.raises(ReleaseError):
        Image.parse(text, "v1")


def archive(path: Path, **files: str) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(name.replace("_json", ".json"))
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    return path


def test_an_image_is_given_its_released_name(tmp_path: Path) -> None:
    manifest = [{"Config": "abc.json", "RepoTags": ["localhost/banlieue:dev"], "Layers": ["l"]}]
    files = {"l": "layer", "manifest_json": json.dumps(manifest), "repositories": "{}"}
    source, target = archive(tmp_path / "old", **files), tmp_path / "new"
    release.rename_image(source, target, "example.com/banlieue:v1.0.0")
    with tarfile.open(target) as tar:
        texts = {it.name: (tar.extractfile(it) or io.BytesIO()).read().decode() for it in tar}
    assert texts.keys() == {"l", "manifest.json"}
    assert texts["l"] == "layer"
    assert json.loads(texts["manifest.json"]) == [
        {**manifest[0], "RepoTags": ["example.com/banlieue:v1.0.0"]}
    ]


def test_what_is_no_image_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ReleaseError, match=r"it has no manifest\.json"):
        release.rename_image(archive(tmp_path / "a", l="x"), tmp_path / "b", "x:1")
    two = archive(tmp_path / "c", manifest_json=json.dumps([{}, {}]))
    with pytest.raises(ReleaseError, match="holds 2 images"):
        release.rename_image(two, tmp_path / "d", "x:1")


def made(folder: Path, **files: str) -> Path:
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    release.write_checksums(folder)
    return folder


def test_the_checksums_are_those_of_the_files(tmp_path: Path) -> None:
    text = (made(tmp_path / "made", b="two", a="one") / "checksums.txt").read_text()
    sums = {
        name: hashlib.sha256(it.encode()).hexdigest() for name, it in (("a", "one"), ("b", "two"))
    }
    assert text == f"{sums['a']}  a\n{sums['b']}  b\n"


def test_a_release_takes_the_place_of_the_one_before_and_of_nothing_else(tmp_path: Path) -> None:
    out = tmp_path / "out"
    release.replace_release(out, made(tmp_path / "first", old="1", both="1"))
    (out / "bench").mkdir()
    (out / "notes").write_text("mine")
    release.replace_release(out, made(tmp_path / "second", both="2", new="2"))
    assert {it.name for it in out.iterdir()} == {"both", "new", "checksums.txt", "bench", "notes"}
    assert (out / "both").read_text() == "2"


def test_a_list_of_files_elsewhere_removes_none_of_them(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    out = tmp_path / "out"
    out.mkdir()
    (out / "checksums.txt").write_text(f"0  ../victim\n0  {victim}\n")
    release.replace_release(out, made(tmp_path / "made", a="1"))
    assert victim.exists()


def test_a_release_of_another_version_than_the_tree_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert release.main(["--version", "v0.1.77", "--out", str(tmp_path / "out")]) == 1
    assert "set __version__ in src/banlieue/__init__.py" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_version_without_a_series_ends_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--version", "v9.9.9", "--no-image", "--no-wheel", "--out", str(tmp_path / "out")]
    assert release.main(arguments) == 1
    assert capsys.readouterr().err == (
        "error: metadata.yaml has no release series 9.9 for v9.9.9; add it, with the Cluster API "
        "contract it meets\n"
    )
    assert not (tmp_path / "out").exists()
