"""What a command sees of a Provider's backend: read with the user's rights, opened from here."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from banlieue.api.meta import Resource
from banlieue.api.resources import NAMESPACES, PROVIDER_CLASSES, PROVIDERS, VIRTUAL_MACHINES
from banlieue.api.v1alpha1.provider import Provider
from banlieue.api.v1alpha1.providerclass import ProviderClass
from banlieue.cli.connect import with_client
from banlieue.sdk import tenancy
from banlieue.sdk.backend import Backend
from banlieue.sdk.driver import Connection
from banlieue.sdk.errors import DriverError
from banlieue.sdk.kube import ApiClient, Forbidden, Key, NotFound, Obj
from banlieue.sdk.powers import Adoption, Candidate
from banlieue.sdk.provider.connection import (
    ConnectionInvalid,
    Source,
    make_connection,
    sources,
)
from banlieue.sdk.registry import UnknownBackend, load_backend


class NotReadable(Exception):
    """The Provider or its backend cannot be looked at; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """A Provider with all that is needed to log in to its backend, and what the namespace has.

    `claimed` are ids that VirtualMachines of the namespace adopt, `taken` are all their names,
    `domains` the published names of failure domains by id.
    """

    backend: Backend[Any]
    connection: Connection = field(repr=False)
    claimed: frozenset[str]
    taken: frozenset[str]
    domains: Mapping[str, str]
    notes: tuple[str, ...] = ()


async def read(kubeconfig: str, context: str, provider: Key, namespace: str) -> Surroundings:
    """Read all of it from the cluster.

    Raises:
        ApiError: the cluster cannot be read.
        NotReadable: the Provider is not there or not complete.
    """

    async def gather(api: ApiClient) -> Surroundings:
        return await surroundings(api, provider, namespace)

    return await with_client("adopt", kubeconfig, context, gather)


async def surroundings(api: ApiClient, key: Key, namespace: str) -> Surroundings:
    """As `read`, through a client that is open."""
    provider = Provider.from_api(await _get(api, PROVIDERS, key))
    name = provider.spec.provider_class_ref.name
    of_class = ProviderClass.from_api(await _get(api, PROVIDER_CLASSES, Key("", name)))
    objects = {source: await _read(api, source) for source in sources(provider).all()}
    try:
        backend = load_backend(of_class.spec.backend)
        connection = make_connection(provider, objects)
    except UnknownBackend as error:
        raise NotReadable(str(error)) from None
    except ConnectionInvalid as error:
        raise NotReadable(f"Provider {key}: {error.message}") from None
    present = await api.list(VIRTUAL_MACHINES, namespace=namespace)
    adopting = [((obj.get("spec") or {}).get("adopt") or {}).get("id", "") for obj in present]
    return Surroundings(
        backend=backend,
        connection=connection,
        claimed=frozenset(it.lower() for it in adopting if it),
        taken=frozenset(Key.of(obj).name for obj in present),
        domains={domain.id: domain.name for domain in provider.status.failure_domains},
        notes=await _notes(api, provider, namespace),
    )


def look(around: Surroundings) -> Sequence[Candidate]:
    """Log in to the backend, list its VMs, log out.

    Raises:
        NotReadable: it does not answer, refuses the credentials, or has no such list.
    """
    try:
        with around.backend.connect(around.connection) as driver:
            if not isinstance(driver, Adoption):
                raise NotReadable(f"backend {around.backend.name} cannot adopt VMs")
            return driver.candidates()
    except DriverError as error:
        raise NotReadable(f"the backend cannot be read: {error.message}") from None


async def _get(api: ApiClient, resource: Resource, key: Key) -> Obj:
    try:
        return await api.get(resource, key)
    except NotFound:
        where = str(key) if key.namespace else key.name
        raise NotReadable(f"{resource.kind} {where} does not exist; correct --provider") from None


async def _read(api: ApiClient, source: Source) -> Obj | None:
    resource, key = source
    try:
        return await api.get(resource, key)
    except NotFound:
        return None
    except Forbidden:
        raise NotReadable(
            f"you may not read {resource.kind} {key}, which the backend's login needs; "
            "have an admin of the Provider run this"
        ) from None


async def _notes(api: ApiClient, provider: Provider, namespace: str) -> tuple[str, ...]:
    try:
        found = await api.get(NAMESPACES, Key("", namespace))
    except NotFound:
        return (f"namespace {namespace} does not exist yet",)
    except Forbidden:
        return ()
    labels = found["metadata"].get("labels") or {}
    if tenancy.adoption_allowed(provider, namespace, labels):
        return ()
    missing = "policy.adoption.allowedNamespaces"
    return (f"the Provider does not let namespace {namespace} adopt yet; set its {missing}",)
