"""The rules of Cluster API's contract v1beta2 for infrastructure providers, and what shows each.

Three lists. `RULES` (`kit/capirules.py`) are those of the contract and of the code that relies on
it: `A` for all kinds, `R` rights, `M` machines, `L` their life, `B` bootstrap data, `T` templates,
`C` clusters, `P` pause, `K` conditions, `I` addresses. `POINTS` are the places where providers went
wrong. `CHECKS` are what the end-to-end framework of Cluster API asks of a provider and can be asked
without it. A row names tests (`file::name`, below `test`), or says why there is none.

With Cluster API's own controllers, many rules are shown on one cluster: by a walk over it
(`kit/contractwalk.py`) and by a watch on its coming to be (`kit/contractwatch.py`); `NOT_WITH_CORE`
says of the rest why not.

Beside them stand checkers that run under every test with an API server (`kit/statusrules.py`).
"""

from collections.abc import Mapping
from inspect import isfunction
from pathlib import Path
from typing import Any

import pytest
import yaml

from test.kit import contractwalk
from test.kit.capirules import (
    ALONE,
    BOTH_ROLES,
    CLAIMS,
    CLUSTER,
    CRDS,
    CROWD,
    CTL,
    DOMAINS,
    END,
    ENDPOINT_FIXED,
    KEPT,
    KILLED,
    LEAVES,
    LIVES,
    MIDWAY,
    MODELS,
    MOVED,
    NO_DEFAULTS,
    NOT_WITH_CORE,
    OUT_OF_REACH,
    PAUSED,
    POINT,
    POOL,
    REPLACED,
    RESTS,
    ROLLS,
    RULES,
    STAMP,
    STATUS,
    SUBSET,
    TEMPLATES,
    UNTIL_OWNED,
    UNTOUCHED,
    VANISHED,
    WHOLE,
)
from test.kit.knownfailures import Row, absent, cannot, shown
from test.kit.yaml_text import yaml_documents

POINTS: Mapping[str, Row] = {
    "1": shown(
        "deletion during a move and in a pause",
        MOVED,
        KEPT,
        MIDWAY,
        f"{CLUSTER}::test_nothing_is_written_while_clusterctl_takes_it_away",
        WHOLE,
    ),
    "2": shown("the control plane's manager has rights of its own", BOTH_ROLES, WHOLE),
    "3": shown("early writes", UNTOUCHED, LIVES, UNTIL_OWNED, CROWD, WHOLE),
    "4": shown(
        "hygiene of conditions",
        f"{POINT}::test_whatever_a_backend_says_core_can_read_the_conditions",
        f"{MODELS}::test_a_condition_cluster_api_would_choke_on_cannot_be_made",
        f"{STATUS}::test_a_condition_that_is_not_valid_is_noticed",
        f"{STATUS}::test_transition_times_follow_the_status",
        WHOLE,
    ),
    "5": shown(
        "provider id and provisioned",
        f"{STATUS}::test_a_machine_is_not_provisioned_before_it_has_its_provider_id",
        VANISHED,
        f"{STAMP}::test_m1_m2_a_machine_gets_provider_id_and_is_provisioned",
        "unit/test_vsphere_guest.py::test_addresses_nobody_reaches_are_left_out",
        "unit/test_node_pairing.py::test_a_node_is_known_by_its_uuid_in_either_byte_order",
        LEAVES,
        WHOLE,
    ),
    "6": shown(
        "what pauses and what does not",
        PAUSED,
        f"{END}::test_the_annotation_on_the_machine_pauses_nothing",
        f"{POINT}::test_a_resumed_cluster_is_enough_to_go_on",
        f"{CLUSTER}::test_c5_an_externally_managed_cluster_is_left_alone",
        f"{END}::test_machines_of_an_externally_managed_cluster_are_made",
    ),
    "7": shown(
        "ClusterClass",
        RESTS,
        ROLLS,
        REPLACED,
        NO_DEFAULTS,
        SUBSET,
        f"{CRDS}::test_lists_say_how_they_merge",
    ),
    "8": shown(
        "endpoint and failure domains",
        f"{CLUSTER}::test_c1_an_endpoint_of_ours_is_enough",
        f"{CLUSTER}::test_c1_the_clusters_endpoint_counts_where_both_name_one",
        ENDPOINT_FIXED,
        f"{CLUSTER}::test_c3_a_domain_that_its_provider_has_not_any_more_disappears",
        f"{STAMP}::test_m4_an_unknown_domain_is_told_and_the_machine_is_made_nowhere_else",
        DOMAINS,
    ),
    "9": shown(
        "loss of status, another uid",
        MOVED,
        MIDWAY,
        KILLED,
        f"{STAMP}::test_a_machine_goes_back_to_the_vm_it_has",
        "unit/test_addresses_whole.py::test_an_address_goes_along_with_clusterctl_move",
        f"{POINT}::test_nothing_that_moves_belongs_to_what_does_not",
        WHOLE,
    ),
    "10": shown(
        "deletion with nobody to help",
        ALONE,
        OUT_OF_REACH,
        "unit/test_machine_teardown.py::test_foreign_and_retained_disks_outlive_the_vm",
        "integration/test_vsphere_sessions.py::"
        "test_a_machine_that_is_deleted_while_its_vm_is_made_leaves_none",
        f"{CLAIMS}::test_the_address_is_given_back_when_the_vm_is_gone_and_not_before",
        f"{END}::test_a_machine_of_a_provider_that_is_gone_is_kept_without_that_word",
    ),
}

CHECKS: Mapping[str, Row] = {
    "ValidateResourceVersionStable": shown(
        "nothing is written while nothing changes",
        RESTS,
        f"{CLUSTER}::test_c4_nothing_is_written_when_nothing_changed",
        "unit/test_machine_life.py::test_a_second_pass_over_a_settled_machine_writes_and_calls_nothing",
        "integration/test_at_rest.py::test_many_vms_stay_within_their_budget_and_then_cost_nothing",
    ),
    "ValidateFinalizersResilience": shown(
        "finalizers that were stripped come back, and no others",
        f"{POINT}::test_finalizers_that_were_stripped_in_a_pause_come_back_exactly",
        f"{POOL}::test_a_finalizer_that_was_stripped_comes_back",
        f"{TEMPLATES}::test_a_template_nobody_uses_tells_it_in_one_write",
    ),
    "ValidateOwnerReferencesResilience": shown(
        "owner references that were stripped and put back",
        f"{POINT}::test_a_machine_whose_owner_reference_was_stripped_and_put_back_is_as_before",
        f"{CLAIMS}::test_a_claim_restored_with_an_earlier_owner_is_taken_up_before_it_is_collected",
        f"{POOL}::test_a_claim_that_was_restored_is_taken_up_again",
    ),
    "VerifyClusterAvailable": shown("core finds nothing wrong with cluster and machines", WHOLE),
    "clusterctl": shown(
        "init, generate, describe, move, upgrade, delete by the real program",
        f"{CTL}::test_everything_that_is_installed_is_available",
        f"{CTL}::test_what_is_generated_is_accepted",
        f"{CTL}::test_our_cluster_is_described",
        "e2e/test_clusterctl_upgrade.py::"
        "test_an_upgrade_brings_what_is_new_and_keeps_what_users_made",
        f"{CTL}::test_kinds_are_only_deleted_when_nobody_uses_them",
        WHOLE,
    ),
    "quick_start, md_scale, kcp_remediation, cluster_upgrade, cluster_deletion": shown(
        "the life of a cluster", WHOLE
    ),
    "node_drain, autoscaler, k8s_conformance": cannot(
        "what kubelets do", "the Nodes of the tests have none"
    ),
}

LISTS = {"RULES": RULES, "POINTS": POINTS, "CHECKS": CHECKS}
CRD_FILES = sorted((Path(__file__).parents[2] / "config" / "crd" / "bases").glob("infra*.yaml"))
TEMPLATE_FILES = [it for it in CRD_FILES if it.stem.endswith("templates")]
ROLES = Path(__file__).parents[2] / "config" / "rbac"


@pytest.mark.parametrize("name", LISTS)
def test_every_row_names_tests_that_exist_or_says_why_none_does(name: str) -> None:
    for key, row in LISTS[name].items():
        assert bool(row.tests) is not bool(row.cannot), key
        assert absent(row) == [], key


def test_no_rule_is_left_out() -> None:
    numbers = {"A": 10, "R": 2, "M": 10, "L": 12, "B": 4, "T": 5, "C": 8, "P": 3, "K": 3, "I": 5}
    wanted = {f"{part}{it}" for part, last in numbers.items() for it in range(1, last + 1)}
    assert set(RULES) == {*wanted, "MP"}
    assert set(POINTS) == {str(it) for it in range(1, 11)}


def test_every_rule_is_shown_beside_core_itself_or_says_why_not() -> None:
    for key, row in RULES.items():
        shown_there = any(it.startswith(("e2e/", "kit/contract")) for it in row.tests)
        assert row.cannot or shown_there is not (key in NOT_WITH_CORE), key


def test_a_walk_leaves_nothing_out() -> None:
    steps = {it.__name__ for it in (*contractwalk.OF_KINDS, *contractwalk.OF_A_CLUSTER)}
    found = {
        name
        for name, it in vars(contractwalk).items()
        if isfunction(it) and it.__module__ == contractwalk.__name__ and not name.startswith("_")
    }
    assert steps == found - {"walk"}


def definition(path: Path) -> dict[str, Any]:
    """A CRD that is shipped."""
    found: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize("path", CRD_FILES, ids=lambda it: it.stem)
def test_every_crd_is_served_and_stored_in_the_version_of_its_label(path: Path) -> None:
    found = definition(path)
    spec, names = found["spec"], found["spec"]["names"]
    assert found["metadata"]["name"] == f"{names['plural']}.infrastructure.banlieue.io"
    labelled = found["metadata"]["labels"]["cluster.x-k8s.io/v1beta2"].split("_")
    served = {it["name"] for it in spec["versions"] if it["served"]}
    assert set(labelled) <= served
    (stored,) = [it for it in spec["versions"] if it["storage"]]
    assert stored["name"] in served
    for version in spec["versions"]:
        fields = version["schema"]["openAPIV3Schema"]["properties"]
        assert ("status" in fields) == ("status" in version.get("subresources", {}))
        assert "Age" in {it["name"] for it in version["additionalPrinterColumns"]}


@pytest.mark.parametrize("path", TEMPLATE_FILES, ids=lambda it: it.stem)
def test_templates_carry_metadata(path: Path) -> None:
    (version,) = definition(path)["spec"]["versions"]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    template = spec["template"]["properties"]
    assert template["spec"]["type"] == "object"
    metadata = template["metadata"]["properties"]
    for part in ("labels", "annotations"):
        assert metadata[part]["additionalProperties"]["type"] == "string"


def test_cluster_api_may_do_all_that_it_does_with_its_own_kinds() -> None:
    label = "cluster.x-k8s.io/aggregate-to-manager"
    texts = (path.read_text(encoding="utf-8") for path in sorted(ROLES.glob("*.yaml")))
    documents = (it for text in texts for it in yaml_documents(text) if it)
    metadata = ((it, it.get("metadata") or {}) for it in documents)
    (role,) = [it for it, meta in metadata if label in (meta.get("labels") or {})]
    (rule,) = role["rules"]
    assert rule["resources"] == ["*"]
    wanted = {"create", "delete", "get", "list", "patch", "update", "watch"}
    assert wanted <= set(rule["verbs"])
