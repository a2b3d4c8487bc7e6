"""A release before that of this tree, made for tests: it runs, and lacks what a release brings.

Its Deployments run another tag of the image, a kind has one field less, and a role one rule less.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import yaml

from hack.cluster.clusterapi.repository import PROVIDER_COMPONENTS, WriteRelease
from hack.components import write_components
from test.kit.managementcluster import VERSION
from test.kit.yaml_text import yaml_documents

Object = dict[str, Any]

EARLIER: Final = f"{VERSION}-alpha.1"
EARLIER_IMAGE: Final = "localhost/banlieue:earlier"
KIND: Final = "providerclasses.banlieue.io"
FIELD: Final = "logLevel"
"""Of the spec of that kind; it has a default, so that nobody misses it."""
ROLE: Final = "banlieue-system-controller-base"
RULE: Final = "virtualmachines/finalizers"
"""Needed only where an admission plugin enforces permissions of owner references."""


def earlier_release() -> WriteRelease:
    """Writes it as `make release` would have then."""

    def write(folder: Path) -> str:
        components = write_components(folder, EARLIER, EARLIER_IMAGE)
        objects = yaml_documents(components.read_text(encoding="utf-8"))
        _change(objects, KIND, _without_field)
        _change(objects, ROLE, _without_rule)
        text = yaml.safe_dump_all(objects)
        (folder / PROVIDER_COMPONENTS).write_text(text, encoding="utf-8")
        return EARLIER

    return write


def has_field(definition: Object) -> bool:
    """Whether a definition of that kind has the field."""
    return FIELD in _spec_of(definition)


def has_rule(role: Object) -> bool:
    """Whether that role has the rule."""
    return any(RULE in it["resources"] for it in role["rules"])


def _change(objects: list[Object], name: str, change: Callable[[Object], None]) -> None:
    (found,) = [it for it in objects if it["metadata"]["name"] == name]
    change(found)


def _without_field(definition: Object) -> None:
    del _spec_of(definition)[FIELD]


def _without_rule(role: Object) -> None:
    assert has_rule(role)
    role["rules"] = [it for it in role["rules"] if RULE not in it["resources"]]


def _spec_of(definition: Object) -> Object:
    (version,) = definition["spec"]["versions"]
    fields: Object = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    return fields
