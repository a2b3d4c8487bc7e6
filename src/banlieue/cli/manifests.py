"""Reads Kubernetes objects from YAML and JSON files, and says plainly what is wrong with them."""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from banlieue.api import yaml_text
from banlieue.api.meta import ResourceObject
from banlieue.cli import structure
from banlieue.cli.options import NAMESPACE, OBJECT
from banlieue.sdk.kube import Obj

T = TypeVar("T", bound=ResourceObject)

STDIN = "-"
_SUFFIXES = frozenset({".yaml", ".yml", ".json"})
_OBJECTS = frozenset({"model_type", "model_attributes_type", "dict_type"})
"""Errors of pydantic that an object is wanted, in its own terms."""


class ManifestInvalid(Exception):
    """A file or an object in it is not what is wanted; the message names it and the field."""


@dataclass(frozen=True, slots=True)
class Document:
    """One object and where it was read."""

    obj: Obj
    source: str

    @property
    def kind(self) -> str:
        """`apiVersion/kind`, as people write it."""
        return f"{self.obj.get('apiVersion', '?')}/{self.obj.get('kind', '?')}"


class _Loader(yaml_text.Loader):
    """YAML as Kubernetes reads it: a time is a string."""


_Loader.yaml_implicit_resolvers = {
    first: [entry for entry in entries if entry[0] != "tag:yaml.org,2002:timestamp"]
    for first, entries in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_file(name: str) -> list[Document]:
    """All objects of a file, or of the standard input for `-`; lists are taken apart.

    Raises:
        ManifestInvalid: it cannot be read or is no YAML or JSON of objects.
    """
    try:
        text = sys.stdin.read() if name == STDIN else Path(name).read_text(encoding="utf-8")
    except OSError as error:
        raise ManifestInvalid(
            f"{name}: cannot be read: {error.strerror}; name a file that you may read, or - for "
            "the standard input"
        ) from error
    except UnicodeDecodeError as error:
        raise ManifestInvalid(
            f"{name}: cannot be read: it is not UTF-8; save it as UTF-8 text"
        ) from error
    where = "standard input" if name == STDIN else name
    return list(_documents(_parse(text, where), where))


def read_directory(directory: Path) -> Iterator[Document]:
    """All objects of all YAML and JSON files in a directory and below, by file name.

    Raises:
        ManifestInvalid: a file cannot be read or is no YAML or JSON of objects.
    """
    for path in sorted(directory.rglob("*")):
        if path.suffix in _SUFFIXES and path.is_file():
            yield from read_file(str(path))


def parse(document: Document, kind: type[T]) -> T:
    """The object as its model, with every field known and valid.

    Raises:
        ManifestInvalid: it is of another kind, has a field that does not exist, or a wrong value.
    """
    resource = kind.resource
    if document.kind != f"{resource.api_version}/{resource.kind}":
        raise ManifestInvalid(
            f"{document.source} is {document.kind}, not a {resource.kind} of {resource.api_version}"
        )
    unknown = structure.unknown(document.obj, kind)
    if unknown:
        raise ManifestInvalid(
            f"{document.source}: unknown field {', '.join(unknown)}; correct or remove it"
        )
    problems = [*structure.wrong(document.obj, kind), *_names(document.obj)]
    if problems:
        raise ManifestInvalid(f"{document.source}: {'; '.join(problems)}")
    return read_model(document, kind)


def _names(obj: Obj) -> Iterator[str]:
    """What the API server refuses of an object's own name."""
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict):
        return  # its type is told elsewhere
    for field, rule in (("name", OBJECT), ("namespace", NAMESPACE)):
        value = metadata.get(field)
        if value and not (isinstance(value, str) and rule.fits(value)):
            yield f"metadata.{field} is no name: {rule.rule}"


def read_model(document: Document, kind: type[T]) -> T:
    """The object as its model; fields that are not known are passed over.

    Raises:
        ManifestInvalid: a field has a wrong value.
    """
    try:
        return kind.from_api(document.obj)
    except ValidationError as error:
        told = "; ".join(
            f"{_path(it['loc'])}: {_message(it)}" for it in error.errors(include_input=False)
        )
        raise ManifestInvalid(f"{document.source}: {told}") from error


def _parse(text: str, where: str) -> list[Any]:
    form = "JSON" if where.endswith(".json") else "YAML"
    try:
        parsed = [json.loads(text)] if form == "JSON" else [*yaml.load_all(text, Loader=_Loader)]
    except (yaml.YAMLError, ValueError) as error:
        told = " ".join(str(error).split())
        raise ManifestInvalid(f"{where}: not valid {form}: {told}") from error
    except RecursionError as error:
        raise ManifestInvalid(f"{where}: not valid {form}: nested too deeply") from error
    try:
        json.dumps(parsed, default=str, skipkeys=True)
    except (ValueError, RecursionError) as error:
        raise ManifestInvalid(
            f"{where}: nested too deeply, or an anchor is used within itself"
        ) from error
    return parsed


def _documents(parsed: list[Any], where: str) -> Iterator[Document]:
    several = len(parsed) > 1
    for number, item in enumerate(parsed, start=1):
        source = f"{where}, document {number}" if several else where
        if item is None:
            continue
        if not isinstance(item, dict):
            raise ManifestInvalid(f"{source}: not an object but {type(item).__name__}")
        if isinstance(item.get("items"), list) and str(item.get("kind", "")).endswith("List"):
            yield from _items(item["items"], source)
        else:
            yield Document(item, source)


def _items(items: list[Any], source: str) -> Iterator[Document]:
    for number, item in enumerate(items, start=1):
        if not isinstance(item, dict):
            raise ManifestInvalid(f"{source}, item {number}: not an object")
        yield Document(item, f"{source}, item {number}")


def _message(error: ErrorDetails) -> str:
    if error["type"] not in _OBJECTS:
        return error["msg"]
    is_reference = str(error.get("ctx", {}).get("class_name", "")).endswith("Ref")
    return f"must be an object{', such as {name: small}' if is_reference else ''}"


def _path(location: tuple[int | str, ...]) -> str:
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.removeprefix(".") or "the object"
