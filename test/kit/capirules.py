"""The rules of Cluster API's contract v1beta2 for infrastructure providers, and what shows each.

`test/unit/test_capi_contract.py` tells what the names mean and sees to it that the tests exist.
"""

from collections.abc import Mapping

from test.kit.knownfailures import Row, cannot, shown

CORE = "e2e/test_clusterapi_machines.py"
IN_CORE = "e2e/test_templates_in_core.py"
CTL = "e2e/test_clusterctl.py"
WALK = "kit/contractwalk.py"
WATCH = "kit/contractwatch.py"
WHOLE = "e2e/test_workload_cluster.py::test_a_cluster_over_two_vcenters"
HERE = "unit/test_capi_contract.py"
POINT = "unit/test_capi_points.py"
STAMP = "unit/test_capi_stamp.py"
END = "unit/test_capi_end.py"
CLUSTER = "unit/test_clusters_rules.py"
POOL = "unit/test_clusters_pool.py"
DOMAINS = f"{CTL}::test_a_cluster_gets_the_failure_domains_of_two_providers"
CRDS = "unit/test_api_crds.py"
SERVER = "integration/test_crds.py"
MODELS = "unit/test_api_models.py"
CLAIMS = "unit/test_controller_addresses.py"
WALLS = "integration/test_walls_provider.py"
TEMPLATES = "unit/test_clusters_templates.py"
STATUS = "unit/test_status_rules.py"
MIDWAY = "unit/test_capi_move_midway.py::test_a_machine_that_moves_midway_ends_in_one_vm"
LIVES = f"{CORE}::test_a_machine_becomes_a_vm_and_takes_it_along_when_it_goes"
CROWD = f"{CORE}::test_fifty_machines_at_once_are_each_made_at_the_first_attempt"
ADDRESS = f"{CORE}::test_an_address_from_a_pool_comes_and_goes_by_the_contract_of_ipam"
MOVED = f"{END}::test_1_9_a_move_ends_in_the_same_vm_without_a_call_that_changes_anything"
KILLED = f"{END}::test_everybody_killed_at_every_write_makes_one_vm_and_ends_it"
VANISHED = f"{END}::test_5_9_a_vm_that_vanished_is_not_made_again_and_nothing_is_taken_back"
ALONE = f"{END}::test_10_deletion_needs_neither_secret_nor_cluster_nor_machine"
UNTOUCHED = f"{STAMP}::test_until_a_machine_owns_it_the_object_stays_as_it_is_to_the_byte"
IN_ORDER = f"{STAMP}::test_what_it_waits_for_is_told_in_order_and_nothing_but_status_is_written"
PAUSED = f"{END}::test_6_a_paused_machine_is_not_stamped_and_says_so"
KEPT = f"{END}::test_1_a_paused_machine_that_is_deleted_keeps_its_vm_until_it_is_resumed"
LEAVES = f"{STAMP}::test_m5_m8_m9_nothing_stands_there_that_core_would_stumble_over"
CONTRACT = f"{CRDS}::test_infrastructure_kinds_meet_the_contract"
NO_DEFAULTS = f"{CRDS}::test_infrastructure_kinds_have_no_defaults_at_all"
SUBSET = f"{CRDS}::test_what_a_template_takes_a_machine_takes"
RESTS = f"{IN_CORE}::test_a_topology_rests_and_changes_roll_out_once"
ROLLS = f"{IN_CORE}::test_another_template_in_the_class_is_one_rollout"
REPLACED = f"{WALLS}::test_a_template_is_replaced_and_not_changed"
BOTH_ROLES = "unit/test_config_manifests.py::test_both_managers_of_cluster_api_get_their_rights"
ENDPOINT_FIXED = (
    "integration/test_clusters_role.py::test_a_cluster_lists_its_domains_and_heeds_its_owner"
)
OUT_OF_REACH = f"{POINT}::test_a_backend_that_does_not_answer_or_refuses_us_frees_no_machine"

NAMED = f"{WALK}::kinds_have_the_names_core_computes"
LABELLED = f"{WALK}::kinds_are_labelled_served_and_stored_in_one_version"
AGGREGATED = f"{WALK}::managers_have_their_rights_by_aggregation"
SPOTLESS = f"{WALK}::machines_have_nothing_core_stumbles_over"
WITH_ID = f"{WALK}::machines_have_id_and_word"
KEEPS_METADATA = f"{WALK}::metadata_of_core_stays"
TAKEN_OVER = f"{WALK}::the_infrastructure_is_what_core_took_over"
SHOWN = f"{WALK}::conditions_are_what_core_shows"
ALWAYS = f"{WATCH}::check"
IDENTITY_FIRST = f"{WATCH}::the_finalizer_stands_before_the_identity_and_that_before_the_id"
UNTIL_OWNED = f"{WATCH}::nothing_is_written_until_a_machine_controls"
STAYS = f"{WATCH}::provisioned_stays"

NOT_WITH_CORE: Mapping[str, str] = {
    "L3": "core puts the label back in its next pass, before anybody could see the pause",
    "L6": "from outside no process can be killed at a chosen write; in memory each is hit",
    "I5": "the mover follows owner references, which the claims of core's machines are seen with; "
    "the pool that would have to move along is a third party's",
}
"""Rules that no test beside Cluster API's own controllers shows, and why."""

RULES: Mapping[str, Row] = {
    "A1": shown(
        "kinds, their lists and templates, in a namespace",
        CONTRACT,
        SUBSET,
        NAMED,
    ),
    "A2": shown(
        "the name of a CRD is the plural that core computes",
        "unit/test_api_names.py::test_plurals_are_those_cluster_api_computes",
        f"{HERE}::test_every_crd_is_served_and_stored_in_the_version_of_its_label",
        NAMED,
    ),
    "A3": shown(
        "the contract's label on every CRD",
        CONTRACT,
        LABELLED,
    ),
    "A4": shown(
        "no label of an older contract",
        CONTRACT,
        LABELLED,
    ),
    "A5": shown(
        "roles for core, as the group is our own",
        BOTH_ROLES,
        AGGREGATED,
    ),
    "A6": shown(
        "the labelled version is served and the one that is stored",
        f"{HERE}::test_every_crd_is_served_and_stored_in_the_version_of_its_label",
        LABELLED,
    ),
    "A7": shown(
        "status subresource, category and columns",
        CONTRACT,
        f"{HERE}::test_every_crd_is_served_and_stored_in_the_version_of_its_label",
        f"{SERVER}::test_kubectl_get_shows_the_cluster_of_a_machine",
        f"{WALK}::kinds_are_shown_with_status_category_and_columns",
    ),
    "A8": cannot(
        "watch filters of several instances",
        "no flag --watch-filter is offered; a Provider chooses its namespaces by allowedNamespaces",
    ),
    "A9": shown(
        "pausing, see P1 to P3",
        PAUSED,
        LIVES,
    ),
    "A10": shown("references of core name neither version nor namespace", LIVES),
    "R1": shown(
        "both managers get their rights by aggregation",
        BOTH_ROLES,
        "integration/test_config.py::test_cluster_api_gets_its_rights",
        "e2e/test_clusterctl_release.py::test_cluster_api_may_use_our_kinds_at_once",
        f"{HERE}::test_cluster_api_may_do_all_that_it_does_with_its_own_kinds",
        WHOLE,
        AGGREGATED,
    ),
    "R2": shown(
        "our processes can work with what is shipped",
        "e2e/test_install.py::test_the_rights_are_enough_for_everything_that_was_logged",
        "unit/test_rights_table.py::test_a_right_is_used_by_a_test",
    ),
    "M1": shown(
        "spec.providerID, by us and once",
        f"{STAMP}::test_m1_m2_a_machine_gets_provider_id_and_is_provisioned",
        f"{STATUS}::test_what_lasts_may_come_but_not_go_or_change",
        WITH_ID,
        f"{WALK}::machines_keep_who_they_are",
    ),
    "M2": shown(
        "provisioned with the provider id, and never back",
        f"{STAMP}::test_m1_m2_a_machine_gets_provider_id_and_is_provisioned",
        f"{STATUS}::test_a_machine_is_not_provisioned_before_it_has_its_provider_id",
        VANISHED,
        WITH_ID,
        STAYS,
        IDENTITY_FIRST,
    ),
    "M3": shown(
        "addresses of valid types",
        f"{STAMP}::test_m3_m4_addresses_and_the_domain_it_is_in_are_told",
        "unit/test_vsphere_guest.py::test_addresses_nobody_reaches_are_left_out",
        LIVES,
        SPOTLESS,
    ),
    "M4": shown(
        "the failure domain that is asked for, and the one it is in",
        f"{STAMP}::test_m3_m4_addresses_and_the_domain_it_is_in_are_told",
        f"{STAMP}::test_m4_an_unknown_domain_is_told_and_the_machine_is_made_nowhere_else",
        LIVES,
        f"{WALK}::machines_are_where_their_machine_says",
    ),
    "M5": shown(
        "no spec.failureDomain",
        CONTRACT,
        LEAVES,
        SPOTLESS,
    ),
    "M6": shown(
        "Ready, which core mirrors",
        LIVES,
        SHOWN,
    ),
    "M7": cannot("interruptible machines", "no backend has machines that it takes away by itself"),
    "M8": shown(
        "nothing left of v1beta1",
        CONTRACT,
        LEAVES,
        SPOTLESS,
    ),
    "M9": shown(
        "no null",
        LEAVES,
        f"{MODELS}::test_no_null_is_ever_written",
        f"{SERVER}::test_the_server_keeps_no_null",
        SPOTLESS,
    ),
    "M10": shown("what a template takes its machine takes", SUBSET, WHOLE),
    "L1": shown(
        "an owner that does not control, or is no Machine, is none yet",
        f"{STAMP}::test_an_object_with_another_owner_is_left_alone",
        f"{STAMP}::test_a_machine_that_owns_without_controlling_is_no_owner_yet",
        UNTIL_OWNED,
    ),
    "L2": shown(
        "until a Machine owns it nothing is touched",
        UNTOUCHED,
        f"{END}::test_a_users_own_object_is_left_alone_even_when_it_goes",
        f"{END}::test_the_end_is_decided_when_the_reference_to_the_owner_was_lost",
        "integration/test_capi_machines.py::test_a_machine_of_cluster_api_lives_and_ends",
        UNTIL_OWNED,
    ),
    "L3": shown("the Cluster by the label; without one it is paused", PAUSED),
    "L4": shown(
        "the finalizer stands before anything is made",
        "unit/test_machine_life.py::test_identity_stands_in_the_api_before_the_creating_call",
        f"{POINT}::test_finalizers_that_were_stripped_in_a_pause_come_back_exactly",
        IDENTITY_FIRST,
    ),
    "L5": shown(
        "what is waited for, in order",
        IN_ORDER,
        LIVES,
        f"{WATCH}::what_is_waited_for_is_told_in_order",
    ),
    "L6": shown("one VM, whoever dies when", KILLED),
    "L7": shown(
        "VM, then addresses, then the object",
        ALONE,
        ADDRESS,
        OUT_OF_REACH,
    ),
    "L8": shown(
        "labels, annotations and owners of others stay",
        f"{POINT}::test_what_cluster_api_wrote_into_the_metadata_is_left_as_it_is",
        f"{WALLS}::test_nothing_else_of_its_own_machine_changes",
        KEEPS_METADATA,
        f"{WATCH}::metadata_of_others_is_left_alone",
    ),
    "L9": shown(
        "messages that do not change by themselves",
        f"{STATUS}::test_a_condition_that_is_not_valid_is_noticed",
        ALWAYS,
    ),
    "L10": shown("the order in which a Machine and a Cluster end", WHOLE, LIVES, ALONE),
    "L11": shown("a VM that vanished is replaced by its owner, not by us", VANISHED, WHOLE),
    "L12": cannot(
        "updates in place",
        "they take a runtime extension that offers them; none is shipped, and a changed spec of a "
        "machine object is served as that of a VM",
    ),
    "B1": shown(
        "key value of the Secret that the Machine names, and no other",
        f"{END}::test_a_secret_that_is_not_the_machines_own_is_not_read",
        "unit/test_operator_grants.py::test_bootstrap_data_of_cluster_api_is_granted",
        WHOLE,
    ),
    "B2": shown(
        "cloud-config, ignition, and nothing unknown",
        f"{END}::test_data_of_a_format_the_image_reads_boots",
        f"{END}::test_data_of_another_format_is_told_and_nothing_boots",
        "unit/test_seed_ignition.py::test_specification_2_is_what_kubeadm_bootstrap_data_has",
        LIVES,
    ),
    "B3": shown(
        "a Secret that comes late",
        f"{END}::test_a_secret_that_comes_late_is_waited_for",
        LIVES,
    ),
    "B4": shown(
        "the Node has the provider id, by its kubelet or by the patcher",
        "unit/test_config_templates.py::test_every_kubelet_is_told_the_id_of_its_machine",
        "integration/test_node_patcher_role.py::"
        "test_a_node_gets_its_id_once_the_kubeconfig_may_be_read",
        WHOLE,
    ),
    "T1": shown(
        "spec.template with metadata",
        f"{HERE}::test_templates_carry_metadata",
        SUBSET,
        KEEPS_METADATA,
    ),
    "T2": shown(
        "immutable but in a topology's dry run",
        REPLACED,
        ROLLS,
        f"{WALK}::templates_cannot_be_changed",
    ),
    "T3": shown("no defaults that a topology would fight with", NO_DEFAULTS, RESTS),
    "T4": shown(
        "no finalizers and annotations of ours",
        f"{TEMPLATES}::test_a_template_nobody_uses_tells_it_in_one_write",
        f"{WALK}::templates_have_nothing_of_ours_but_status",
        f"{WATCH}::templates_get_nothing_but_status",
    ),
    "T5": shown(
        "capacity in strings, also of a template nobody uses",
        f"{TEMPLATES}::test_capacity_is_strings_and_whole_or_not_there",
        f"{TEMPLATES}::test_a_template_nobody_uses_tells_it_in_one_write",
        DOMAINS,
        f"{WALK}::templates_have_nothing_of_ours_but_status",
    ),
    "C1": shown(
        "the endpoint stands before provisioned, or that of the Cluster is waited for",
        f"{CLUSTER}::test_c1_an_endpoint_of_ours_is_enough",
        f"{CLUSTER}::test_c1_without_one_the_clusters_is_waited_for",
        f"{CLUSTER}::test_c1_half_an_endpoint_is_none",
        DOMAINS,
        TAKEN_OVER,
    ),
    "C2": shown(
        "provisioned stays",
        f"{CLUSTER}::test_c2_provisioned_stays_whatever_is_lost",
        f"{CLUSTER}::test_c2_a_lost_status_is_computed_again",
        STAYS,
    ),
    "C3": shown(
        "failure domains, controlPlane always told",
        f"{CLUSTER}::test_c3_control_plane_is_where_the_selector_says",
        f"{CLUSTER}::test_c3_a_domain_that_its_provider_has_not_any_more_disappears",
        f"{CLUSTER}::test_c3_more_than_a_cluster_can_list_is_told_and_the_choice_stays",
        DOMAINS,
        TAKEN_OVER,
    ),
    "C4": shown(
        "Ready, which core mirrors",
        f"{CLUSTER}::test_c4_all_conditions_carry_the_generation",
        f"{CTL}::test_our_cluster_is_described",
        TAKEN_OVER,
    ),
    "C5": shown(
        "a cluster somebody else manages is left alone, its machines are not",
        f"{CLUSTER}::test_c5_an_externally_managed_cluster_is_left_alone",
        f"{END}::test_machines_of_an_externally_managed_cluster_are_made",
        LIVES,
    ),
    "C6": shown(
        "owned by its Cluster, which need not control it",
        DOMAINS,
        TAKEN_OVER,
    ),
    "C7": shown(
        "nothing before a Cluster owns it",
        f"{CLUSTER}::test_c7_without_owner_nothing_is_written",
        f"{CLUSTER}::test_we_hold_no_cluster_in_deletion",
        f"{WATCH}::nothing_is_written_until_a_cluster_owns",
    ),
    "C8": shown("templates of clusters, without defaults", SUBSET, NO_DEFAULTS, RESTS),
    "MP": cannot(
        "MachinePool", "no backend scales and heals a group by itself (docs/integrations.md)"
    ),
    "P1": shown(
        "by the Cluster or by presence of the annotation, deletion included",
        PAUSED,
        KEPT,
        f"{CLUSTER}::test_pause_by_annotation_is_by_presence",
        f"{END}::test_the_annotation_on_the_machine_pauses_nothing",
        LIVES,
    ),
    "P2": shown(
        "condition Paused, and no other write",
        PAUSED,
        f"{CLUSTER}::test_deletion_of_a_paused_one_says_paused",
        LIVES,
        SHOWN,
    ),
    "P3": shown(
        "a resumed Cluster is enough",
        f"{POINT}::test_a_resumed_cluster_is_enough_to_go_on",
        f"{CLUSTER}::test_pause_of_the_cluster_holds_everything_until_it_ends",
        "integration/test_capi_machines.py::test_a_machine_of_cluster_api_lives_and_ends",
        LIVES,
    ),
    "K1": shown(
        "every condition is one of metav1",
        f"{MODELS}::test_a_condition_cluster_api_would_choke_on_cannot_be_made",
        f"{STATUS}::test_a_condition_that_is_not_valid_is_noticed",
        ALWAYS,
        SHOWN,
    ),
    "K2": shown(
        "reason and message are what a Machine may hold",
        "unit/test_api_reasons.py::test_every_word_is_valid_and_explained",
        f"{MODELS}::test_a_status_never_breaks_its_schema_for_a_long_or_empty_word",
        f"{POINT}::test_whatever_a_backend_says_core_can_read_the_conditions",
        ALWAYS,
        SHOWN,
    ),
    "K3": shown(
        "times change with the status alone",
        f"{STATUS}::test_transition_times_follow_the_status",
        ALWAYS,
    ),
    "I1": shown(
        "a claim with cluster name, pool and label",
        f"{CLAIMS}::test_a_machine_of_cluster_api_owns_its_claims_itself",
        f"{POOL}::test_an_address_is_claimed_and_becomes_the_endpoint",
        ADDRESS,
    ),
    "I2": shown(
        "its name follows from machine, interface and family; one address each",
        f"{CLAIMS}::test_a_claim_is_made_as_the_contract_of_ipam_asks",
        f"{CLAIMS}::test_a_second_family_has_a_claim_of_its_own",
        ADDRESS,
    ),
    "I3": shown(
        "what a pool says is told",
        f"{CLAIMS}::test_an_empty_pool_is_told_and_a_free_address_taken",
        f"{POOL}::test_what_the_pool_says_is_told_and_a_free_address_is_taken",
        ADDRESS,
    ),
    "I4": shown(
        "released after the VM",
        f"{CLAIMS}::test_the_address_is_given_back_when_the_vm_is_gone_and_not_before",
        "unit/test_addresses_whole.py::"
        "test_a_machine_of_cluster_api_killed_at_every_write_has_one_address",
        ADDRESS,
    ),
    "I5": shown(
        "claims move with their machine",
        "unit/test_addresses_whole.py::test_an_address_goes_along_with_clusterctl_move",
        f"{POOL}::test_a_move_takes_claim_and_endpoint_along",
    ),
}
