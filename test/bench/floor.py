"""The raw script on a vCenter simulator of its own: the floor that ours is measured against."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from test.bench.figures import per_vm, share, times
from test.bench.installation import called, calls_at, switched_on
from test.bench.processes import cpu
from test.bench.rawvms import Order
from test.kit.stack import ROOT
from test.kit.vcsim import VCSim
from test.kit.vcsim_values import Machine


def measure_raw(vms: int, like: Machine, directory: Path, *, on_in_clone: bool) -> dict[str, Any]:
    """The same VMs by the raw script on a fresh vCenter.

    Args:
        vms: How many.
        like: A VM of ours, which theirs resemble.
        directory: Where files go.
        on_in_clone: Whether the clone call switches the VM on.

    Raises:
        RuntimeError: The script ended; its last words are in its log.
    """
    with VCSim(directory) as vcenter, _script(directory) as script:
        order = Order(
            url=vcenter.url,
            ca_pem=vcenter.ca_pem,
            username=vcenter.username,
            password=vcenter.password,
            names=[f"vm-{number:03}" for number in range(vms)],
            cpus=like.cpus,
            memory_mib=like.memory_mib,
            linked=bool(like.disks[0].parent),
            extra_config=dict(like.extra_config),
            on_in_clone=on_in_clone,
        )
        _step(script, order.line())
        before, used = calls_at(vcenter), cpu(vcenter.process.pid)
        told = _step(script)
        calls = calls_at(vcenter) - before
        spent = {"its own": told["cpu"], "vcsim": cpu(vcenter.process.pid) - used}
        on = [at - told["began"] for at in switched_on(vcenter)]
        middle = calls_at(vcenter)
        gone = _step(script)
        deletes = calls_at(vcenter) - middle
        figures = {
            **times("powered on", on),
            **called("create", calls, vms),
            **{f"CPU s, create, {name}": seconds for name, seconds in spent.items()},
            "share of vcsim, create": share("vcsim", spent),
            "memory of its own, MiB": told["rss"],
            "all deleted, s": gone["seconds"],
            **called("delete", deletes, vms),
        }
        return {"figures": figures, "create": {"calls_per_vm": per_vm(calls, vms)}}


@contextlib.contextmanager
def _script(directory: Path) -> Iterator["subprocess.Popen[str]"]:
    with (
        (directory / "raw.log").open("w", encoding="utf-8") as log,
        subprocess.Popen(
            [sys.executable, "-m", "test.bench.rawvms"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as script,
    ):
        try:
            yield script
        finally:
            script.kill()


def _step(script: "subprocess.Popen[str]", line: str = "\n") -> dict[str, float]:
    if script.stdin is None or script.stdout is None:
        raise RuntimeError("the raw script has no pipes")
    script.stdin.write(line)
    script.stdin.flush()
    answer = script.stdout.readline()
    if not answer:
        raise RuntimeError(f"the raw script ended with exit code {script.wait()}")
    told: dict[str, float] = json.loads(answer)
    return told
