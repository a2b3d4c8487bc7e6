"""Our vCenter simulator as a process: started, killed, restarted; steered by its control interface.

with VCSim(tmp_path, templates=["ubuntu"]) as vcenter:
    ...vcenter.url, vcenter.username, vcenter.password, vcenter.thumbprint...
"""

import itertools
import os
import shutil
import uuid
import zlib
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from test.kit.certificates import Authority, KeyPair
from test.kit.ports import LOOPBACK, free_port
from test.kit.process import Process
from test.kit.tools import tool
from test.kit.vcsim_control import VCSimControl

USERNAME: Final = "administrator@vsphere.local"
PLANTED_PASSWORD: Final = "planted-4712-vcsim-password"

_START_TIMEOUT: Final = 60.0
_GRACE: Final = 0.5
_numbers = itertools.count()


class VCSim(VCSimControl):
    """One simulated vCenter. Nothing of its inventory outlives its process.

    With the default arguments it has the datacenter DC0 with the cluster DC0_C0 of three hosts, the
    datastore LocalDS_0, the networks "VM Network" and DC0_DVPG0, no machines, and its templates in
    the folder /DC0/vm/templates.

    Attributes:
        url: The SOAP endpoint; the same after a restart.
        username: The account that may log in.
        password: Its password.
        instance_uuid: Its identity; the same after a restart.
        authority: What issued its certificate.
        certificate: Its certificate and key.
        process: The process; pause it for a vCenter that hangs.
    """

    def __init__(
        self,
        directory: Path,
        *,
        templates: Sequence[str] = ("ubuntu",),
        username: str = USERNAME,
        password: str = PLANTED_PASSWORD,
        instance_uuid: str = "",
        authority: Authority | None = None,
        arguments: Sequence[str] = (),
    ) -> None:
        """Describe it; the `with` block or `start` starts it.

        Args:
            directory: Where logs, certificates and datastores go.
            templates: Names of the templates in each datacenter.
            username: The account that may log in.
            password: Its password.
            instance_uuid: Its identity; a fresh one when empty.
            authority: What issues its certificate; one of its own when None.
            arguments: More flags of the program, such as `-cluster`, `2`; they win.

        Raises:
            ToolError: The program is not built.
        """
        self._number = next(_numbers)
        self._starts = 0
        self._port, control = free_port(), free_port()
        super().__init__(f"http://{LOOPBACK}:{control}")
        self.url = f"https://{LOOPBACK}:{self._port}/sdk"
        self.username, self.password = username, password
        self.instance_uuid = instance_uuid or str(uuid.uuid4())
        self.authority = authority or Authority("banlieue test vCenter CA")
        self.certificate: KeyPair = self.authority.issue(
            f"vcsim-{self._number}", hosts=[LOOPBACK, "localhost"]
        )
        self._directory = directory
        self._templates, self._extra = tuple(templates), tuple(arguments)
        self.process = self._described()

    @property
    def thumbprint(self) -> str:
        """SHA-256 of its certificate, in colon-separated upper-case hex."""
        return self.certificate.thumbprint

    @property
    def ca_pem(self) -> str:
        """The certificate of its authority."""
        return self.authority.certificate.decode()

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the endpoint."""
        return LOOPBACK, self._port

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> Self:
        """Start it and wait until it answers.

        Raises:
            ProcessEndedError: It ended, as on wrong arguments; the message has its words.
            WaitTimeoutError: It does not answer.
        """
        self._starts += 1
        self._datastores.mkdir(parents=True, exist_ok=True)
        self.certificate.write(self._directory, self._stem)
        self.process = self._described()
        self.process.start(ready=self.alive, timeout=_START_TIMEOUT)
        return self

    def stop(self) -> None:
        """End it; machines and datastores are gone. Clients that wait for updates are cut off."""
        self.process.stop(grace=_GRACE)
        shutil.rmtree(self._datastores, ignore_errors=True)

    def kill9(self) -> None:
        """End it without a word to its clients; machines and datastores are gone."""
        self.process.kill9()
        shutil.rmtree(self._datastores, ignore_errors=True)

    def restart(self) -> None:
        """Kill it and start it again: same endpoint, certificate and identity, fresh inventory.

        References to objects of before are unknown to it.
        """
        self.kill9()
        self.start()

    @property
    def _stem(self) -> str:
        return f"vcsim-{self._number}"

    @property
    def _datastores(self) -> Path:
        return self._directory / f"{self._stem}-datastores"

    def _described(self) -> Process:
        # Far apart for each vCenter and each start, so that no reference means two objects.
        base = (zlib.crc32(self.instance_uuid.encode()) % 900 + 1) * 1_000_000
        arguments: list[str | Path] = [
            tool("vcsim"),
            *("-l", f"{LOOPBACK}:{self._port}"),
            *("-control", self.control_url.removeprefix("http://")),
            *("-tlscert", self._directory / f"{self._stem}.crt"),
            *("-tlskey", self._directory / f"{self._stem}.key"),
            *("-instance-uuid", self.instance_uuid),
            *("-moref-base", str(base + self._starts * 50_000)),
            "-exit-with-parent",
        ]
        for template in self._templates:
            arguments += ["-template", template]
        # Command lines are for all to see, the environment is not.
        secret = {"VCSIM_USERNAME": self.username, "VCSIM_PASSWORD": self.password}
        return Process(
            self._stem,
            [*arguments, *self._extra],
            log_file=self._directory / f"{self._stem}.log",
            env={**os.environ, **secret, "TMPDIR": str(self._datastores)},
        )
