"""What specs of machines did to users of another Cluster API provider for vSphere, and our tests.

The rest of that list is in `test_capv_known_failures.py`.
"""

from collections.abc import Mapping

import pytest

from test.kit.knownfailures import Row, absent, cannot, shown

SPEC = "integration/test_vsphere_spec.py"
STORING = "unit/test_vsphere_storing.py"
SHAPE = "unit/test_vsphere_shape.py"
CLONE = "unit/test_vsphere_clone.py"
PLACEMENT = "unit/test_vsphere_placement.py"

ROWS: Mapping[str, Row] = {
    "23": shown(
        "two networks of one name, and the first that is found is taken",
        f"{SHAPE}::test_two_networks_of_one_name_are_told_apart",
        f"{SHAPE}::test_an_opaque_network_is_its_port_group_where_there_is_one",
    ),
    "24": shown(
        "the same template on several datastores is an error, and far copies are slow",
        f"{SPEC}::test_the_copy_of_a_template_next_to_the_disk_is_cloned",
    ),
    "25": shown(
        "a datastore cluster is not found",
        f"{SPEC}::test_a_datastore_cluster_is_asked_and_its_word_taken",
        f"{STORING}::test_a_datastore_cluster_means_its_datastore_with_most_space",
    ),
    "26": shown(
        "a policy picks a datastore cluster, one in maintenance, or the template's datastore",
        f"{STORING}::test_a_policy_chooses_among_the_datastores_that_fulfil_it",
        f"{STORING}::test_a_datastore_in_maintenance_is_never_chosen",
        f"{SPEC}::test_a_storage_policy_reaches_the_vm_and_its_disks",
    ),
    "28": shown(
        "a disk size is silently ignored, or a clone silently full",
        f"{SPEC}::test_whether_a_clone_is_linked_is_decided_for_each_and_told",
        f"{SPEC}::test_a_missing_snapshot_is_an_error_and_not_a_full_clone",
        f"{CLONE}::test_a_linked_clone_that_cannot_be_is_never_made_full_silently",
    ),
    "29": shown(
        "a template with two disks is refused, and a disk that is too small tried for ever",
        f"{CLONE}::test_the_boot_disk_grows_and_never_shrinks",
        f"{CLONE}::test_data_disks_get_free_slots_and_are_remembered",
    ),
    "30": shown(
        "with four interfaces their names and MAC addresses are swapped",
        f"{SPEC}::test_interfaces_reach_the_networks_and_kinds_they_name",
    ),
    "folders and pools": shown(
        "folders are not made, and many machines at once trip over each other",
        f"{SPEC}::test_a_folder_is_made_when_asked_for_and_stays",
        f"{SPEC}::test_many_at_once_make_a_folder_once",
    ),
    "hardware before devices": shown(
        "PCI devices are added before the hardware that has them",
        f"{SPEC}::test_hardware_is_upgraded_before_the_first_start",
        f"{SHAPE}::test_devices_of_newer_hardware_wait_for_the_upgrade",
    ),
    "reserved keys": shown(
        "free configuration keys replace first-boot data",
        f"{SHAPE}::test_keys_that_would_break_a_vm_are_refused",
    ),
    "PCI devices without a host": shown(
        "a host without the device is chosen",
        f"{SHAPE}::test_a_host_without_the_devices_is_not_chosen",
    ),
    "memory set by itself": cannot(
        "two CPUs and 2048 MiB are forced where nothing is said",
        "a machine that does not say its size is refused before anything is made",
    ),
    "inventory data": shown(
        "custom attributes are asked for and not there",
        f"{SPEC}::test_the_shape_reaches_the_vm",
    ),
}


def test_the_rows_of_specs_are_all_here() -> None:
    assert {"23", "24", "25", "26", "28", "29", "30"} <= set(ROWS)


@pytest.mark.parametrize("row", ROWS.values(), ids=str)
def test_every_row_of_specs_is_shown_or_says_why_not(row: Row) -> None:
    assert row.symptom
    assert bool(row.tests) != bool(row.cannot)
    assert not absent(row), "these tests are not there (any more)"
