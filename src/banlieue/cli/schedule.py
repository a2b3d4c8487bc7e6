"""Tells where VirtualMachines would be placed, and why not elsewhere."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from banlieue.api import names
from banlieue.cli.connect import connection_options
from banlieue.cli.options import NAMESPACE
from banlieue.sdk.kube import ApiClient, ApiError, Key

if TYPE_CHECKING:
    from banlieue.api.v1alpha1.virtualmachine import VirtualMachine
    from banlieue.cli.surroundings import Surroundings

NOT_PLACED = 1
BAD_INPUT = 2


@dataclass(frozen=True, slots=True)
class _Wish:
    """A VirtualMachine of the input, and where it was read."""

    vm: "VirtualMachine"
    source: str

    @property
    def key(self) -> Key:
        return Key(self.vm.metadata.namespace or "", self.vm.metadata.name)


@click.command()
@click.option(
    "-f",
    "--filename",
    "filenames",
    multiple=True,
    required=True,
    metavar="FILE",
    help="VirtualMachines as YAML or JSON, - for the standard input; may be given more than once.",
)
@click.option(
    "--explain", is_flag=True, help="List every candidate: its scores or what stopped it."
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json", "yaml"]),
    default="text",
    show_default=True,
    help="For people or for programs.",
)
@click.option(
    "--from",
    "directory",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=None,
    help="Look at the YAML and JSON files in this directory instead of a cluster.",
)
@click.option(
    "-n",
    "--namespace",
    type=NAMESPACE,
    default="default",
    show_default=True,
    help="Namespace of VirtualMachines that do not name one.",
)
@connection_options
@click.option(
    "--system-namespace",
    type=NAMESPACE,
    default=names.SYSTEM_NAMESPACE,
    show_default=True,
    help="Where banlieue is installed.",
)
def schedule(
    *,
    filenames: tuple[str, ...],
    explain: bool,
    output: str,
    directory: Path | None,
    namespace: str,
    **cluster: str,
) -> None:
    """Tell where VirtualMachines would be placed now, without making them.

    The controller's own scheduler decides, over a live cluster or over files. Several
    VirtualMachines are placed one after the other, each counting for those after it. Nothing is
    written, and the right to read is enough.

    \b
    banlieue schedule -f vm.yaml
    banlieue schedule -f vm.yaml --explain
    kubectl get ns,prov,provc,vmc,vmi,vm,vsm,cm -A -o yaml > state/all.yaml
    banlieue schedule -f vm.yaml --from state/ -o json

    Exit code: 0 when all were placed, 1 when one was not, 2 when the input is wrong or the
    cluster cannot be read.
    """  # noqa: D301 - click wants the character itself
    from banlieue.cli.verdicts import to_data
    from banlieue.controller.scheduling.dryrun import BadInput, DryRun

    wishes = _wishes(filenames, namespace)
    around = _surroundings(wishes, directory, **cluster)
    run = DryRun(around.snapshot, installation_id=around.installation_id, recovery=around.recovery)
    problems = []
    for wish in wishes:
        try:
            run.check(wish.vm)
        except BadInput as error:
            problems.append(f"{wish.source}: VirtualMachine {wish.key}: {error}")
    if problems:
        _refuse(problems)
    told = [to_data(run.place(wish.vm), explain=explain) for wish in wishes]
    _print(told, around.notes, output)
    if not all(it["placed"] for it in told):
        raise click.exceptions.Exit(NOT_PLACED)


def _wishes(filenames: Sequence[str], namespace: str) -> list[_Wish]:
    """The VirtualMachines of all files; every mistake in them is told at once."""
    from banlieue.api.v1alpha1.virtualmachine import VirtualMachine
    from banlieue.cli.manifests import ManifestInvalid, parse, read_file

    wishes: dict[Key, _Wish] = {}
    problems: list[str] = []
    try:
        documents = [document for name in filenames for document in read_file(name)]
    except ManifestInvalid as error:
        _refuse([str(error)])
    for document in documents:
        try:
            vm = parse(document, VirtualMachine)
        except ManifestInvalid as error:
            problems.append(str(error))
            continue
        vm.metadata.namespace = vm.metadata.namespace or namespace
        wish = _Wish(vm, document.source)
        if not vm.metadata.name:
            problems.append(f"{wish.source}: metadata.name is required; give one")
        elif wish.key in wishes:
            first = wishes[wish.key].source
            problems.append(f"{wish.source}: VirtualMachine {wish.key} stands in {first} already")
        wishes[wish.key] = wish
    if not documents:
        problems.append(f"{', '.join(filenames)}: there is no object in it")
    if problems:
        _refuse(problems)
    return list(wishes.values())


def _surroundings(
    wishes: Sequence[_Wish],
    directory: Path | None,
    *,
    kubeconfig: str,
    kube_context: str,
    system_namespace: str,
) -> "Surroundings":
    from banlieue.cli.connect import with_client
    from banlieue.cli.manifests import ManifestInvalid
    from banlieue.cli.surroundings import NotReadable, from_cluster, from_directory
    from banlieue.sdk.runtime.connection import NoConnectionError

    namespaces = {wish.key.namespace for wish in wishes}

    async def read(api: ApiClient) -> "Surroundings":
        return await from_cluster(api, namespaces, system_namespace)

    try:
        if directory is not None:
            return from_directory(directory, namespaces, system_namespace)
        return asyncio.run(with_client("schedule", kubeconfig, kube_context, read))
    except ApiError as error:
        _refuse([f"the cluster cannot be read: {error.message}"])
    except (ManifestInvalid, NotReadable, NoConnectionError) as error:
        _refuse([str(error)])


def _print(told: Sequence[dict[str, Any]], notes: Sequence[str], output: str) -> None:
    from banlieue.api.crd.render import to_yaml
    from banlieue.cli.verdicts import to_text

    whole = {"placements": list(told), "notes": list(notes)}
    if output == "json":
        click.echo(json.dumps(whole, indent=2, ensure_ascii=False))
    elif output == "yaml":
        click.echo(to_yaml(whole), nl=False)
    else:
        for note in notes:
            click.echo(f"note: {note}", err=True)
        click.echo("\n\n".join(map(to_text, told)) if told else "")


def _refuse(problems: Sequence[str]) -> NoReturn:
    for problem in problems:
        click.echo(f"Error: {problem}", err=True)
    raise click.exceptions.Exit(BAD_INPUT)
