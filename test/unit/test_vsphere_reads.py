"""Reads that meet the end of their login, or of their pages, and what is never sent twice."""

from typing import cast

import pytest
from pyVmomi import vim, vmodl

from banlieue.api.reasons import Reason
from banlieue.providers.vsphere.client import soap, transport
from banlieue.providers.vsphere.client.faults import driver_error
from banlieue.providers.vsphere.client.session import Login, Session
from banlieue.providers.vsphere.client.transport import Unreadable, Untold
from banlieue.providers.vsphere.places import sight
from banlieue.sdk.errors import Transient


class Collector:
    """A collector whose pages are gone."""

    def ContinueRetrievePropertiesEx(self, token: str) -> None:  # noqa: N802 - a method's name
        raise vmodl.fault.InvalidArgument(invalidProperty=token)


def test_a_page_that_is_there_no_more_is_nobodys_wrong_spec() -> None:
    with pytest.raises(Unreadable) as lost:
        soap._next_page(Collector(), "page-2")
    error = driver_error(lost.value, Reason.UPDATE_FAILED)
    assert (type(error), error.reason) == (Transient, Reason.UPDATE_FAILED)


def test_an_object_that_nothing_is_told_of_is_neither_gone_nor_a_crash(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A vCenter leaves out what the account may not see, and what goes at this moment."""
    monkeypatch.setattr(soap, "read", lambda *_: [])
    with pytest.raises(Unreadable) as nothing:
        soap.read_one(Session.__new__(Session), "session[1]lease-1", vim.HttpNfcLease, ("state",))
    error = driver_error(nothing.value, Reason.IMAGE_IMPORT_FAILED)
    assert (type(error), error.reason) == (Transient, Reason.IMAGE_IMPORT_FAILED)


def test_a_part_of_what_was_asked_for_is_not_taken_for_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = [soap.Found("VirtualMachine", "vm-1", {})]
    monkeypatch.setattr(soap, "read", lambda *_: told)
    session, both = Session.__new__(Session), dict.fromkeys(("vm-1", "vm-2"), vim.VirtualMachine)
    with pytest.raises(Untold, match="vm-2"):
        soap.read_all(session, both, ("name",))
    told.append(soap.Found("VirtualMachine", "vm-2", {}))
    assert soap.read_all(session, both, ("name",)) == told


def test_a_cluster_that_nothing_is_told_of_is_hidden_not_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(soap, "read", lambda *_: [])
    assert sight.hidden(Session.__new__(Session), {"domain-c7"}) == {"domain-c7"}


def test_no_call_that_takes_something_away_counts_as_a_read() -> None:
    assert not [name for name in transport._READS if "Continue" in name or "Task" in name]
    assert "WaitForUpdatesEx" not in transport._READS


class Logins:
    """A session that another thread renews while a call is under way."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, renewed: bool) -> None:
        first, second = (cast("Login", _Login(number)) for number in (1, 2))
        self.session = Session.__new__(Session)
        self.asked: list[int] = []
        self._now = [first]
        self._after = second if renewed else first
        monkeypatch.setattr(Session, "login", property(lambda _: self._now[-1]))

    def call(self, login: Login) -> str:
        """Fails as a call does whose login is ended, and works with another."""
        self.asked.append(login.number)
        if login.number == 1:
            self._now.append(self._after)
            raise ConnectionAbortedError("the session was ended")
        return "answer"


class _Login:
    def __init__(self, number: int) -> None:
        self.number = number


def test_a_read_that_a_renewed_login_ended_is_made_with_the_new_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    logins = Logins(monkeypatch, renewed=True)
    assert logins.session.run(logins.call, reads=True) == "answer"
    assert logins.asked == [1, 2]


@pytest.mark.parametrize(
    ("renewed", "reads"), [(True, False), (False, True)], ids=["a write", "no new login"]
)
def test_nothing_else_is_sent_twice(
    monkeypatch: pytest.MonkeyPatch, *, renewed: bool, reads: bool
) -> None:
    logins = Logins(monkeypatch, renewed=renewed)
    with pytest.raises(ConnectionAbortedError):
        logins.session.run(logins.call, reads=reads)
    assert logins.asked == [1]
