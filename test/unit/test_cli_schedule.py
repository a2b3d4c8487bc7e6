"""`banlieue schedule`: the controller's own answer, explained, and plain about bad input."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from banlieue.api import names
from banlieue.api.resources import PROVIDERS, VIRTUAL_MACHINES
from banlieue.api.v1alpha1.virtualmachine import VirtualMachine
from banlieue.cli import main
from banlieue.cli.surroundings import NotReadable, from_cluster
from banlieue.controller.scheduling.dryrun import DryRun
from banlieue.controller.scheduling.placement import Placed, Unplaced
from banlieue.sdk.kube import Forbidden, Key, NotFound, Obj
from banlieue.sdk.testing.memory_api import Call, MemoryApi, Moment
from test.kit.controllerworld import NAMESPACE, SYSTEM, THIS, ControllerWorld, domain

Run = Callable[..., Result]


def machine(name: str, **spec: object) -> Obj:
    whole = {"classRef": {"name": "small"}, "imageRef": {"name": "ubuntu"}, **spec}
    return {
        "apiVersion": "banlieue.io/v1alpha1",
        "kind": "VirtualMachine",
        "metadata": {"namespace": NAMESPACE, "name": name, "labels": {"app": "db"}},
        "spec": whole,
    }


def dump(world: ControllerWorld, directory: Path) -> None:
    """What `kubectl get … -o yaml` writes: one List."""
    kinds = (
        "providers",
        "providerclasses",
        "vmclasses",
        "vmimages",
        "virtualmachines",
        "namespaces",
        "configmaps",
        "thismachines",
    )
    items = [
        {"apiVersion": resource.api_version, "kind": resource.kind, **obj}
        for resource in world.api._objects
        if resource.plural in kinds
        for obj in world.api.peek_all(resource)
    ]
    directory.mkdir()
    whole = {"apiVersion": "v1", "kind": "List", "items": items}
    (directory / "all.yaml").write_text(yaml.safe_dump(whole))


@pytest.fixture
def world() -> ControllerWorld:
    return ControllerWorld.ready(one={"domains": ("a", "b")}, two={"labels": {"env": "lab"}})


@pytest.fixture
def run(world: ControllerWorld, tmp_path: Path) -> Run:
    """Run the command over the world as it is now."""
    if not main.cli.commands:
        main._register()
    runner = CliRunner()

    def schedule(*machines: Obj | str, options: tuple[str, ...] = ()) -> Result:
        dump(world, tmp_path / "state")
        text = "\n---\n".join(it if isinstance(it, str) else yaml.safe_dump(it) for it in machines)
        (tmp_path / "vm.yaml").write_text(text)
        arguments = ["schedule", "-f", str(tmp_path / "vm.yaml"), "--from", str(tmp_path / "state")]
        return runner.invoke(main.cli, [*arguments, *options])

    return schedule


def placements(result: Result) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(result.stdout)["placements"]
    return found


def with_capacity(world: ControllerWorld, **free: int) -> None:
    def change(obj: Obj) -> None:
        obj["status"]["failureDomains"] = [
            {
                **domain(name.replace("_", "-")),
                "attributes": {
                    **domain(name)["attributes"],
                    "capacity": {"memoryMiB": {"total": 65536, "free": left}},
                },
            }
            for name, left in free.items()
        ]

    world.api.edit(PROVIDERS, Key(SYSTEM, "one"), change)


def test_a_machine_that_fits_is_placed(run: Run) -> None:
    result = run(machine("db-1", placement={"providerSelector": {"matchLabels": {"env": "lab"}}}))
    assert result.exit_code == 0, result.output
    assert "team-a/db-1: placed" in result.stdout
    assert "goes to failure domain two-a of Provider banlieue-system/two" in result.stdout


async def test_the_answer_is_the_controllers(world: ControllerWorld, run: Run) -> None:
    with_capacity(world, one_a=20000, one_b=40000)
    anti = {
        "topologyKey": "banlieue.io/failure-domain",
        "labelSelector": {"matchLabels": {"app": "db"}},
        "mode": "required",
    }
    wanted = {"placement": {"antiAffinity": [anti]}}
    machines = [machine(f"db-{number}", **wanted) for number in range(4)]
    foretold = placements(run(*machines, options=("-o", "json")))
    for made in machines:
        world.add_vm(made["metadata"]["name"], labels={"app": "db"}, **wanted)
        await world.settle(seconds=10)
    for told, made in zip(foretold, machines, strict=True):
        status = world.status(made["metadata"]["name"])
        scheduled = status.get("scheduled")
        assert told["placed"] == bool(scheduled)
        if scheduled:
            assert told["failureDomain"] == scheduled["failureDomain"]
            assert told["provider"]["name"] == scheduled["providerName"]
        else:
            said = next(it for it in status["conditions"] if it["type"] == "Scheduled")
            assert (told["reason"], told["message"]) == (said["reason"], said["message"])
    assert [it["placed"] for it in foretold] == [True, True, True, False]


def add_node(world: ControllerWorld, name: str, memory: int = 4096, **spec: object) -> None:
    """A machine that Cluster API made and that its Provider was not seen to hold yet."""
    placed = {
        "providerRef": {"namespace": SYSTEM, "name": "one"},
        "placement": {"failureDomain": "one-a"},
    }
    whole = {"cpus": 2, "memoryMiB": memory, **placed, **spec}
    world.api.put(THIS, {"metadata": {"namespace": "clusters", "name": name}, "spec": whole})


ON_ONE = {"providerRef": {"name": "one", "namespace": SYSTEM}}


def test_machines_of_cluster_api_take_room(world: ControllerWorld, run: Run) -> None:
    with_capacity(world, one_a=9000, one_b=0)
    add_node(world, "node-1")
    add_node(world, "node-2")
    result = run(machine("db-1", **ON_ONE))
    assert result.exit_code == 1
    assert "team-a/db-1: not placed, InsufficientCapacity" in result.stdout


def test_those_virtual_machines_stand_for_do_not_count_twice(
    world: ControllerWorld, run: Run
) -> None:
    with_capacity(world, one_a=9000, one_b=0)
    for name in ("a", "b"):
        add_node(world, name, virtualMachineRef={"name": name, "uid": "u"})
    assert "team-a/db-1: placed" in run(machine("db-1", **ON_ONE)).stdout


def test_a_damaged_machine_in_a_file_is_named(world: ControllerWorld, run: Run) -> None:
    add_node(world, "node-1", cpus="many")
    result = run(machine("db-1"))
    assert result.exit_code == 2
    assert "spec.cpus" in result.stderr


def test_what_was_placed_before_it_counts(world: ControllerWorld, run: Run) -> None:
    with_capacity(world, one_a=5000, one_b=0)
    pin = {"name": "one", "namespace": SYSTEM}
    result = run(machine("db-1", providerRef=pin), machine("db-2", providerRef=pin))
    assert result.exit_code == 1
    assert "team-a/db-1: placed" in result.stdout
    assert "team-a/db-2: not placed, InsufficientCapacity" in result.stdout


async def test_a_machine_that_exists_stays_where_it_is(world: ControllerWorld, run: Run) -> None:
    world.add_vm("db-1", providerRef={"name": "one", "namespace": SYSTEM})
    await world.settle(seconds=10)
    placed = world.status()["scheduled"]["failureDomain"]
    with_capacity(world, one_a=0, one_b=0)
    result = run(machine("db-1"))
    assert result.exit_code == 0
    assert f"stays in failure domain {placed}" in result.stdout


def test_explain_lists_every_candidate(world: ControllerWorld, run: Run) -> None:
    with_capacity(world, one_a=20000, one_b=1024)
    world.api.edit(PROVIDERS, Key(SYSTEM, "two"), lambda obj: obj["spec"].update(cordoned=True))
    result = run(machine("db-1"), options=("--explain", "-o", "json"))
    (told,) = placements(result)
    found = {(it["provider"]["name"], it.get("failureDomain", "")): it for it in told["candidates"]}
    assert set(found) == {("one", "one-a"), ("one", "one-b"), ("two", "")}
    assert found["one", "one-a"]["result"] == "chosen"
    assert found["one", "one-a"]["scores"]["machines"] == 0
    short = found["one", "one-b"]
    assert (short["filter"], short["reason"]) == ("memory", "InsufficientCapacity")
    assert "3 GiB short" in short["figures"]
    assert "smaller class" in short["remedy"]
    assert found["two", ""]["filter"] == "open"


def test_explain_reads_as_a_table(world: ControllerWorld, run: Run) -> None:
    with_capacity(world, one_a=20000, one_b=1024)
    lines = run(machine("db-1"), options=("--explain",)).stdout.splitlines()
    header = next(line for line in lines if "FAILURE DOMAIN" in line)
    start = header.index("FAILURE DOMAIN")
    rows = [line[start:].split()[0] for line in lines[lines.index(header) + 1 :]]
    assert sorted(rows[:2]) == ["one-a", "two-a"]
    assert rows[2:] == ["one-b"]


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_programs_get_one_document(run: Run, output: str) -> None:
    result = run(machine("db-1"), machine("db-2"), options=("-o", output))
    told = yaml.safe_load(result.stdout)
    assert set(told) == {"placements", "notes"}
    assert [it["virtualMachine"]["name"] for it in told["placements"]] == ["db-1", "db-2"]
    assert all("candidates" not in it for it in told["placements"])


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (machine("db-1", clasRef={"name": "x"}), ["unknown field spec.clasRef"]),
        (
            machine("db-1", placement={"antiAffinity": [{"topologyKeys": "x"}]}),
            ["unknown field spec.placement.antiAffinity[0].topologyKeys"],
        ),
        (
            {**machine("db-1"), "metadata": {"name": "db-1", "lables": {}}},
            ["unknown field metadata.lables"],
        ),
        (machine("db-1", powerOffMode="Gently"), ["spec.powerOffMode", "'Hard'"]),
        (machine("db-1", classRef={"name": "smal"}), ["VMClass smal does not exist", "small"]),
        (machine("db-1", imageRef={"name": "debian"}), ["VMImage debian does not exist", "ubuntu"]),
        (machine("db-1", imageRef=None), ["spec.imageRef is required"]),
        (machine("db-1", disks=[{"name": "data"}]), ["disk data has no size"]),
        (machine("db-1", adopt={"id": "x"}), ["spec.adopt"]),
        ({"apiVersion": "v1", "kind": "Secret"}, ["is v1/Secret, not a VirtualMachine"]),
        ({**machine("x"), "apiVersion": "banlieue.io/v2"}, ["banlieue.io/v2/VirtualMachine"]),
        ({**machine("x"), "metadata": {"generateName": "x-"}}, ["metadata.name is required"]),
        (machine("n" * 300), ["metadata.name is no name", "at most 253"]),
        (machine("Ünï"), ["metadata.name is no name"]),
        (
            machine("db-1", disks=[{"name": "a", "sizeGiB": 1}, {"name": "a", "sizeGiB": 2}]),
            ["spec.disks[1] has the name of spec.disks[0]"],
        ),
        (machine("db-1", disks=[{"name": "a", "sizeGiB": True}]), ["sizeGiB must be an integer"]),
        (machine("db-1", disks=[{"name": "a", "sizeGiB": "100"}]), ["sizeGiB must be an integer"]),
        (machine("db-1", classRef="small"), ["spec.classRef must be an object, such as {name: sm"]),
        ({**machine("db-1"), "spec": "none"}, ["spec must be an object"]),
        ({**machine("db-1"), "metadata": "db-1"}, ["metadata must be an object"]),
        ({**machine("db-1"), "metadata": {"name": 1}}, ["metadata.name is no name"]),
        ("kind: x\ndisks: &a [*a]", ["nested too deeply"]),
        ("just a word", ["not an object"]),
        ("a: [", ["not valid YAML"]),
        ("", ["there is no object in it"]),
    ],
)
def test_bad_input_is_named(run: Run, bad: Obj | str, words: list[str]) -> None:
    result = run(bad)
    assert result.exit_code == 2
    assert "vm.yaml" in result.stderr
    for word in words:
        assert word in result.stderr
    assert result.stdout == ""


def test_bad_json_is_called_json(run: Run, tmp_path: Path) -> None:
    run(machine("db-1"))
    for number, text in enumerate(("[" * 100_000, "{")):
        file = tmp_path / f"{number}.json"
        file.write_text(text)
        arguments = ["-f", str(file), "--from", str(tmp_path / "state")]
        answer = CliRunner().invoke(main.cli, ["schedule", *arguments])
        assert answer.exit_code == 2
        assert f"{file}: not valid JSON" in answer.stderr


def test_a_namespace_that_cannot_be_is_bad_input(run: Run) -> None:
    result = run(machine("db-1"), options=("-n", "Bad NS"))
    assert result.exit_code == 2
    assert "'Bad NS' is no name of a namespace" in result.stderr


def test_fields_of_the_state_that_are_passed_over_are_told(run: Run, tmp_path: Path) -> None:
    run(machine("db-1"))
    state = tmp_path / "state" / "all.yaml"
    whole = yaml.safe_load(state.read_text())
    (one, *_) = (it for it in whole["items"] if it["kind"] == "VMClass")
    one["spec"]["cpuz"] = 2
    state.write_text(yaml.safe_dump(whole))
    arguments = ["-f", str(tmp_path / "vm.yaml"), "--from", str(tmp_path / "state")]
    answer = CliRunner().invoke(main.cli, ["schedule", *arguments])
    assert answer.exit_code == 0, answer.output
    assert f"note: {state}, item {whole['items'].index(one) + 1}: unknown field spec.cpuz is" in (
        answer.stderr
    )


def test_every_bad_document_is_named_before_anything_is_said(run: Run) -> None:
    result = run(machine("good"), machine("db-1", x=1), {"kind": "Pod"}, machine("good"))
    assert result.exit_code == 2
    assert "document 2: unknown field spec.x" in result.stderr
    assert "document 3 is ?/Pod" in result.stderr
    assert "document 4: VirtualMachine team-a/good stands in" in result.stderr
    assert "document 1:" not in result.stderr


def test_files_that_break_their_schema_are_named(run: Run, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    broken = tmp_path / "other" / "provider.yaml"
    provider = {
        "apiVersion": "banlieue.io/v1alpha1",
        "kind": "Provider",
        "metadata": {"name": "x"},
        "spec": {"paused": "maybe"},
    }
    broken.write_text(yaml.safe_dump(provider))
    result = run(machine("db-1"), options=("--from", str(tmp_path / "other")))
    assert result.exit_code == 2
    assert f"{broken}: spec.providerClassRef: Field required" in result.stderr
    assert "spec.paused" in result.stderr


def test_the_standard_input_and_json_are_read_too(run: Run, tmp_path: Path) -> None:
    run(machine("db-1"))
    (tmp_path / "vm.json").write_text(json.dumps(machine("db-2")))
    state = ["--from", str(tmp_path / "state")]
    answer = CliRunner().invoke(
        main.cli,
        ["schedule", "-f", "-", "-f", str(tmp_path / "vm.json"), *state],
        input=yaml.safe_dump({**machine("db-1"), "metadata": {"name": "db-1"}}),
    )
    assert answer.exit_code == 0, answer.output
    assert "default/db-1: placed" in answer.stdout
    assert "team-a/db-2: placed" in answer.stdout
    assert "namespace default is not in" in answer.stderr


def test_a_missing_file_is_bad_input(run: Run, tmp_path: Path) -> None:
    run(machine("db-1"))
    arguments = ["-f", str(tmp_path / "none.yaml"), "--from", str(tmp_path / "state")]
    answer = CliRunner().invoke(main.cli, ["schedule", *arguments])
    assert answer.exit_code == 2
    assert "none.yaml: cannot be read: No such file or directory; name a file" in answer.stderr


def test_without_an_installation_that_is_said(run: Run) -> None:
    result = run(machine("db-1"))
    assert "the installation's id is not known" in result.stderr


# A live cluster.


def refusing(api: MemoryApi, *plurals: str, whole: bool = False) -> None:
    """Refuse to list or get kinds; with `whole` only over all namespaces."""

    def refuse(call: Call, moment: Moment) -> None:
        asked = call.resource.plural in plurals and not (whole and call.key.namespace)
        if asked and moment is Moment.BEFORE:
            raise Forbidden(403, "Forbidden", f"{call.resource.plural} is forbidden")

    api.intercept(refuse)


async def live(world: ControllerWorld, name: str = "db-1") -> tuple[object, list[str]]:
    around = await from_cluster(world.api, [NAMESPACE], SYSTEM)
    dry = DryRun(around.snapshot, installation_id=around.installation_id, recovery=around.recovery)
    return dry.place(VirtualMachine.from_api(machine(name))).decision, around.notes


async def test_a_cluster_is_read_and_not_written(world: ControllerWorld) -> None:
    world.add_vm("other")
    await world.settle(seconds=10)
    before = len(world.api.calls)
    decision, notes = await live(world)
    assert isinstance(decision, Placed)
    assert notes == []
    assert {call.verb for call in world.api.calls[before:]} == {"get", "list"}


async def test_machines_of_cluster_api_in_a_cluster_take_room(world: ControllerWorld) -> None:
    with_capacity(world, one_a=9000, one_b=0)
    world.api.edit(PROVIDERS, Key(SYSTEM, "two"), lambda it: it["spec"].update(cordoned=True))
    add_node(world, "node-1")
    add_node(world, "damaged", cpus="many")
    decision, notes = await live(world)
    assert isinstance(decision, Placed)
    assert any("damaged" in note for note in notes)
    add_node(world, "node-2")
    decision, _ = await live(world)
    assert isinstance(decision, Unplaced)
    refusing(world.api, THIS.plural)
    decision, notes = await live(world)
    assert isinstance(decision, Placed)
    assert any(THIS.plural in note for note in notes)


async def test_what_may_not_be_read_is_said(world: ControllerWorld) -> None:
    world.add_vm("other")
    await world.settle(seconds=10)
    refusing(world.api, VIRTUAL_MACHINES.plural, whole=True)
    refusing(world.api, "configmaps", "namespaces")
    decision, notes = await live(world)
    assert isinstance(decision, Placed)
    told = " ".join(notes)
    for word in ("VirtualMachines of other namespaces", names.INSTALLATION_CONFIG_MAP, NAMESPACE):
        assert word in told


async def test_providers_that_may_not_be_read_end_it(world: ControllerWorld) -> None:
    refusing(world.api, "providers")
    with pytest.raises(NotReadable, match="you may not list providers"):
        await live(world)


async def test_a_cluster_without_our_kinds_says_how_to_install_them(
    world: ControllerWorld,
) -> None:
    def missing(call: Call, _moment: Moment) -> None:
        if call.resource == PROVIDERS:
            raise NotFound(404, "NotFound", "the server could not find the requested resource")

    world.api.intercept(missing)
    with pytest.raises(NotReadable, match="banlieue crds"):
        await live(world)


async def test_an_unconfirmed_installation_is_said(world: ControllerWorld) -> None:
    await world.settle(seconds=10)
    world.api.edit(
        next(it for it in world.api._objects if it.plural == "configmaps"),
        Key(SYSTEM, names.INSTALLATION_CONFIG_MAP),
        lambda obj: obj["data"].update(clusterUID="another"),
    )
    _, notes = await live(world)
    assert any("banlieue recover --confirm" in note for note in notes)
