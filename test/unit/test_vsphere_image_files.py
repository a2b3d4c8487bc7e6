"""OVAs and VMDKs as they stream in: taken apart whatever the pieces, refused with what to do."""

import hashlib
import io
import tarfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from banlieue.api.reasons import Reason
from banlieue.providers.vsphere.images.formats import (
    DISK,
    BareDisk,
    Descriptor,
    FileBegins,
    FileEnds,
    FilePiece,
    Manifest,
    Unpacking,
)
from banlieue.sdk.errors import InvalidSpec
from test.kit.imagefiles import archive, descriptor, manifest, ova, vmdk

_KIB_PER_GIB = 1024 * 1024


def _events(content: bytes, sizes: list[int]) -> list[object]:
    """All events, with the pieces of each file put together."""
    found: list[object] = []
    unpacking, rest = Unpacking(), content
    index = 0
    while rest:
        size = sizes[index % len(sizes)]
        piece, rest, index = rest[:size], rest[size:], index + 1
        found += unpacking.feed(piece)
    found += unpacking.end()
    whole: list[object] = []
    for event in found:
        if isinstance(event, FilePiece) and whole and isinstance(whole[-1], FilePiece):
            whole[-1] = FilePiece(whole[-1].content + event.content)
        else:
            whole.append(event)
    return whole


_SIZES = st.lists(st.integers(1, 70_000), min_size=1, max_size=5)


@settings(max_examples=40, deadline=None)
@given(_SIZES)
def test_an_ova_is_taken_apart_however_it_is_cut(sizes: list[int]) -> None:
    disk = vmdk(size=5000)
    found = _events(ova(disk), [max(size, 97) for size in sizes])
    text = descriptor(len(disk))
    assert found == [
        Descriptor(text),
        FileBegins("disk1.vmdk", len(disk)),
        FilePiece(disk),
        FileEnds(),
    ]


@settings(max_examples=20, deadline=None)
@given(_SIZES)
def test_a_vmdk_is_told_as_one_disk(sizes: list[int]) -> None:
    disk = vmdk(gib=7, size=3000)
    found = _events(disk, sizes)
    assert found == [
        BareDisk(7 * _KIB_PER_GIB),
        FileBegins(DISK, None),
        FilePiece(disk),
        FileEnds(),
    ]


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_manifests_are_passed_over_and_long_names_are_kept(form: int) -> None:
    name = f"{'long-' * 30}disk.vmdk"
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as tar:
        for file, content in (
            ("a.ovf", descriptor(3, name=name).encode()),
            ("a.mf", b"SHA256(a.ovf)= 00"),
            (name, b"abc"),
        ):
            info = tarfile.TarInfo(file)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    found = _events(out.getvalue(), [512])
    assert found[1:] == [FileBegins(name, 3), FilePiece(b"abc"), FileEnds()]


def test_a_size_that_a_header_has_no_room_for_comes_before_it() -> None:
    """Disks of 8 GiB and more, as some archivers write them."""
    plain = archive({"./a.ovf": descriptor(3).encode(), "./disk1.vmdk": b"abc"})
    told = tarfile.TarInfo("./PaxHeaders/disk1.vmdk")
    told.type, told.size = tarfile.XHDTYPE, len(b"10 size=3\n")
    header = told.tobuf(tarfile.USTAR_FORMAT) + b"10 size=3\n".ljust(512, b"\0")
    start = plain.index(b"./disk1.vmdk")
    other = tarfile.TarInfo("./disk1.vmdk")
    other.size = 0
    content = plain[:start] + header + other.tobuf(tarfile.USTAR_FORMAT) + plain[start + 512 :]
    found = _events(content, [700])
    assert found[1:] == [FileBegins("disk1.vmdk", 3), FilePiece(b"abc"), FileEnds()]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"QFI\xfb" + bytes(1000), "qcow2"),
        (b"\x1f\x8b" + bytes(1000), "gzip"),
        (b"<?xml version='1.0'?>" + bytes(1000), "name its manifest"),
        (bytes(4096), "no known kind"),
        (vmdk(size=1000, flags=1), "not a stream-optimized one"),
        (archive({"disk1.vmdk": b"a"}), "first file is not the OVF descriptor"),
        (archive({"readme.mf": b"a"}), "no OVF descriptor"),
        (ova(vmdk(size=5000))[:3000], "ends too early"),
        (vmdk(size=1000)[:100], "ends too early"),
    ],
)
def test_what_cannot_be_imported_says_what_to_do(content: bytes, told: str) -> None:
    with pytest.raises(InvalidSpec, match=told) as refused:
        _events(content, [700])
    assert refused.value.reason is Reason.IMAGE_IMPORT_FAILED


@settings(max_examples=20, deadline=None)
@given(_SIZES)
def test_a_manifest_gives_the_digests_of_all_files(sizes: list[int]) -> None:
    content = manifest({f"disk{number}.vmdk": bytes([number]) for number in range(9)})
    (found,) = _events(content, sizes)
    assert isinstance(found, Manifest)
    assert len(found.digests) == 9
    algorithm, digest = found.digests["disk3.vmdk"]
    assert (algorithm, digest) == ("sha256", hashlib.sha256(bytes([3])).hexdigest())


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"SHA1(a.ovf)= 00ff\n", "digests of SHA1"),
        (b"SHA256(../a.ovf)= 00ff\n", "another folder"),
        (b"SHA256(a.ovf)= 00ff\nrubbish\n", "cannot be read"),
    ],
)
def test_a_manifest_that_protects_nothing_is_refused(content: bytes, told: str) -> None:
    with pytest.raises(InvalidSpec, match=told):
        _events(content, [5])


def test_a_damaged_archive_is_refused() -> None:
    content = bytearray(ova(vmdk(size=1000)))
    content[0] ^= 0xFF
    with pytest.raises(InvalidSpec, match="no archive"):
        _events(bytes(content), [4096])
