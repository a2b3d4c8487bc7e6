"""Owners, backend names and marks."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from banlieue.sdk.identity import Mark, Owner, backend_name, valid_mark

names = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,60}[a-z0-9])?", fullmatch=True)
owners = st.builds(Owner, names, st.sampled_from(["VirtualMachine", "Machine"]), names, names)


@pytest.mark.identity("0.2")
@given(owners, st.integers(0, 1000))
def test_a_backend_name_is_short_and_plain_on_every_backend(owner: Owner, epoch: int) -> None:
    name = backend_name(owner, epoch)
    assert re.fullmatch(r"[a-z0-9][a-z0-9-]*[a-z0-9]", name)
    assert len(name) <= 63


@pytest.mark.identity("0.1", "0.2")
@given(owners, owners, st.integers(0, 3), st.integers(0, 3))
def test_different_owners_and_epochs_never_share_a_name(
    one: Owner, other: Owner, epoch: int, later: int
) -> None:
    same = one == other and epoch == later
    assert (backend_name(one, epoch) == backend_name(other, later)) is same


@given(owners, st.uuids(), st.integers(0, 1000), st.booleans())
def test_a_mark_reads_as_it_was_written(
    owner: Owner,
    uuid: object,
    epoch: int,
    incoming: bool,  # noqa: FBT001 - drawn by hypothesis
) -> None:
    mark = Mark(owner, str(uuid), epoch, incoming)
    assert Mark.decode(mark.encode()) == mark


@given(st.text() | st.none())
def test_text_that_is_no_mark_is_none_and_never_an_error(text: str | None) -> None:
    assert Mark.decode(text) is None


@pytest.mark.identity("0.3")
@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{}",
        '{"owner":1}',
        '{"owner":"a/b","uuid":"u","epoch":0}',
        '"x"',
        "null",
        '{"owner":"a/b/c/d","uuid":"","epoch":0}',
        '{"owner":"a/b/c/d","uuid":"u","epoch":"x"}',
    ],
)
def test_a_damaged_mark_is_none(text: str) -> None:
    assert Mark.decode(text) is None


@pytest.mark.identity("0.3")
def test_a_mark_is_valid_only_with_the_uuid_it_names() -> None:
    mark = Mark(Owner("i", "VirtualMachine", "ns", "vm"), "AAAA")
    assert valid_mark(mark, "aaaa")
    assert not valid_mark(mark, "bbbb")
    assert not valid_mark(None, "aaaa")
