"""A lease on a VM that is being imported: where its files go, and that somebody still sends them.

A vCenter ends a lease that is not heard of for `leaseTimeout` seconds and takes the VM away, so
what a process that died left behind goes by itself.
"""

import contextlib
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyVmomi import vim

from banlieue.api.reasons import Reason
from banlieue.providers.vsphere.client import faults
from banlieue.providers.vsphere.client.session import Login, Session
from banlieue.providers.vsphere.client.soap import moid, read_one
from banlieue.providers.vsphere.client.transport import Trust
from banlieue.providers.vsphere.images.upload import HostTrust
from banlieue.sdk.errors import Transient

_READY_SECONDS = 300.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0
MOST_SILENCE = 60.0
"""Seconds between two words to the vCenter that files are still sent."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where one file of the VM goes."""

    url: str
    thumbprint: str | None


class Lease:
    """An open lease; a thread of its own keeps it while files are sent."""

    def __init__(self, session: Session, key: str, sleep: Callable[[float], None]) -> None:
        self._session = session
        self._key = key
        self._over = threading.Event()
        self._percent = 0
        info = self._ready(sleep)
        self.vm = moid(info.entity)
        self.targets = {
            url.importKey: Target(url.url, url.sslThumbprint or None) for url in info.deviceUrl
        }
        every = min(MOST_SILENCE, (info.leaseTimeout or 300) / 5)
        threading.Thread(target=self._keep, args=(every,), name="image lease", daemon=True).start()

    def _ready(self, sleep: Callable[[float], None]) -> Any:  # noqa: ANN401 - an HttpNfcLease.Info
        """What the lease says once it is ready; raises the fault it ended with."""
        until, pause = time.monotonic() + _READY_SECONDS, _FIRST_PAUSE
        while True:
            found = read_one(self._session, self._key, vim.HttpNfcLease, ("state", "error"))
            state = str(found.get("state"))
            if state == "ready":
                return read_one(self._session, self._key, vim.HttpNfcLease, ("info",)).get("info")
            if state in {"error", "done"}:
                raise found.get("error") or _ended()
            if time.monotonic() >= until:
                self.abort()
                raise _ended()
            sleep(pause)
            pause = min(_LONGEST_PAUSE, pause * 2)

    def progress(self, percent: int) -> None:
        """Let the vCenter's own list of tasks tell how far it is."""
        self._percent = max(0, min(100, percent))

    def _keep(self, every: float) -> None:
        while not self._over.wait(every):
            # The import itself notices that its lease is gone; here nobody could be told.
            with contextlib.suppress(*faults.NATIVE):
                self._call(lambda lease: lease.HttpNfcLeaseProgress(self._percent))

    def complete(self) -> None:
        """All files are there: the VM is whole. Raises what the vendor library raises.

        Raises:
            Transient: the session ended, and the lease with it; nobody's login was refused.
        """
        self._over.set()
        try:
            self._call(lambda lease: lease.HttpNfcLeaseComplete())
        except vim.fault.NotAuthenticated as error:
            raise _ended() from error

    def abort(self) -> None:
        """Give the VM up, as far as the vCenter can be reached; it takes the VM away."""
        self._over.set()
        with contextlib.suppress(*faults.NATIVE):
            self._call(lambda lease: lease.HttpNfcLeaseAbort(None))

    def _call(self, call: Callable[[Any], Any]) -> None:
        def within(login: Login) -> None:
            call(vim.HttpNfcLease(self._key, login.ops))

        within(self._session.login)  # a lease ends with the session it was given in


def trust_of(target: Target, otherwise: Trust) -> Trust:
    """Whom to trust when a file is sent: the thumbprint the vCenter tells, else the Provider's."""
    try:
        thumbprint = bytes.fromhex((target.thumbprint or "").replace(":", ""))
    except ValueError:
        thumbprint = b""
    if len(thumbprint) not in {20, 32}:
        return otherwise
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return HostTrust(context, frozenset(), thumbprint)


def _ended() -> Transient:
    return Transient(Reason.IMAGE_IMPORT_FAILED, "the vCenter ended the import; it is tried again")
