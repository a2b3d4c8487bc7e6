"""Whether a document is an Ignition configuration: a strict reading of the published 3.x fields.

Stricter than Ignition, which only warns of fields it does not know: here they are faults. Covers
what configurations of virtual machines use; LUKS and RAID are known by name only.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote_to_bytes

Value = Any
"""Anything that JSON has."""
Check = Callable[[Value, str], Iterator[str]]

_DATA: Final = re.compile(r"data:[^,]*,")
_UNIT: Final = re.compile(
    r".+\.(service|socket|device|mount|automount|swap|target|path|timer|slice|scope)"
)


def faults_of(document: Value) -> list[str]:
    """Every fault, with where it is; none for a good document."""
    return list(_CONFIG(document, "$"))


def _text(value: Value, at: str) -> Iterator[str]:
    if not isinstance(value, str):
        yield f"{at}: not a string"


def _flag(value: Value, at: str) -> Iterator[str]:
    if not isinstance(value, bool):
        yield f"{at}: not true or false"


def _number(value: Value, at: str) -> Iterator[str]:
    if isinstance(value, bool) or not isinstance(value, int):
        yield f"{at}: not a whole number"


def _mode(value: Value, at: str) -> Iterator[str]:
    yield from _number(value, at)
    if isinstance(value, int) and not 0 <= value <= 0o7777:
        yield f"{at}: no file mode"


def _path(value: Value, at: str) -> Iterator[str]:
    if not isinstance(value, str) or not value.startswith("/") or "//" in value:
        yield f"{at}: not an absolute path"


def _source(value: Value, at: str) -> Iterator[str]:
    if not isinstance(value, str):
        yield f"{at}: not a URL"
    elif not re.match(r"(http|https|tftp|s3|gs|arn|data):", value):
        yield f"{at}: a scheme Ignition does not fetch"
    elif value.startswith("data:") and not _DATA.match(value):
        yield f"{at}: no data URL"


def _version(value: Value, at: str) -> Iterator[str]:
    if value not in {f"3.{minor}.0" for minor in range(7)}:
        yield f"{at}: not a version of specification 3"


def _unit_name(value: Value, at: str) -> Iterator[str]:
    if not isinstance(value, str) or not _UNIT.fullmatch(value):
        yield f"{at}: not the name of a unit"


def _anything(value: Value, at: str) -> Iterator[str]:
    del value, at
    yield from ()


def _each(check: Check, key: str | None = None) -> Check:
    """A list whose entries pass a check and, with a key, differ in it."""

    def checked(value: Value, at: str) -> Iterator[str]:
        if not isinstance(value, list):
            yield f"{at}: not a list"
            return
        seen = set()
        for number, entry in enumerate(value):
            yield from check(entry, f"{at}[{number}]")
            name = entry.get(key) if key and isinstance(entry, dict) else None
            if name is not None and name in seen:
                yield f"{at}[{number}]: {key} {name} was there before"
            seen.add(name)

    return checked


def _object(fields: Mapping[str, Check], *needed: str) -> Check:
    """An object of just these fields, of which some are needed."""

    def checked(value: Value, at: str) -> Iterator[str]:
        if not isinstance(value, dict):
            yield f"{at}: not an object"
            return
        for name in sorted(value.keys() - fields.keys()):
            yield f"{at}.{name}: no such field"
        for name in needed:
            if name not in value:
                yield f"{at}.{name}: missing"
        for name, check in fields.items():
            if name in value:
                yield from check(value[name], f"{at}.{name}")

    return checked


_HEADER = _object({"name": _text, "value": _text}, "name")
_RESOURCE_FIELDS: Mapping[str, Check] = {
    "source": _source,
    "compression": _text,
    "verification": _object({"hash": _text}),
    "httpHeaders": _each(_HEADER, "name"),
}
_RESOURCE = _object(_RESOURCE_FIELDS)
_REFERENCE = _object(_RESOURCE_FIELDS, "source")
_OWNER = _object({"id": _number, "name": _text})
_NODE: Mapping[str, Check] = {"path": _path, "overwrite": _flag, "user": _OWNER, "group": _OWNER}
_FILE = _object({**_NODE, "contents": _RESOURCE, "append": _each(_RESOURCE), "mode": _mode}, "path")
_DIRECTORY = _object({**_NODE, "mode": _mode}, "path")
_LINK = _object({**_NODE, "target": _text, "hard": _flag}, "path")
_DROPIN = _object({"name": _text, "contents": _text}, "name")
_SYSTEMD_UNIT = _object(
    {
        "name": _unit_name,
        "enabled": _flag,
        "mask": _flag,
        "contents": _text,
        "dropins": _each(_DROPIN, "name"),
    },
    "name",
)
_USER = _object(
    {
        "name": _text,
        "passwordHash": _text,
        "sshAuthorizedKeys": _each(_text),
        "uid": _number,
        "gecos": _text,
        "homeDir": _text,
        "noCreateHome": _flag,
        "primaryGroup": _text,
        "groups": _each(_text),
        "noUserGroup": _flag,
        "noLogInit": _flag,
        "shell": _text,
        "shouldExist": _flag,
        "system": _flag,
    },
    "name",
)
_GROUP = _object(
    {"name": _text, "gid": _number, "passwordHash": _text, "shouldExist": _flag, "system": _flag},
    "name",
)
_CONFIG = _object(
    {
        "ignition": _object(
            {
                "version": _version,
                "config": _object({"merge": _each(_REFERENCE), "replace": _REFERENCE}),
                "timeouts": _object({"httpResponseHeaders": _number, "httpTotal": _number}),
                "security": _object(
                    {"tls": _object({"certificateAuthorities": _each(_REFERENCE)})}
                ),
                "proxy": _object(
                    {"httpProxy": _text, "httpsProxy": _text, "noProxy": _each(_text)}
                ),
            },
            "version",
        ),
        "storage": _object(
            {
                "disks": _anything,
                "raid": _anything,
                "luks": _anything,
                "filesystems": _anything,
                "files": _each(_FILE, "path"),
                "directories": _each(_DIRECTORY, "path"),
                "links": _each(_LINK, "path"),
            }
        ),
        "systemd": _object({"units": _each(_SYSTEMD_UNIT, "name")}),
        "passwd": _object({"users": _each(_USER, "name"), "groups": _each(_GROUP, "name")}),
        "kernelArguments": _object({"shouldExist": _each(_text), "shouldNotExist": _each(_text)}),
    },
    "ignition",
)


def files_of(document: Mapping[str, Any]) -> dict[str, str]:
    """Text of the files that a document carries itself, by path."""
    found = {}
    for file in document.get("storage", {}).get("files", ()):
        source = file.get("contents", {}).get("source", "data:,")
        if source.startswith("data:,"):
            found[file["path"]] = unquote_to_bytes(source.removeprefix("data:,")).decode()
    return found
