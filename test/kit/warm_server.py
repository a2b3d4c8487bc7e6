"""Runs our modules as processes that need not import anything: forks of this one.

Most of the CPU a role takes until it serves goes into imports, and the tests start hundreds of
roles. It reads one JSON request per line and answers each with one line; see `test.kit.warm`.
"""

import ctypes
import gc
import json
import os
import random
import runpy
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

_MODULES = (
    "banlieue.cli.main",
    "banlieue.cli.crds",
    "banlieue.cli.recover",
    "banlieue.cli.roles",
    "banlieue.cli.schedule",
    "banlieue.controller.app",
    "banlieue.providers.vsphere.backend",
    "banlieue.providers.vsphere.client.session",
    "banlieue.sdk.registry",
    "banlieue.sdk.runtime.process",
    "banlieue.sdk.runtime.serve",
    "banlieue.sdk.simulated.backend",
    "banlieue.sdk.simulated.server",
)
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


def _answer(value: object) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def _ended(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _become(request: dict[str, Any], ready: int) -> None:
    """In the child: be what was asked for, in everything but the imports."""
    os.setsid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    nothing = os.open(os.devnull, os.O_RDONLY)
    log = os.open(request["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.write(ready, b"1")
    os.closerange(3, 1024)
    os.environ.clear()
    os.environ.update(request["env"])
    if request["cwd"]:
        os.chdir(request["cwd"])
    random.seed()
    sys.argv = ["-m", *request["arguments"]]


def _fork(request: dict[str, Any]) -> int:
    """The child's pid; 0 in the child itself."""
    mine, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        _become(request, theirs)
        return 0
    os.close(theirs)
    os.read(mine, 1)
    os.close(mine)
    return pid


def _serve() -> tuple[str, Sequence[str]] | None:
    """Answer requests until there are none; in a child, the module to run and its arguments."""
    for line in sys.stdin:
        request = json.loads(line)
        if "ended" in request:
            _answer(_ended(request["ended"]))
        elif "reap" in request:
            status = os.waitpid(request["reap"], 0)[1]
            _answer(os.waitstatus_to_exitcode(status))
        else:
            pid = _fork(request)
            if pid == 0:
                return request["module"], request["arguments"]
            _answer(pid)
    return None


def main() -> None:
    """Serve; a child leaves the loop and runs its module to the end, as a fresh one would."""
    for name in _MODULES:
        import_module(name)
    gc.collect()
    gc.freeze()
    wanted = _serve()
    if wanted is not None:
        runpy.run_module(wanted[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
