"""What has to change about an object so that it is as wanted again. Pure.

What others add is left alone where it does no harm (labels, annotations, defaults of the API
server); lists and everything we name have to be as wanted.
"""

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from banlieue.api.resources import DEPLOYMENTS, PROVIDERS
from banlieue.operator.objects import Wanted
from banlieue.sdk.kube import Obj

Ops = list[dict[str, Any]]

_QUANTITY = re.compile(r"([0-9.]+)(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?")
_DECIMAL = "kMGTPE"
_QUANTITIES = frozenset({"requests", "limits"})


def differences(wanted: Wanted, found: Obj) -> Ops:
    """The JSON patch that makes the object as wanted; empty when it is.

    The hash of what was wanted last, among the annotations, tells what has to be taken away again.
    """
    meta = found["metadata"]
    ops = [
        *_map_ops("labels", wanted.metadata["labels"], meta.get("labels")),
        *_map_ops("annotations", wanted.metadata["annotations"], meta.get("annotations")),
        *_owner_ops(wanted.metadata.get("ownerReferences") or [], meta.get("ownerReferences")),
    ]
    other = bool([op for op in ops if op["path"].startswith("/metadata/annotations")])
    for name, value in wanted.parts.items():
        if other or not same(value, found.get(name)):
            ops.append({"op": "add", "path": f"/{name}", "value": value})
    return ops


def is_another(wanted: Wanted, found: Obj) -> bool:
    """Whether the object can only be made anew: the API server lets these fields never change."""
    role = wanted.parts.get("roleRef")
    if role is not None and role != found.get("roleRef"):
        return True
    if wanted.resource == DEPLOYMENTS:
        selector = (found.get("spec") or {}).get("selector")
        return bool(wanted.parts["spec"]["selector"] != selector)
    return False


def same(wanted: Any, found: Any, name: str = "") -> bool:  # noqa: ANN401 - JSON data
    """Whether what was found holds all that is wanted; nothing and empty are the same."""
    if not wanted and not found:
        return True
    if isinstance(wanted, Mapping) and isinstance(found, Mapping):
        if name in _QUANTITIES:
            return _quantities(wanted) == _quantities(found)
        return all(same(value, found.get(key), key) for key, value in wanted.items())
    if isinstance(wanted, list) and isinstance(found, list):
        return len(wanted) == len(found) and all(
            same(one, other) for one, other in zip(wanted, found, strict=True)
        )
    return bool(wanted == found)


def _map_ops(name: str, wanted: Mapping[str, str], found: Mapping[str, str] | None) -> Ops:
    if found is None:
        return [{"op": "add", "path": f"/metadata/{name}", "value": dict(wanted)}]
    return [
        {"op": "add", "path": f"/metadata/{name}/{_escaped(key)}", "value": value}
        for key, value in sorted(wanted.items())
        if found.get(key) != value
    ]


def _owner_ops(wanted: Sequence[Obj], found: Sequence[Obj] | None) -> Ops:
    """References to Providers are ours alone; those of others stay."""
    there = list(found or ())
    ours = [it for it in there if _is_provider(it)]
    uids = [it.get("uid") for it in wanted]
    if [it.get("uid") for it in ours] == uids and same(list(wanted), ours):
        return []
    left = [*(it for it in there if not _is_provider(it)), *wanted]
    return [{"op": "add", "path": "/metadata/ownerReferences", "value": left}]


def _is_provider(reference: Obj) -> bool:
    return (reference.get("apiVersion"), reference.get("kind")) == (
        PROVIDERS.api_version,
        PROVIDERS.kind,
    )


def _quantities(values: Mapping[str, Any]) -> dict[str, Decimal | str]:
    return {name: _quantity(str(value)) for name, value in values.items()}


def _quantity(text: str) -> Decimal | str:
    """The number a quantity stands for: the API server spells them its own way."""
    match = _QUANTITY.fullmatch(text)
    if match is None:
        return text
    number, unit = Decimal(match[1]), match[2] or ""
    if unit == "m":
        return number / 1000
    if not unit:
        return number
    base = Decimal(1024 if unit.endswith("i") else 1000)
    for _ in range(_DECIMAL.index(unit[0].replace("K", "k")) + 1):
        number *= base
    return number


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
