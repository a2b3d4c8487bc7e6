"""Image files as they stream in: an OVA is taken apart, a VMDK looked at. Pure; nothing is stored.

An OVA is a tar archive whose first file is the OVF descriptor (DMTF DSP0243, section 5.2). A bare
VMDK must be stream-optimized, since a host takes no other kind over the network. An OVF in several
files is given by its manifest, which has the digests of all of them.
"""

import re
import struct
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from banlieue.api.reasons import Reason
from banlieue.sdk.errors import InvalidSpec

_BLOCK = 512
MOST_TEXT = 4 * 1024 * 1024
"""Bytes of a descriptor; larger ones are no descriptors."""

_VMDK = b"KDMV"
_VMDK_HEADER = struct.Struct("<4sIIQ")
_COMPRESSED_AND_MARKED = 0x30000
"""Flags of a sparse extent that is compressed and has markers, which makes it stream-optimized."""

_MANIFEST = re.compile(rb"SHA\d+ ?\(")
_LINE = re.compile(rb"(SHA\d+) ?\((.+)\) ?= ?([0-9A-Fa-f]+)")
_FOREIGN = (
    (b"QFI\xfb", "a qcow2 file"),
    (b"\x1f\x8b", "gzip"),
    (b"\xfd7zXZ", "xz"),
    (b"PK", "zip"),
)
_CONVERT = "convert it with `qemu-img convert -O vmdk -o subformat=streamOptimized`"


@dataclass(frozen=True, slots=True)
class Descriptor:
    """The OVF descriptor of an OVA."""

    text: str


@dataclass(frozen=True, slots=True)
class BareDisk:
    """A VMDK came instead of an OVA; its disk is of that size."""

    capacity_kib: int


@dataclass(frozen=True, slots=True)
class FileBegins:
    """The next pieces are this file's; `size` is None where only the end of the stream tells."""

    name: str
    size: int | None


@dataclass(frozen=True, slots=True)
class FilePiece:
    """Bytes of the file that began last."""

    content: bytes


@dataclass(frozen=True, slots=True)
class FileEnds:
    """The file that began last is complete."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The manifest of an OVF in several files: the digest of each, by name."""

    digests: Mapping[str, tuple[str, str]]


Event = Descriptor | BareDisk | FileBegins | FilePiece | FileEnds | Manifest

DISK = "disk.vmdk"
"""The name of the file that a bare VMDK is told as."""


class Unpacking:
    """Turns pieces of any size into events."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._parser: _Tar | None = None
        self._bare = False
        self._manifest = False

    def feed(self, piece: bytes) -> Iterator[Event]:
        """What a piece brings.

        Raises:
            InvalidSpec: it is no image of a kind that can be imported here, or damaged.
        """
        if self._bare:
            yield FilePiece(piece)
        elif self._parser is not None:
            yield from self._parser.feed(piece)
        else:
            self._buffer += piece
            if self._manifest or _MANIFEST.match(self._buffer):
                self._manifest = True
                if len(self._buffer) > MOST_TEXT:
                    raise damaged("its manifest is larger than 4 MiB")
            elif len(self._buffer) >= _BLOCK:
                yield from self._begin(bytes(self._buffer))

    def end(self) -> Iterator[Event]:
        """What the end of the stream brings; raises like `feed`."""
        if self._bare:
            yield FileEnds()
        elif self._manifest:
            yield Manifest(_digests(bytes(self._buffer)))
        elif self._parser is None or not self._parser.complete:
            raise damaged("the file ends too early")

    def _begin(self, start: bytes) -> Iterator[Event]:
        self._buffer.clear()
        if start.startswith(_VMDK):
            self._bare = True
            yield BareDisk(_capacity(start))
            yield FileBegins(DISK, None)
            yield FilePiece(start)
            return
        if start[257:262] != b"ustar":
            raise _foreign(start)
        self._parser = _Tar()
        yield from self._parser.feed(start)


class _Tar:
    """A tar archive, block by block."""

    def __init__(self) -> None:
        self.complete = False
        self._buffer = bytearray()
        self._left = 0
        self._padding = 0
        self._text: bytearray | None = None
        self._shown = False
        self._extra: dict[str, str] = {}
        self._extends = b""
        self._described = False

    def feed(self, piece: bytes) -> Iterator[Event]:
        self._buffer += piece
        while self._buffer and not self.complete:
            if self._left:
                yield from self._content()
            elif self._padding:
                done = min(self._padding, len(self._buffer))
                del self._buffer[:done]
                self._padding -= done
            elif len(self._buffer) < _BLOCK:
                return
            else:
                header = bytes(self._buffer[:_BLOCK])
                del self._buffer[:_BLOCK]
                yield from self._entry(header)

    def _entry(self, header: bytes) -> Iterator[Event]:
        if not header.strip(b"\0"):
            if not self._described:
                raise damaged("it holds no OVF descriptor")
            self.complete = True
            return
        try:
            info = tarfile.TarInfo.frombuf(header, "utf-8", "surrogateescape")
        except tarfile.HeaderError as error:
            raise damaged("it is no archive as OVAs are") from error
        self._shown, self._text, self._extends = False, None, b""
        name, size = info.name, info.size
        if info.type in {tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE}:
            self._extends, self._text = info.type, bytearray()
        else:
            # Names and sizes that the header has no room for come before it.
            name, size = self._extra.get("path", name), int(self._extra.get("size", size))
            self._extra = {}
        self._left, self._padding = size, -size % _BLOCK
        if not self._extends and info.isreg():
            yield from self._file(name.removeprefix("./"), size)
        if (self._text is not None) and size > MOST_TEXT:
            raise damaged("its descriptor is larger than 4 MiB")
        if not size:
            yield from self._over()

    def _file(self, name: str, size: int) -> Iterator[Event]:
        if name.lower().endswith(".ovf"):
            self._text = bytearray()
        elif not name.lower().endswith((".mf", ".cert")):
            if not self._described:
                raise damaged("its first file is not the OVF descriptor")
            self._shown = True
            yield FileBegins(name, size)

    def _content(self) -> Iterator[Event]:
        taken = bytes(self._buffer[: self._left])
        del self._buffer[: self._left]
        self._left -= len(taken)
        if self._text is not None:
            self._text += taken
        elif self._shown:
            yield FilePiece(taken)
        if not self._left:
            yield from self._over()

    def _over(self) -> Iterator[Event]:
        if self._shown:
            self._shown = False
            yield FileEnds()
        elif self._text is not None:
            text, self._text = bytes(self._text), None
            if self._extends:
                self._extra |= _extended(self._extends, text)
                return
            self._described = True
            yield Descriptor(text.decode("utf-8", "replace"))


def _extended(kind: bytes, text: bytes) -> dict[str, str]:
    """What a header in front of another one says about it: its path, and its size."""
    if kind == tarfile.GNUTYPE_LONGNAME:
        return {"path": text.rstrip(b"\0").decode("utf-8", "surrogateescape")}
    found: dict[str, str] = {}
    while (space := text.find(b" ")) > 0:
        length = int(text[:space]) if text[:space].isdigit() else 0
        key, _, value = text[space + 1 : length - 1].partition(b"=")
        if length <= space:
            raise damaged("it is no archive as OVAs are")
        found[key.decode("utf-8", "replace")] = value.decode("utf-8", "surrogateescape")
        text = text[length:]
    if not found.get("size", "0").isdigit():
        raise damaged("it is no archive as OVAs are")
    return {key: found[key] for key in ("path", "size") if key in found}


def _digests(text: bytes) -> dict[str, tuple[str, str]]:
    """Algorithm and digest of each file of a manifest; raises for what protects nothing."""
    found: dict[str, tuple[str, str]] = {}
    for line in filter(None, map(bytes.strip, text.splitlines())):
        told = _LINE.fullmatch(line)
        if told is None:
            raise damaged("its manifest cannot be read")
        algorithm, name, digest = (part.decode("utf-8", "replace") for part in told.groups())
        if algorithm.lower() not in {"sha256", "sha512"}:
            raise damaged(f"its manifest has digests of {algorithm}; make one with SHA256")
        if "/" in name or name.startswith("."):
            raise damaged("its manifest names a file in another folder")
        found[name] = (algorithm.lower(), digest.lower())
    return found


def _capacity(start: bytes) -> int:
    """KiB of a stream-optimized VMDK's disk, from its header."""
    _magic, _version, flags, sectors = _VMDK_HEADER.unpack_from(start)
    if flags & _COMPRESSED_AND_MARKED != _COMPRESSED_AND_MARKED or not sectors:
        raise damaged(f"it is a VMDK, but not a stream-optimized one; {_CONVERT}")
    return int(sectors) // 2


def _foreign(start: bytes) -> InvalidSpec:
    for magic, kind in _FOREIGN:
        if start.startswith(magic):
            return damaged(f"it is {kind}; {_CONVERT}, or unpack it")
    if start.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<"):
        return damaged(
            "it is a text such as an OVF descriptor, whose disks no checksum covers; name its "
            "manifest (.mf) instead, with the checksum of that, or pack it into an OVA"
        )
    return damaged(f"it is of no known kind; {_CONVERT}")


def damaged(what: str) -> InvalidSpec:
    """The error of a file that cannot be imported."""
    return InvalidSpec(
        Reason.IMAGE_IMPORT_FAILED,
        f"what the URL gives is no OVA and no VMDK that can be imported: {what}",
    )
