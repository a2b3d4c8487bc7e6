"""`banlieue adopt plan`: manifests for VMs that exist, and nothing of the credentials."""

import base64
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from banlieue.api.resources import (
    NAMESPACES,
    PROVIDER_CLASSES,
    PROVIDERS,
    SECRETS,
    VIRTUAL_MACHINES,
)
from banlieue.api.types import PowerState
from banlieue.api.v1alpha1.virtualmachine import VirtualMachine
from banlieue.cli import adoption, inventory, main
from banlieue.cli.adoption import Wanted, propose
from banlieue.sdk.driver import DiskState, MachineState, NicState
from banlieue.sdk.identity import OWNER_VIRTUAL_MACHINE, Mark, Owner
from banlieue.sdk.kube import Key
from banlieue.sdk.powers import Candidate
from banlieue.sdk.simulated.backend import WORLDS
from banlieue.sdk.simulated.world import PASSWORD, USERNAME
from banlieue.sdk.testing.fakes import FakeClock
from banlieue.sdk.testing.memory_api import MemoryApi
from test.kit.yaml_text import yaml_documents

PROVIDER = Key("banlieue-system", "sim")
WANTED = Wanted(PROVIDER, "team-a")


def candidate(name: str = "web", number: int = 1, **changes: Any) -> Candidate:  # noqa: ANN401
    uuid = f"{number:08d}-0000-4000-8000-000000000000"
    state = MachineState(
        name=name,
        uuid=uuid,
        backend_id=f"vm-{number}",
        mark=changes.pop("mark", None),
        power=PowerState.POWERED_OFF,
        failure_domain="domain-c7",
        cpus=2,
        memory_mib=4096,
        disks=(DiskState("[ds] web/web.vmdk", "root", 20), DiskState("[ds] fcd/x.vmdk")),
        nics=(NicState("4000", "eth0", "00:50:56:00:00:01", "VM Network"),),
    )
    made = Candidate(uuid, state, uuid, "efi", path=f"DC0/prod/{name}")
    return replace(made, **changes)


def specs(texts: Sequence[adoption.Manifest]) -> list[dict[str, Any]]:
    return [yaml.safe_load(it.text) for it in texts]


def test_a_manifest_says_whose_vm_it_is_and_leaves_all_else_out() -> None:
    wanted = replace(WANTED, domain_name={"domain-c7": "sim-dc0-c0"}.get)
    (made,), left_out = propose([candidate("Web_1.example")], wanted)
    assert not left_out
    assert yaml.safe_load(made.text) == {
        "apiVersion": "banlieue.io/v1alpha1",
        "kind": "VirtualMachine",
        "metadata": {"name": "web-1-example", "namespace": "team-a"},
        "spec": {
            "providerRef": {"name": "sim", "namespace": "banlieue-system"},
            "adopt": {"id": "00000001-0000-4000-8000-000000000000", "accepted": False},
        },
    }
    VirtualMachine.from_api(yaml.safe_load(made.text))
    comment = [line for line in made.text.splitlines() if line.startswith("#")]
    assert comment == [
        "# DC0/prod/Web_1.example",
        "# PoweredOff, 2 CPUs, 4096 MiB, firmware efi, failure domain sim-dc0-c0",
        "# disk root: 20 GiB, [ds] web/web.vmdk",
        "# disk (not its own): size unknown, [ds] fcd/x.vmdk",
        "# interface eth0: 00:50:56:00:00:01 on VM Network",
    ]


def test_what_is_no_candidate_is_left_out_and_counted() -> None:
    uuid = candidate(number=2).id
    owner = Owner("x", OWNER_VIRTUAL_MACHINE, "team-z", "db")
    found = [
        candidate("free", 1),
        candidate("managed", 2, mark=Mark(owner, uuid)),
        candidate("copied", 3, mark=Mark(owner, uuid)),
        candidate("ubuntu", 4, template=True),
        candidate("named", 5),
        candidate("other", 6, path="DC0/test/other"),
    ]
    wanted = replace(
        WANTED, selectors=("*/prod/*", "f*"), claimed=frozenset({candidate(number=5).id})
    )
    made, left_out = propose(found, wanted)
    assert [it.name for it in made] == ["copied", "free"]
    assert left_out == {
        adoption.MANAGED: 1,
        adoption.TEMPLATES: 1,
        adoption.CLAIMED: 1,
        adoption.UNSELECTED: 1,
    }


@pytest.mark.parametrize(
    "names",
    [
        ["web", "Web", "web!"],
        ["x" * 80, "x" * 90],
        ["Ü", "--", ""],
        ["taken", "other"],
        ["web", "web", "web-00000002"],
    ],
)
def test_names_are_valid_unique_and_the_same_at_every_run(names: list[str]) -> None:
    found = [candidate(name, number) for number, name in enumerate(names, 1)]
    wanted = replace(WANTED, taken=frozenset({"taken"}))
    made, _ = propose(found, wanted)
    got = [it.name for it in made]
    assert len(set(got)) == len(names)
    assert all(len(name) <= 63 for name in got)
    assert "taken" not in got
    assert all(name.strip("-") == name and name for name in got)
    again, _ = propose(reversed(found), wanted)
    assert [it.text for it in again] == [it.text for it in made]


def test_a_name_of_the_backend_never_becomes_yaml() -> None:
    evil = "web\n---\nkind: Secret\r\u2028x"
    (made,), _ = propose([candidate(evil)], WANTED)
    assert len(yaml_documents(made.text)) == 1
    assert yaml.safe_load(made.text)["kind"] == "VirtualMachine"


# Against a cluster and a backend


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> MemoryApi:
    world = WORLDS.get("cli-adopt")
    for vm in list(world.control("vms", {})):
        world.control("remove", {"vm": vm["id"]})
    for name in ("web-1", "web-2", "db"):
        world.control("make_foreign", {"name": name, "domain": "domain-a"})
    api = MemoryApi(now=FakeClock().now)
    namespace, name = PROVIDER.namespace, PROVIDER.name
    endpoint = "simulated://memory/cli-adopt"
    login = {"username": USERNAME, "password": PASSWORD}
    data = {key: base64.b64encode(value.encode()).decode() for key, value in login.items()}
    api.put(NAMESPACES, {"metadata": {"name": "team-a"}})
    api.put(SECRETS, {"metadata": {"namespace": namespace, "name": "creds"}, "data": data})
    kind = {"apiGroup": "infrastructure.banlieue.io", "version": "v1alpha1"}
    machine = {**kind, "kind": "SimulatedMachine"}
    api.put(
        PROVIDER_CLASSES,
        {"metadata": {"name": "sims"}, "spec": {"backend": "simulated", "machine": machine}},
    )
    api.put(
        PROVIDERS,
        {
            "metadata": {"namespace": namespace, "name": name},
            "spec": {
                "providerClassRef": {"name": "sims"},
                "connection": {"endpoint": endpoint, "credentialsRef": {"name": "creds"}},
            },
            "status": {"failureDomains": [{"name": "sim-a", "id": "domain-a"}]},
        },
    )

    async def visit(role: str, kubeconfig: str, context: str, act: Any) -> Any:  # noqa: ANN401
        del role, kubeconfig, context
        return await act(api)

    monkeypatch.setattr(inventory, "with_client", visit)
    return api


@pytest.fixture
def runner() -> CliRunner:
    if not main.cli.commands:
        main._register()
    return CliRunner()


def run(runner: CliRunner, *more: str) -> Any:  # noqa: ANN401 - click's Result
    arguments = ["adopt", "plan", "--provider", str(PROVIDER), "-n", "team-a", *more]
    return runner.invoke(main.cli, arguments)


def test_the_plan_of_a_provider_is_printed_and_nothing_is_changed(
    api: MemoryApi, runner: CliRunner
) -> None:
    world = WORLDS.get("cli-adopt")
    before = _lasting(world.control("vms", {}))
    answer = run(runner, "--selector", "web-*")
    assert answer.exit_code == 0, answer.output
    documents = yaml_documents(answer.stdout)
    assert [it["metadata"]["name"] for it in documents] == ["web-1", "web-2"]
    ids = {vm["name"]: vm["uuid"] for vm in before}
    assert [it["spec"]["adopt"]["id"] for it in documents] == [ids["web-1"], ids["web-2"]]
    assert "2 VMs to adopt; left out: 1 not selected" in answer.stderr
    assert "policy.adoption.allowedNamespaces" in answer.stderr
    assert "failure domain sim-a" in answer.stdout
    assert _lasting(world.control("vms", {})) == before
    assert api.writes() == []


def _lasting(vms: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - JSON
    """What does not change by itself: guests boot meanwhile."""
    return [{k: v for k, v in vm.items() if not k.startswith("guest_")} for vm in vms]


def test_vms_that_a_virtual_machine_names_already_are_left_out(
    api: MemoryApi, runner: CliRunner
) -> None:
    ids = {vm["name"]: vm["uuid"] for vm in WORLDS.get("cli-adopt").control("vms", {})}
    for name, adopts in (("mine", ids["web-1"]), ("db", None)):
        spec = {"adopt": {"id": adopts}} if adopts else {}
        meta = {"namespace": "team-a", "name": name}
        api.put(VIRTUAL_MACHINES, {"metadata": meta, "spec": spec})
    answer = run(runner)
    names = [it["metadata"]["name"] for it in yaml_documents(answer.stdout)]
    assert names == [f"db-{ids['db'][:8]}", "web-2"]


def test_each_manifest_goes_to_a_file_of_its_own_and_none_is_overwritten(
    api: MemoryApi, runner: CliRunner, tmp_path: Path
) -> None:
    del api
    answer = run(runner, "-o", str(tmp_path / "adopt"))
    assert answer.exit_code == 0
    assert answer.stdout == ""
    files = sorted((tmp_path / "adopt").iterdir())
    assert [path.name for path in files] == ["db.yaml", "web-1.yaml", "web-2.yaml"]
    assert yaml.safe_load(files[0].read_text())["kind"] == "VirtualMachine"

    files[0].write_text("mine")
    answer = run(runner, "-o", str(tmp_path / "adopt"))
    assert answer.exit_code == 2
    assert files[0].read_text() == "mine"


@pytest.mark.parametrize(
    ("break_it", "told"),
    [
        (lambda api: api.drop(PROVIDERS, PROVIDER), "Provider banlieue-system/sim does not exist"),
        (lambda api: api.drop(PROVIDER_CLASSES, Key("", "sims")), "ProviderClass sims does not"),
        (lambda api: api.drop(SECRETS, Key(PROVIDER.namespace, "creds")), "creds does not exist"),
        (lambda api: _password(api, "wrong-0815"), "refused the credentials"),
        (lambda api: _endpoint(api, "http://127.0.0.1:1"), "gives no answer"),
    ],
)
def test_what_cannot_be_read_is_told_without_a_credential(
    api: MemoryApi,
    runner: CliRunner,
    break_it: Callable[[MemoryApi], object],
    told: str,
) -> None:
    break_it(api)
    answer = run(runner)
    assert answer.exit_code == 2
    assert told in answer.stderr
    assert "wrong-0815" not in answer.output
    assert "Traceback" not in answer.output


def _password(api: MemoryApi, password: str) -> None:
    value = base64.b64encode(password.encode()).decode()
    key = Key(PROVIDER.namespace, "creds")
    api.edit(SECRETS, key, lambda obj: obj["data"].update(password=value))


def _endpoint(api: MemoryApi, url: str) -> None:
    api.edit(PROVIDERS, PROVIDER, lambda obj: obj["spec"]["connection"].update(endpoint=url))
