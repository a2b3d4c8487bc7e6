"""Reads of leaf properties, each a single SOAP call, and what managed objects look like to us.

Managed objects are known by their ids (`vm-42`) everywhere else; pyVmomi's objects are made for the
length of one call. Attributes of managed objects are never read.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyVmomi import vim, vmodl

from banlieue.providers.vsphere.client.session import Login, Session
from banlieue.providers.vsphere.client.transport import Unreadable, Untold

PAGE = 400
"""Objects per reply, so that one reply is decoded in a short burst."""

_COLLECTOR = vmodl.query.PropertyCollector
_NAMED = 5


@dataclass(frozen=True, slots=True)
class Found:
    """One object of a reply: what was asked for and is set, and faults of what cannot be read."""

    kind: str
    moid: str
    values: Mapping[str, Any]
    faults: Mapping[str, Exception] = field(default_factory=dict)

    def get(self, path: str, default: Any = None) -> Any:  # noqa: ANN401 - any property
        """The value of a property path; the default when it is unset."""
        return self.values.get(path, default)

    def ref(self, path: str) -> str | None:
        """The id of the one object a property refers to."""
        value = self.values.get(path)
        return moid(value) if value is not None else None

    def refs(self, path: str) -> tuple[str, ...]:
        """The ids of the objects a property refers to."""
        return tuple(moid(value) for value in self.values.get(path) or ())


def moid(managed: Any) -> str:  # noqa: ANN401 - any managed object
    """The managed object id, unique within one vCenter and type."""
    return str(managed._moId)  # noqa: SLF001 - pyVmomi offers no other way


def kind_of(managed: Any) -> str:  # noqa: ANN401 - any managed object
    """The type name of a managed object, such as `VirtualMachine`."""
    return type(managed).__name__.rpartition(".")[2]


def read(session: Session, start: Mapping[str, type[Any]], paths: Sequence[str]) -> list[Found]:
    """Properties of objects of one type whose ids are known, in one call.

    Args:
        session: the session to read in.
        start: ids and types of the objects; all paths are asked of each.
        paths: leaf property paths.

    Raises:
        ManagedObjectNotFound: one of the objects is gone; its `obj` tells which.
    """
    types = tuple(dict.fromkeys(start.values()))

    def spec(login: Login) -> Any:  # noqa: ANN401 - a FilterSpec
        return _COLLECTOR.FilterSpec(
            objectSet=[
                _COLLECTOR.ObjectSpec(obj=kind(key, login.ops)) for key, kind in start.items()
            ],
            propSet=[property_spec(kind, paths) for kind in types],
        )

    return session.run(lambda login: _retrieve(login, spec(login)), reads=True)


def read_one(session: Session, key: str, kind: type[Any], paths: Sequence[str]) -> Found:
    """Properties of one object whose id is known, in one call; arguments as for `read`.

    Raises:
        ManagedObjectNotFound: it is gone.
        Untold: the answer leaves it out.
    """
    (found,) = read_all(session, {key: kind}, paths)
    return found


def read_all(session: Session, start: Mapping[str, type[Any]], paths: Sequence[str]) -> list[Found]:
    """As `read`, for whoever must not take a part of the objects for all of them.

    Raises:
        ManagedObjectNotFound: one of them is gone.
        Untold: the answer leaves one out.
    """
    told = read(session, start, paths)
    untold = start.keys() - {found.moid for found in told}
    if untold:
        raise Untold(f"nothing is told of {', '.join(sorted(untold)[:_NAMED])}")
    return told


def walk(
    session: Session, start: str, kind: type[Any], steps: Sequence[Any], wanted: Sequence[Any]
) -> list[Found]:
    """Properties of all objects reached from one object, in one call (and one per further page).

    Args:
        session: the session to read in.
        start: id of the first object.
        kind: its type.
        steps: traversal specs, made with `step`.
        wanted: property specs, made with `property_spec`.
    """
    return walk_from(session, (start,), kind, steps, wanted)


def walk_from(
    session: Session,
    starts: Iterable[str],
    kind: type[Any],
    steps: Sequence[Any],
    wanted: Sequence[Any],
) -> list[Found]:
    """As `walk`, from several objects of one type.

    Raises:
        ManagedObjectNotFound: one of the first objects is gone; its `obj` tells which.
    """

    def spec(login: Login) -> Any:  # noqa: ANN401 - a FilterSpec
        first = [
            _COLLECTOR.ObjectSpec(obj=kind(key, login.ops), skip=False, selectSet=list(steps))
            for key in starts
        ]
        return _COLLECTOR.FilterSpec(objectSet=first, propSet=list(wanted))

    return session.run(lambda login: _retrieve(login, spec(login)), reads=True)


def property_spec(kind: type[Any], paths: Iterable[str]) -> Any:  # noqa: ANN401 - a PropertySpec
    """Which properties to read of every object of a type."""
    return _COLLECTOR.PropertySpec(type=kind, pathSet=list(paths))


def step(kind: type[Any], path: str, *onward: str) -> Any:  # noqa: ANN401 - a TraversalSpec
    """A way from an object of that type along a property; it is named `<Type>.<path>`.

    Args:
        kind: type the step leaves from.
        path: property that refers to further objects.
        onward: names of the steps that may follow.
    """
    return _COLLECTOR.TraversalSpec(
        name=f"{kind.__name__.rpartition('.')[2]}.{path}",
        type=kind,
        path=path,
        skip=False,
        selectSet=[_COLLECTOR.SelectionSpec(name=name) for name in onward],
    )


def _retrieve(login: Login, spec: Any) -> list[Found]:  # noqa: ANN401 - a FilterSpec
    collector = _COLLECTOR(login.content.property_collector, login.ops)
    answer = collector.RetrievePropertiesEx([spec], _COLLECTOR.RetrieveOptions(maxObjects=PAGE))
    found: list[Found] = []
    while answer is not None:
        found += [object_content(content) for content in answer.objects]
        if not answer.token:
            break
        answer = _next_page(collector, answer.token)
    return found


def _next_page(collector: Any, token: str) -> Any:  # noqa: ANN401 - a PropertyCollector, a RetrieveResult
    try:
        return collector.ContinueRetrievePropertiesEx(token)
    except vmodl.fault.InvalidArgument as error:
        # Nothing is wrong with anybody's spec: the page was taken, or waited too long.
        raise Unreadable("the rest of a reply is there no more") from error


def object_content(content: Any) -> Found:  # noqa: ANN401 - an ObjectContent
    """One object of a reply; raises `NotAuthenticated` when the reply says so of any property."""
    return Found(
        kind=kind_of(content.obj),
        moid=moid(content.obj),
        values={item.name: item.val for item in content.propSet},
        faults=missing(content.missingSet),
    )


def missing(missing_set: Iterable[Any]) -> dict[str, Exception]:
    """Faults by property path; raises `NotAuthenticated` if the session is what is missing."""
    faults: dict[str, Exception] = {}
    for item in missing_set:
        if isinstance(item.fault, vim.fault.NotAuthenticated):
            raise item.fault
        faults[item.path] = item.fault
    return faults


def find_by_uuid(session: Session, instance_uuid: str) -> tuple[str, ...]:
    """Ids of all VMs and templates of the whole vCenter with that instance UUID, in one call."""

    def find(login: Login) -> tuple[str, ...]:
        index = vim.SearchIndex(login.content.search_index, login.ops)
        hits = index.FindAllByUuid(
            datacenter=None, uuid=instance_uuid, vmSearch=True, instanceUuid=True
        )
        return tuple(moid(hit) for hit in hits or ())

    return session.run(find, reads=True)


def find_child(session: Session, folder: str, name: str) -> str | None:
    """Id of the VM of that name directly in a folder, in one call; None for other kinds."""

    def find(login: Login) -> str | None:
        index = vim.SearchIndex(login.content.search_index, login.ops)
        hit = index.FindChild(entity=vim.Folder(folder, login.ops), name=name)
        return moid(hit) if isinstance(hit, vim.VirtualMachine) else None

    return session.run(find, reads=True)


def granted(
    session: Session, entities: Mapping[str, type[Any]], privileges: Sequence[str]
) -> dict[str, frozenset[str]]:
    """Which of the privileges the session holds on each object, in one call.

    Raises `NotAuthenticated` when the session is not alive, so the answer also proves that it is.
    """

    def ask(login: Login) -> dict[str, frozenset[str]]:
        manager = vim.AuthorizationManager(login.content.authorization_manager, login.ops)
        answer = manager.HasPrivilegeOnEntities(
            entity=[kind(key, login.ops) for key, kind in entities.items()],
            sessionId=login.key,
            privId=list(privileges),
        )
        return {
            moid(item.entity): frozenset(
                privilege.privId for privilege in item.privAvailability if privilege.isGranted
            )
            for item in answer or ()
        }

    return session.run(ask, reads=True)
