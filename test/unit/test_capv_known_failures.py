"""What hurt users of other vSphere software, and the test that shows it does not happen here.

Two lists: an older Cluster API provider for vSphere, and programs over the same client library.
Each row that can happen to us names tests; the others say why they cannot.
"""

from collections.abc import Mapping

import pytest

from test.kit.knownfailures import Row, absent, cannot, shown

DRIVER = "integration/test_vsphere_driver.py"
FIELD = "integration/test_vsphere_field.py"
SESSIONS = "integration/test_vsphere_sessions.py"
MATRIX = "integration/test_vsphere_fault_matrix.py::test_a_disturbed_call_makes_no_second_vm"
RIGHTS = "integration/test_vsphere_rights.py"
UPKEEP = "integration/test_vsphere_upkeep.py"
MANY = "integration/test_vsphere_three.py"
WATCHER = "unit/test_vsphere_watcher.py"
LIFE = "unit/test_machine_life.py"
GUEST = "unit/test_vsphere_guest.py"

PROVIDER_LIST: Mapping[str, Row] = {
    "1": shown(
        "the same VM is cloned again and again",
        f"{DRIVER}::test_a_clone_whose_reply_is_lost_is_found_and_never_repeated",
        f"{DRIVER}::test_creates_of_two_processes_end_in_one_vm",
        MATRIX,
    ),
    "2": shown(
        "a VM survives its deleted machine",
        f"{SESSIONS}::test_a_machine_that_is_deleted_while_its_vm_is_made_leaves_none",
    ),
    "4": shown(
        "a failure stays after storage or rights are back",
        f"{FIELD}::test_a_vm_in_a_folder_that_may_not_be_read_is_neither_missing_nor_let_go",
        f"{FIELD}::test_a_vm_whose_host_is_away_is_neither_missing_nor_changed",
    ),
    "5": shown(
        "a deletion hangs when its VM is gone already",
        f"{FIELD}::test_a_machine_whose_vm_is_gone_already_goes",
    ),
    "6": shown(
        "no right to look blocks a deletion for ever",
        f"{FIELD}::test_a_vm_in_a_folder_that_may_not_be_read_is_neither_missing_nor_let_go",
        "unit/test_machine_teardown.py::test_release_goes_through_when_the_backend_is_dead",
    ),
    "7": shown(
        "a deletion hangs after the vCenter restarted",
        f"{SESSIONS}::test_a_vcenter_that_restarts_before_a_deletion_ends",
    ),
    "8": shown(
        "all work stops when the session ends",
        f"{DRIVER}::test_a_session_that_was_ended_is_renewed",
        f"{DRIVER}::test_the_feed_survives_the_end_of_its_session",
        f"{SESSIONS}::test_a_session_that_is_terminated_in_the_middle_of_a_clone",
    ),
    "10": shown(
        "hundreds of sessions",
        f"{SESSIONS}::test_many_machines_share_one_session",
        f"{SESSIONS}::test_a_login_that_fails_halfway_leaves_no_session",
        "unit/test_provider_session.py::test_a_refused_login_is_not_repeated_until_something_changes",
    ),
    "11": shown("one dead vCenter slows all", f"{MANY}::test_a_healthy_vcenter_waits_for_no_other"),
    "12": shown(
        "a read without a timeout stops everything",
        f"{DRIVER}::test_a_silent_endpoint_is_unreachable_within_the_timeout",
        "unit/test_provider_session.py::test_a_call_that_takes_too_long_is_given_up",
        MATRIX,
    ),
    "13": shown(
        "hundreds of clones at once, restarted by their time-outs",
        f"{DRIVER}::test_more_creates_than_the_vcenter_likes_wait_for_their_turn",
        "unit/test_vsphere_creates.py::test_no_more_clones_than_the_vcenter_takes_and_an_end_makes_room",
    ),
    "15": shown("several power-on tasks for one VM", MATRIX),
    "16": shown(
        "only `TaskFailure` is told",
        "unit/test_vsphere_faults.py::test_the_text_of_a_fault_decides_nothing_and_stays_native",
        "unit/test_vsphere_fault_table.py::test_every_fault_becomes_one_uniform_error",
    ),
    "17": shown(
        "`PoweringOn` is told while an address is awaited",
        f"{FIELD}::test_a_guest_without_an_address_is_told_as_such",
    ),
    "18": shown(
        "an old error stays after its cause was corrected",
        f"{RIGHTS}::test_what_lacks_is_named_by_the_machine_too",
        f"{FIELD}::test_a_question_is_told_and_never_answered",
    ),
    "19": cannot(
        "failure domains of a second vCenter are ignored",
        "a cluster lists the failure domains of several Providers, each with its own credentials",
    ),
    "20": shown(
        "anti-affinity blocks a whole cluster",
        "integration/test_vsphere_upkeep.py::test_a_group_that_cannot_be_written_keeps_no_vm_from_running",
    ),
    "21": shown(
        "`resolves to multiple` resource pools",
        "integration/test_vsphere_spec.py::test_a_pool_is_found_and_the_clusters_own_is_the_default",
        "unit/test_vsphere_placement.py::test_a_name_in_two_branches_needs_a_path",
    ),
    "31": shown(
        "a bridge inside the guest is taken for the machine's address",
        f"{GUEST}::test_bridges_inside_the_guest_are_left_out",
        f"{GUEST}::test_an_address_is_told_once_and_nonsense_never",
    ),
    "32": cannot(
        "an address of a pool lands on two interfaces",
        "addresses belong to an entry of one interface, by its name and family",
    ),
    "34": shown(
        "a link-local address makes a machine ready",
        f"{GUEST}::test_addresses_nobody_reaches_are_left_out",
        f"{GUEST}::test_families",
    ),
    "38": shown(
        "a renewed certificate stops all",
        f"{DRIVER}::test_any_of_several_pins_is_enough",
        f"{SESSIONS}::test_a_certificate_that_is_renewed_is_told_and_taken_with_its_thumbprint",
    ),
    "39": shown(
        "UUIDs that are doubled or changed by copies and outages",
        f"{DRIVER}::test_two_vms_of_one_uuid_are_both_left_alone",
        f"{DRIVER}::test_a_changed_uuid_is_shown_and_never_taken_for_absence",
        f"{LIFE}::test_a_copy_carrying_our_mark_is_not_ours",
    ),
    "IPv6 host name blocks a machine": cannot(
        "a host's name that is no label", "host names stand in status.host, never in a label"
    ),
    "finalizer before the first call": shown(
        "a VM without a finalizer on its object",
        f"{LIFE}::test_identity_stands_in_the_api_before_the_creating_call",
    ),
    "machine without an owner cannot go": shown(
        "a machine without an owner blocks a deletion",
        f"{LIFE}::test_a_machine_that_lost_its_owner_reference_says_so_and_changes_nothing",
        "unit/test_machine_teardown.py::test_release_goes_through_when_the_backend_is_dead",
    ),
    "lost BIOS UUID leads to clones": shown(
        "a lost identity leads to another clone",
        f"{LIFE}::test_a_machine_restored_without_identity_finds_its_vm",
    ),
    "credentials Secret deleted with the cluster": cannot(
        "the user's Secret is deleted", "no role of ours may delete a Secret"
    ),
    "identity with a missing Secret": shown(
        "a login whose Secret is not there (yet) is an error nobody is told of, or stays one",
        "integration/test_provider_role.py::test_a_missing_secret_is_waited_for",
    ),
    "missing Secret blocks a deletion": shown(
        "without credentials nothing can be let go",
        "unit/test_machine_teardown.py::test_a_machine_is_released_while_its_provider_was_never_reached",
    ),
    "VM group joined after power-on": shown(
        "machines that are to be kept apart start on one host",
        f"{UPKEEP}::test_vms_of_a_group_are_kept_apart_before_they_start_and_leave_nothing",
    ),
    "VM group loses members": shown(
        "of two edits of a group only the last counts",
        f"{UPKEEP}::test_an_edit_that_loses_members_is_made_again_and_an_admins_member_stays",
    ),
    "VM of the same name is adopted": shown(
        "what merely has the machine's name is changed, and destroyed with it",
        f"{LIFE}::test_a_foreign_vm_of_the_name_is_never_touched",
    ),
    "task over a restart is waited for": shown(
        "a clone that ran while the process began is noticed minutes later",
        f"{SESSIONS}::test_a_process_that_begins_in_the_middle_of_a_clone",
    ),
    "VM out of sight is let go": shown(
        "a VM that is not found where it was looked for counts as gone, and stays",
        f"{DRIVER}::test_a_vm_moved_to_a_folder_that_is_hidden_is_never_gone",
        f"{DRIVER}::test_a_vm_is_found_wherever_an_admin_moved_it",
    ),
    "two tasks on one VM": shown(
        "a VM is started while it is reconfigured",
        "integration/test_vsphere_spec.py::test_hardware_is_upgraded_before_the_first_start",
        f"{FIELD}::test_a_snapshot_in_the_making_is_waited_for",
    ),
}
"""By number, or subject. What is about specs, images and first-boot data has tests beside it."""

LIBRARY_LIST: Mapping[str, Row] = {
    "1": shown(
        "the session's default collector is shared",
        f"{WATCHER}::test_the_first_answer_asks_for_everything_and_builds_one_filter",
    ),
    "2": cannot("parallel waits lose updates", "one thread waits on a collector of its own"),
    "3": shown(
        "the first call after a rest fails",
        f"{DRIVER}::test_connections_that_were_closed_while_idle_disturb_nobody",
    ),
    "4": shown(
        "NotAuthenticated after half an hour", f"{DRIVER}::test_a_session_that_was_ended_is_renewed"
    ),
    "5": shown(
        "a wait for updates hangs for days",
        f"{WATCHER}::test_the_server_waits_no_longer_than_a_detail_and_never_in_a_hurry",
        MATRIX,
    ),
    "6": shown(
        "connecting hangs", f"{DRIVER}::test_a_silent_endpoint_is_unreachable_within_the_timeout"
    ),
    "7": shown(
        "views are never destroyed",
        f"{WATCHER}::test_a_lost_collector_is_destroyed_and_built_anew",
    ),
    "8": shown("sessions and sockets remain", f"{DRIVER}::test_sessions_are_logged_out"),
    "10": shown(
        "threads are slower than one",
        f"{DRIVER}::test_attributes_of_managed_objects_are_never_read",
    ),
    "11": shown(
        "listing takes minutes",
        "integration/test_vsphere_calls.py::test_many_creates_stay_within_their_budget_and_then_cost_nothing",
    ),
    "12": shown(
        "one undecodable object spoils a reply",
        "unit/test_vsphere_faults.py::test_an_answer_nobody_can_read_is_tried_again",
    ),
    "13": shown(
        "a newer field is left out silently", f"{DRIVER}::test_a_server_that_is_too_old_is_refused"
    ),
    "14": cannot(
        "a distribution's build fails", "the wheel of the package index is pinned by hash"
    ),
    "15": shown(
        "certificates that newer Python refuses",
        "unit/test_vsphere_faults.py::test_certificates_are_told_apart_from_silence",
    ),
    "17": shown(
        "a cached login was logged out",
        "unit/test_provider_session.py::test_a_call_under_way_keeps_its_login_open",
    ),
    "18": shown(
        "login stampede and leaked sessions", f"{SESSIONS}::test_many_machines_share_one_session"
    ),
    "19": shown(
        "the account may not ask whether its session is active",
        f"{RIGHTS}::test_the_role_is_enough_for_a_whole_life",
    ),
    "21": shown(
        "the address is a bridge's, or none",
        f"{GUEST}::test_bridges_inside_the_guest_are_left_out",
        f"{FIELD}::test_a_guest_without_an_address_is_told_as_such",
    ),
    "22": shown(
        "bad credentials are read as `VM gone`",
        f"{LIFE}::test_a_restart_that_cannot_log_in_keeps_the_status_of_what_was_seen",
        f"{DRIVER}::test_a_vm_moved_to_a_folder_that_is_hidden_is_never_gone",
    ),
    "23": shown(
        "two clone tasks for one machine", f"{DRIVER}::test_creates_of_two_processes_end_in_one_vm"
    ),
    "25": shown(
        "`another task is already in progress`",
        f"{FIELD}::test_a_snapshot_in_the_making_is_waited_for",
        "unit/test_machine_hands_off.py::test_an_edit_waits_for_the_task_of_somebody_else_and_is_not_forgotten",
    ),
    "26": cannot(
        "a cookie of another service leaks into calls", "each service has a stub of its own"
    ),
}
"""By number."""

PROVIDER_ROWS = (
    *map(
        str, (1, 2, 4, 5, 6, 7, 8, 10, 11, 12, 13, 15, 16, 17, 18, 19, 20, 21, 31, 32, 34, 38, 39)
    ),
    "IPv6 host name blocks a machine",
    "finalizer before the first call",
    "machine without an owner cannot go",
    "lost BIOS UUID leads to clones",
    "credentials Secret deleted with the cluster",
    "identity with a missing Secret",
    "missing Secret blocks a deletion",
    "VM group joined after power-on",
    "VM group loses members",
    "VM of the same name is adopted",
    "task over a restart is waited for",
    "VM out of sight is let go",
    "two tasks on one VM",
)
LIBRARY_ROWS = tuple(
    map(str, (1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 14, 15, 17, 18, 19, 21, 22, 23, 25, 26))
)


def test_no_row_is_left_out() -> None:
    assert tuple(PROVIDER_LIST) == PROVIDER_ROWS
    assert tuple(LIBRARY_LIST) == LIBRARY_ROWS


@pytest.mark.parametrize("row", [*PROVIDER_LIST.values(), *LIBRARY_LIST.values()], ids=str)
def test_every_row_is_shown_or_says_why_not(row: Row) -> None:
    assert row.symptom
    assert bool(row.tests) != bool(row.cannot)
    assert not absent(row), "these tests are not there (any more)"
