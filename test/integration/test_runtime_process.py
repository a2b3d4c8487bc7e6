"""Whole processes of the runtime: signals, leases, exit codes."""

import json
import os
import signal
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from test.kit import things
from test.kit.controlplane import ControlPlane
from test.kit.kube import Kube
from test.kit.ports import LOOPBACK, free_port
from test.kit.process import Process
from test.kit.things import thing
from test.kit.waiting import wait_until

pytestmark = pytest.mark.slow

ROLE = dedent(
    """\
    import asyncio, json, sys
    from banlieue.sdk.kube import Key
    from banlieue.sdk.reconcile import Controller, Request, Result, Watch
    from banlieue.sdk.runtime import logs
    from banlieue.sdk.runtime.elector import LeaseTimes
    from banlieue.sdk.runtime.process import Options, Process
    from test.kit.things import THINGS

    given = json.loads(sys.argv[1])
    namespace = given["namespace"]
    logs.configure(level="info")
    process = Process(
        Options(
            role="role-test",
            kubeconfig=given["kubeconfig"],
            http_port=given["port"],
            identity=given["identity"],
            lease=Key(namespace, "role") if given["lease"] else None,
            lease_times=LeaseTimes(duration=3.0, deadline=2.0, retry=0.4),
            grace=given.get("grace", 10.0),
        )
    )

    class Slow:
        async def reconcile(self, key):
            obj = process.cache.get(THINGS, key)
            if obj is None or obj["spec"].get("owner") == given["identity"]:
                return Result()
            print("pass begun", flush=True)
            # sleep-ok: stands for work that takes time
            await asyncio.sleep(given.get("work", 0.0))  # sleep-ok: the work of a pass
            body = {
                "metadata": {"namespace": key.namespace, "name": key.name},
                "spec": {"owner": given["identity"]},
            }
            await process.context.api.apply(THINGS, body, manager="test")
            print("pass done", flush=True)
            return Result()

    async def report(what):
        print(what, flush=True)

    watch = Watch(THINGS, lambda change: [Request(change.key)], namespace=namespace)
    process.add_controller(Controller("slow", Slow(), (watch,)))
    process.on_start(lambda: report("started"))
    process.on_stop(lambda: report("stop hook"))
    sys.exit(process.main())
    """
)


class Role:
    """A subprocess running `ROLE`."""

    def __init__(self, directory: Path, identity: str, kubeconfig: Path, **given: Any) -> None:  # noqa: ANN401 - JSON data
        self.port = free_port()
        given = {"lease": True, **given, "identity": identity, "port": self.port}
        given["kubeconfig"] = str(kubeconfig)
        script = directory / "role.py"
        script.write_text(ROLE)
        arguments: list[str | Path] = [sys.executable, script, json.dumps(given)]
        root = Path(__file__).parents[2]
        self.process = Process(
            identity,
            arguments,
            log_file=directory / f"{identity}.log",
            env={"PYTHONPATH": f"{root}:{root / 'src'}", "PYTHONUNBUFFERED": "1"},
        )

    def probe(self, path: str) -> tuple[int, str]:
        url = f"http://{LOOPBACK}:{self.port}{path}"
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def ready(self) -> bool:
        return self.probe("/readyz")[0] == 200

    def leads(self) -> bool:
        return "leader_election_master_status" in (metrics := self.probe("/metrics")[1]) and (
            'role"} 1.0' in metrics
        )

    def signal(self, number: signal.Signals) -> None:

        os.kill(self.process.pid, number)


@pytest.fixture
def roles(
    control_plane: ControlPlane, kube: Kube, namespace: str, tmp_path: Path
) -> Iterator["Roles"]:
    kube.apply_crds([things.definition()])
    made = Roles(control_plane.kubeconfig, namespace, tmp_path)
    yield made
    for role in made.all:
        role.process.kill9()


class Roles:
    def __init__(self, kubeconfig: Path, namespace: str, directory: Path) -> None:
        self.kubeconfig = kubeconfig
        self.namespace = namespace
        self.directory = directory
        self.all: list[Role] = []

    def start(self, identity: str, **given: Any) -> Role:  # noqa: ANN401 - JSON data
        given.setdefault("namespace", self.namespace)
        role = Role(self.directory, identity, self.kubeconfig, **given)
        self.all.append(role)
        role.process.start(role.ready)
        return role


def lease_of(kube: Kube, namespace: str) -> dict[str, Any]:
    spec: dict[str, Any] = kube.get("leases", "role", namespace)["spec"]
    return spec


def test_sigterm_lets_the_running_pass_end_and_releases_the_lease(
    roles: Roles, kube: Kube, namespace: str
) -> None:
    role = roles.start("one", work=1.5)
    wait_until(role.leads, 20, "leadership", retry_on=(OSError,))
    kube.create(thing("a"), namespace)
    kube.create(thing("b"), namespace)
    wait_until(lambda: "pass begun" in role.process.logs(), 20, "a pass")
    role.signal(signal.SIGTERM)
    wait_until(lambda: role.probe("/readyz")[0] == 503, 5, "unreadiness", retry_on=(OSError,))
    assert role.process.wait(20) == 0
    logs = role.process.logs()
    assert logs.count("pass done") == logs.count("pass begun")
    assert logs.index("pass done") < logs.index("stop hook")
    assert lease_of(kube, namespace)["holderIdentity"] == ""
    assert kube.get("things", "a", namespace)["spec"]["owner"] == "one"


def test_a_pass_that_does_not_end_is_cut_short_after_the_grace(
    roles: Roles, kube: Kube, namespace: str
) -> None:
    role = roles.start("one", work=600.0, grace=0.5)
    kube.create(thing("a"), namespace)
    wait_until(lambda: "pass begun" in role.process.logs(), 20, "a pass")
    role.signal(signal.SIGTERM)
    assert role.process.wait(15) == 0
    assert "pass done" not in role.process.logs()
    assert lease_of(kube, namespace)["holderIdentity"] == ""


def test_a_second_signal_does_not_wait(roles: Roles, kube: Kube, namespace: str) -> None:
    role = roles.start("one", work=600.0, grace=600.0)
    kube.create(thing("a"), namespace)
    wait_until(lambda: "pass begun" in role.process.logs(), 20, "a pass")
    role.signal(signal.SIGINT)
    wait_until(lambda: '"message":"stopping"' in role.process.logs(), 10, "the stop")
    role.signal(signal.SIGINT)
    assert role.process.wait(15) == 0


def test_a_standby_is_ready_and_takes_over_from_a_killed_leader(
    roles: Roles, kube: Kube, namespace: str
) -> None:
    first = roles.start("one")
    wait_until(first.leads, 20, "leadership", retry_on=(OSError,))
    second = roles.start("two")
    kube.create(thing("a"), namespace)
    kube.wait_for("things", "a", namespace, until=lambda it: it["spec"].get("owner") == "one")
    assert not second.leads()
    first.process.kill9()
    wait_until(second.leads, 20, "the takeover", retry_on=(OSError,))
    kube.wait_for("things", "a", namespace, until=lambda it: it["spec"]["owner"] == "two")
    assert lease_of(kube, namespace)["leaseTransitions"] == 1


def test_a_released_lease_is_taken_over_without_waiting_for_its_end(
    roles: Roles,
) -> None:
    first = roles.start("one")
    wait_until(first.leads, 20, "leadership", retry_on=(OSError,))
    second = roles.start("two")
    first.signal(signal.SIGTERM)
    assert first.process.wait(15) == 0
    wait_until(second.leads, 2.5, "the takeover", retry_on=(OSError,))


def test_a_leader_that_cannot_renew_ends_itself(roles: Roles, control_plane: ControlPlane) -> None:
    role = roles.start("one")
    wait_until(role.leads, 20, "leadership", retry_on=(OSError,))
    control_plane.stop_apiserver()
    try:
        assert role.process.wait(30) == 1
    finally:
        control_plane.start_apiserver()
    assert "the lease was lost" in role.process.logs()


def test_a_process_without_a_cluster_says_so(tmp_path: Path) -> None:
    role = Role(tmp_path, "one", tmp_path / "missing", namespace="x")
    role.process.start()
    assert role.process.wait(30) == 2
    assert "no usable Kubernetes configuration" in role.process.logs()
