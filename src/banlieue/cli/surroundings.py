"""What a dry run of the scheduler looks at: a live cluster, or a directory of YAML."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from banlieue.api import names
from banlieue.api.infrastructure.machine import Machine
from banlieue.api.kinds import KINDS
from banlieue.api.meta import Resource
from banlieue.api.resources import (
    CONFIG_MAPS,
    NAMESPACES,
    PROVIDER_CLASSES,
    PROVIDERS,
    VIRTUAL_MACHINES,
    VM_CLASSES,
    VM_IMAGES,
)
from banlieue.cli import structure
from banlieue.cli.manifests import Document, ManifestInvalid, read_directory, read_model
from banlieue.controller.infra.kinds import named_kinds
from banlieue.controller.snapshot import Snapshot
from banlieue.sdk import installation
from banlieue.sdk.kube import ApiClient, Forbidden, Key, NotFound, Obj

_OURS = {f"{kind.resource.api_version}/{kind.resource.kind}": kind for kind in KINDS}
_NEEDED = (PROVIDERS, PROVIDER_CLASSES, VM_CLASSES, VM_IMAGES)
_NAMESPACE_NAME = "kubernetes.io/metadata.name"


class NotReadable(Exception):
    """The cluster does not show what is needed; the message says which right or CRD is missing."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Objects, which installation they belong to, and what could not be looked at."""

    snapshot: Snapshot
    installation_id: str = ""
    recovery: bool = False
    notes: list[str] = field(default_factory=list)


def from_directory(directory: Path, namespaces: Iterable[str], system: str) -> Surroundings:
    """Read Providers with their status, classes, images and VirtualMachines from files.

    Objects of other kinds are passed over. A namespace that is not among the files has no labels
    but its name.

    Raises:
        ManifestInvalid: a file is no YAML, or an object of ours breaks its schema.
    """
    found: list[tuple[Resource, Obj]] = []
    notes: list[str] = []
    others: list[Document] = []
    for document in read_directory(directory):
        resource = _resource(document, notes)
        if resource is not None:
            found.append((resource, document.obj))
        else:
            others.append(document)
    found += _machines_among(others, named_kinds(Snapshot(found)))
    there = {Key.of(obj).name for resource, obj in found if resource == NAMESPACES}
    for name in sorted(set(namespaces) - there):
        found.append((NAMESPACES, _bare_namespace(name)))
        notes.append(
            f"namespace {name} is not in {directory}; only its name is known of its labels"
        )
    snapshot = Snapshot(found)
    config_map = snapshot.get(CONFIG_MAPS, Key(system, names.INSTALLATION_CONFIG_MAP))
    return _surroundings(snapshot, installation.read(config_map, ""), notes)


def _machines_among(
    documents: Iterable[Document], kinds: Iterable[Resource]
) -> Iterator[tuple[Resource, Obj]]:
    """Machines that Cluster API made: they take room, and groups of them stay apart."""
    known = {f"{kind.api_version}/{kind.kind}": kind for kind in kinds}
    for document in documents:
        kind = known.get(document.kind)
        if kind is not None and _is_of_cluster_api(document.obj):
            read_model(document, Machine)
            yield kind, document.obj


def _is_of_cluster_api(machine: Obj) -> bool:
    """Whether no VirtualMachine stands for it, which would be counted itself."""
    return not (machine.get("spec") or {}).get("virtualMachineRef")


def _resource(document: Document, notes: list[str]) -> Resource | None:
    """Where an object belongs, None when it does not matter; ours are checked."""
    kind = _OURS.get(document.kind)
    if kind is not None:
        read_model(document, kind)
        passed_over = structure.unknown(document.obj, kind)
        if passed_over:
            notes.append(
                f"{document.source}: unknown field {', '.join(passed_over)} is passed over"
            )
        return kind.resource
    return {"v1/Namespace": NAMESPACES, "v1/ConfigMap": CONFIG_MAPS}.get(document.kind)


async def from_cluster(api: ApiClient, namespaces: Iterable[str], system: str) -> Surroundings:
    """Read what the scheduler looks at; writes nothing.

    Raises:
        NotReadable: the CRDs are missing, or we may not list them.
        ApiError: the API server does not answer.
    """
    wanted, notes = sorted(set(namespaces)), list[str]()
    found: list[tuple[Resource, Obj]] = []
    for resource in _NEEDED:
        found += [(resource, obj) for obj in await _list(api, resource)]
    found += [(VIRTUAL_MACHINES, obj) for obj in await _machines(api, wanted, notes)]
    for kind in named_kinds(Snapshot(found)):
        found += [(kind, obj) for obj in await _machines_of_cluster_api(api, kind, notes)]
    found += [(NAMESPACES, await _namespace(api, name, notes)) for name in wanted]
    known: installation.Installation | None = None
    try:
        known = await installation.read_live(api, system)
    except Forbidden:
        notes.append(f"ConfigMap {names.INSTALLATION_CONFIG_MAP} in {system} may not be read")
    else:
        if known is not None and not known.confirmed:
            notes.append(
                "the installation is not confirmed for this cluster: nothing is placed until "
                "`banlieue recover --confirm`"
            )
    return _surroundings(Snapshot(found), known, notes)


def _surroundings(
    snapshot: Snapshot, known: installation.Installation | None, notes: list[str]
) -> Surroundings:
    if known is None:
        notes.append(
            "the installation's id is not known: machines that were seen on a backend are taken "
            "to be in its free memory"
        )
        return Surroundings(snapshot, notes=notes)
    return Surroundings(snapshot, known.id, known.recovery, notes)


async def _list(api: ApiClient, resource: Resource, namespace: str = "") -> list[Obj]:
    try:
        return await api.list(resource, namespace=namespace)
    except Forbidden as error:
        raise NotReadable(
            f"you may not list {resource.plural}: {error.message}; ask for the right to read them, "
            "or use --from with files somebody gives you"
        ) from error
    except NotFound as error:
        raise NotReadable(
            f"{resource.plural} do not exist in this cluster; install the CRDs with "
            "`banlieue crds | kubectl apply --server-side -f -`"
        ) from error


async def _machines(api: ApiClient, namespaces: Iterable[str], notes: list[str]) -> list[Obj]:
    """All VirtualMachines, or those of the namespaces that matter most where more is refused."""
    try:
        return await api.list(VIRTUAL_MACHINES)
    except Forbidden:
        notes.append(
            "VirtualMachines of other namespaces may not be read: room promised to them counts "
            "only where a Provider reports it"
        )
    return [obj for name in namespaces for obj in await _list(api, VIRTUAL_MACHINES, name)]


async def _machines_of_cluster_api(api: ApiClient, kind: Resource, notes: list[str]) -> list[Obj]:
    """Those of one kind; what cannot be read takes room only where a Provider reports it."""
    try:
        listed = await api.list(kind)
    except NotFound:
        return []  # the class names a kind that is not installed
    except Forbidden:
        notes.append(
            f"{kind.plural} of all namespaces may not be read: those that Cluster API made count "
            "only where a Provider reports them"
        )
        return []
    found = []
    for obj in filter(_is_of_cluster_api, listed):
        try:
            read_model(Document(obj, f"{kind.kind} {Key.of(obj)}"), Machine)
        except ManifestInvalid as error:
            notes.append(f"{error}; it does not count")
        else:
            found.append(obj)
    return found


async def _namespace(api: ApiClient, name: str, notes: list[str]) -> Obj:
    try:
        return await api.get(NAMESPACES, Key("", name))
    except NotFound:
        notes.append(f"namespace {name} does not exist")
    except Forbidden:
        notes.append(f"namespace {name} may not be read; only its name is known of its labels")
    return _bare_namespace(name)


def _bare_namespace(name: str) -> Obj:
    return {"metadata": {"name": name, "labels": {_NAMESPACE_NAME: name}}}
