"""Storage policies, as the storage policy service of a vCenter tells them.

The service has an endpoint of its own and takes the session of the vCenter by its cookie, which
travels as a SOAP header.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from pyVmomi import VmomiSupport, pbm

from banlieue.providers.vsphere.client.creates import CALL_TIMEOUT
from banlieue.providers.vsphere.client.session import Login, Session
from banlieue.providers.vsphere.client.transport import Endpoint, Stub, Trust

_PATH = "/pbm"
_VERSION = "pbm/7.0.0.0"
"""What every vCenter that is not too old for us understands."""

_HUB = "Datastore"


class _PolicyStub(Stub):
    """A stub whose calls carry the vCenter's session."""

    def __init__(self, near: Stub, trust: Trust) -> None:
        endpoint = Endpoint(near.endpoint.host, near.endpoint.port, _PATH)
        version = VmomiSupport.versionMap[_VERSION]
        super().__init__(endpoint, trust, version=version, timeout=CALL_TIMEOUT)
        self._session_cookie = _value(near.cookie)

    def SerializeRequest(self, mo: Any, info: Any, args: Any) -> bytes:  # noqa: ANN401, N802 - pyVmomi's seam
        """Add the session; the base takes all headers away afterwards."""
        VmomiSupport.GetRequestContext()["vcSessionCookie"] = self._session_cookie
        return super().SerializeRequest(mo, info, args)


def _value(cookie: str | None) -> str:
    """`123` of `vmware_soap_session="123"; Path=/`."""
    pair = (cookie or "").partition(";")[0]
    return pair.partition("=")[2].strip().strip('"')


def read_policies(session: Session, names: Iterable[str]) -> dict[str, str]:
    """Ids of those of the storage policies that there are, by name; three calls.

    Raises what the vendor library raises.
    """
    wanted = frozenset(names)

    def read(login: Login) -> dict[str, str]:
        with session.lent(_PolicyStub(login.ops, session.trust)) as stub:
            content = _content(stub)
            manager = pbm.profile.ProfileManager(content.profileManager._moId, stub)  # noqa: SLF001 - as in soap.moid
            found = manager.QueryProfile(
                resourceType=pbm.profile.ResourceType(resourceType="STORAGE"),
                profileCategory="REQUIREMENT",
            )
            told = manager.RetrieveContent(profileIds=list(found)) if found else ()
            return {
                profile.name: profile.profileId.uniqueId
                for profile in told
                if profile.name in wanted
            }

    return session.run(read)


def compatible(
    session: Session, policies: Mapping[str, str], datastores: Iterable[str]
) -> dict[str, frozenset[str]]:
    """Ids of the datastores that fulfil each of the policies, by name; one call each and one more.

    Raises what the vendor library raises.
    """
    hubs = [pbm.placement.PlacementHub(hubType=_HUB, hubId=store) for store in sorted(datastores)]

    def ask(login: Login) -> dict[str, frozenset[str]]:
        with session.lent(_PolicyStub(login.ops, session.trust)) as stub:
            content = _content(stub)
            solver = pbm.placement.PlacementSolver(content.placementSolver._moId, stub)  # noqa: SLF001 - as in soap.moid
            return {name: _fulfilling(solver, policy, hubs) for name, policy in policies.items()}

    return session.run(ask) if hubs else dict.fromkeys(policies, frozenset())


def _fulfilling(solver: Any, policy: str, hubs: list[Any]) -> frozenset[str]:  # noqa: ANN401 - a PlacementSolver
    requirement = pbm.placement.CapabilityProfileRequirement(
        profileId=pbm.profile.ProfileId(uniqueId=policy)
    )
    results = solver.CheckRequirements(
        hubsToSearch=hubs,
        placementSubjectRef=None,
        placementSubjectRequirement=[requirement],
    )
    return frozenset(result.hub.hubId for result in results if not result.error)


def _content(stub: Stub) -> Any:  # noqa: ANN401 - a ServiceInstanceContent
    return pbm.ServiceInstance("ServiceInstance", stub).RetrieveContent()
