"""`clusterctl move` of a workload cluster to another management cluster, as its users have it."""

from dataclasses import replace
from typing import Final

from test.kit.vcsim_control import VCSimControl
from test.kit.workloadground import Ground

_READS: Final = frozenset(
    {
        "CancelWaitForUpdates",
        "ContinueRetrievePropertiesEx",
        "CreateFilter",
        "CreateListView",
        "CreatePropertyCollector",
        "CurrentTime",
        "DestroyPropertyCollector",
        "DestroyPropertyFilter",
        "DestroyView",
        "FindAllByUuid",
        "FindByUuid",
        "HasPrivilegeOnEntities",
        "Login",
        "Logout",
        "ModifyListView",
        "RetrievePropertiesEx",
        "RetrieveServiceContent",
        "SearchDatastoreSubFolders_Task",
        "WaitForUpdatesEx",
    }
)
"""Calls that change nothing but the caller's own session."""
_READS_BY_REST: Final = ("GET ", "POST /api/session", "POST /rest/com/vmware/cis/session")
_LISTS: Final = "~action=list"


def move(here: Ground, there: Ground, namespace: str) -> None:
    """Move the Clusters of a namespace.

    Args:
        here: Where they are managed.
        there: Where they are to be managed.
        namespace: Theirs; it is made at the target when it is not there.

    Raises:
        ClusterctlError: It does not begin, or did not come to its end.
    """
    # Both API servers have to be reached without a proxy; clusterctl's environment knows one.
    hosts = ",".join(it.clusterctl.environment()["NO_PROXY"] for it in (here, there))
    variables = {**here.clusterctl.variables, "NO_PROXY": hosts}
    replace(here.clusterctl, variables=variables).run(
        "move", f"--to-kubeconfig={there.clusterctl.kubeconfig}", f"--namespace={namespace}"
    )


def changes(vcenter: VCSimControl) -> dict[str, int]:
    """Calls since the counters were reset that may have changed something."""
    counters = vcenter.counters()
    made = {**counters.soap, **counters.rest}
    return {
        call: count
        for call, count in made.items()
        if call not in _READS and not call.startswith(_READS_BY_REST) and _LISTS not in call
    }
