"""Ignition configurations: checked, and completed with what is ours. Pure.

Specifications 3.x, and 2.x as Cluster API's kubeadm bootstrap provider writes it. What the user's
document says is never changed: entries are only added, and where it has one of the same path or
name, its own stays.

Source: the configuration specifications of coreos/ignition and flatcar/ignition.
"""

import base64
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from banlieue.api.reasons import Reason
from banlieue.sdk.errors import InvalidSpec
from banlieue.sdk.seed.files import File

NO_DOCUMENT = b'{"ignition":{"version":"3.0.0"}}'
"""What a user who gives no document means; every Ignition of specification 3 reads it."""

LOGIN = "core"
"""The user that systems which read Ignition give to people."""

_VERSION = re.compile(r"(2\.[0-4]\.0|3\.[0-9]{1,2}\.[0-9]{1,2})(-experimental)?")
_PATHS = ("files", "directories", "links")

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Unit:
    """A systemd unit that is enabled."""

    name: str
    text: str


def check(document: bytes) -> Json:
    """The document, if Ignition would take it as far as that can be told from outside.

    Raises:
        InvalidSpec: it would not; the message names the field and quotes nothing.
    """
    try:
        found = json.loads(document.decode(), parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise _invalid(
            f"is not JSON (line {error.lineno}, column {error.colno}); give the Ignition "
            "configuration itself, not what Butane makes it from"
        ) from None
    except (ValueError, RecursionError):
        raise _invalid("is not JSON in UTF-8 as Ignition reads it") from None
    body = _section(found, "", "the document")
    version = _section(body, "ignition", "ignition").get("version")
    if not isinstance(version, str) or not _VERSION.fullmatch(version):
        raise _invalid("needs ignition.version 3.x, such as 3.4.0, or 2.x")
    _is_replaced(body)
    for section, entries, key in _entries(body):
        _check_entries(section, entries, key, unique=version.startswith("3."))
    for number, user in enumerate(_section(body, "passwd", "passwd").get("users") or ()):
        if not isinstance(user.get("sshAuthorizedKeys") or [], list):
            raise _invalid(f"passwd.users[{number}].sshAuthorizedKeys must be a list")
    return body


def _refuse_constant(name: str) -> None:
    raise ValueError(name)


def _entries(body: Json) -> Iterator[tuple[str, Any, str]]:
    """Lists of named things: where they are, what is there, and by what they are known."""
    storage = _section(body, "storage", "storage")
    for name in _PATHS:
        yield f"storage.{name}", storage.get(name), "path"
    yield "systemd.units", _section(body, "systemd", "systemd").get("units"), "name"
    yield "passwd.users", _section(body, "passwd", "passwd").get("users"), "name"


def _check_entries(where: str, entries: object, key: str, *, unique: bool) -> None:
    if entries is None:
        return
    if not isinstance(entries, list):
        raise _invalid(f"{where} must be a list")
    seen: set[str] = set()
    for number, entry in enumerate(entries):
        name = entry.get(key) if isinstance(entry, dict) else None
        if not isinstance(name, str) or not name:
            raise _invalid(f"{where}[{number}] must be an object with {key}")
        if key == "path" and not name.startswith("/"):
            raise _invalid(f"{where}[{number}].path must be absolute")
        if unique and name in seen:
            raise _invalid(f"{where}[{number}] has the {key} of an entry before")
        seen.add(name)


def _section(body: object, key: str, where: str) -> Json:
    """An object in an object, empty when it is not there; without a key the body itself."""
    if not isinstance(body, dict):
        raise _invalid(f"{where} must be an object")
    found = body.get(key) if key else body
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise _invalid(f"{where} must be an object")
    return found


def _invalid(what: str) -> InvalidSpec:
    return InvalidSpec(Reason.USER_DATA_INVALID, f"userData for Ignition {what}")


def complete(
    document: bytes,
    *,
    files: Iterable[File],
    units: Iterable[Unit] = (),
    keys: Sequence[str] = (),
) -> bytes:
    """The document with more files and units, and with keys for the login `core`.

    Raises:
        InvalidSpec: as `check`.
    """
    body = check(document)
    version = str(body["ignition"]["version"])
    if _is_replaced(body):
        # Nothing beside it would count, so the document as a whole is merged into ours.
        body = _around(document, version)
    additions: tuple[tuple[str, str, str, list[Json]], ...] = (
        ("storage", "files", "path", [_file(file, version) for file in files]),
        ("systemd", "units", "name", [_unit(unit) for unit in units]),
    )
    for section, name, key, entries in additions:
        _add(body, section, name, key, entries)
    if keys:
        _add_keys(body, keys)
    return json.dumps(body, separators=(",", ":")).encode()


def _is_replaced(body: Json) -> bool:
    """Whether all of the document but this gives way to another one; empty objects say nothing."""
    config = _section(body["ignition"], "config", "ignition.config")
    return bool(_section(config, "replace", "ignition.config.replace").get("source"))


def _around(document: bytes, version: str) -> Json:
    name = "append" if version.startswith("2.") else "merge"
    source = "data:;base64," + base64.b64encode(document).decode()
    return {"ignition": {"version": version, "config": {name: [{"source": source}]}}}


def _add(body: Json, section: str, name: str, key: str, entries: Sequence[Json]) -> None:
    if not entries:
        return
    holder = body[section] = body.get(section) or {}
    taken = {str(entry[key]) for entry in holder.get(name) or ()}
    holder[name] = [*(holder.get(name) or ()), *(it for it in entries if it[key] not in taken)]


def _add_keys(body: Json, keys: Sequence[str]) -> None:
    passwd = body["passwd"] = body.get("passwd") or {}
    users = list(passwd.get("users") or ())
    login = next((user for user in users if user["name"] == LOGIN), None)
    if login is None:
        login = {"name": LOGIN}
        users.append(login)
    there = list(login.get("sshAuthorizedKeys") or ())
    login["sshAuthorizedKeys"] = [*there, *(key for key in keys if key not in there)]
    passwd["users"] = users


def _file(file: File, version: str) -> Json:
    body: Json = {"path": file.path, "mode": file.mode, "overwrite": True}
    body["contents"] = {"source": "data:," + quote(file.text, safe="/:=")}
    if version.startswith("2."):
        body["filesystem"] = "root"
        if version < "2.2":
            del body["overwrite"]  # not known yet, and what it would allow is the default
    return body


def _unit(unit: Unit) -> Json:
    return {"name": unit.name, "enabled": True, "contents": unit.text}
