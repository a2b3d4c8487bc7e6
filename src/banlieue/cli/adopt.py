"""Proposes VirtualMachines for VMs that a Provider's backend has already."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import click

from banlieue.cli.connect import connection_options
from banlieue.cli.options import NAMESPACE, ProviderKey
from banlieue.sdk.kube import Key

BAD_INPUT = 2


@click.group()
def adopt() -> None:
    """Take over VMs that exist already."""


@adopt.command()
@click.option(
    "--provider",
    type=ProviderKey(),
    required=True,
    metavar="NAMESPACE/NAME",
    help="Provider whose backend is looked at.",
)
@click.option(
    "-n",
    "--namespace",
    type=NAMESPACE,
    required=True,
    help="Namespace the VirtualMachines are to be made in.",
)
@click.option(
    "--selector",
    "selectors",
    multiple=True,
    metavar="PATTERN",
    help="Only VMs whose name or path matches, such as 'web-*' or '*/prod/*'; several are or-ed.",
)
@click.option(
    "-o",
    "--output",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    metavar="DIR",
    help="Write one file for each VM into this directory instead of the standard output.",
)
@connection_options
def plan(
    *,
    provider: Key,
    namespace: str,
    selectors: tuple[str, ...],
    directory: Path | None,
    kubeconfig: str,
    kube_context: str,
) -> None:
    """Print a VirtualMachine for every VM that nobody manages yet.

    Reads the Provider and the Secret of its credentials with your own rights, looks at the backend
    from here, and changes nothing anywhere. What is printed takes nothing over either: applied, it
    tells what is there, until spec.adopt.accepted is set to true.

    \b
    banlieue adopt plan --provider banlieue-system/vcenter -n team-a --selector 'web-*' > web.yaml
    banlieue adopt plan --provider banlieue-system/vcenter -n team-a -o adopt/

    VMs that are managed already and templates are left out; how many is told on the standard error.
    Exit code: 0, or 2 when Provider or backend cannot be read.
    """  # noqa: D301 - click wants the character itself
    from banlieue.cli.adoption import Wanted, propose
    from banlieue.cli.inventory import NotReadable, Surroundings, look, read
    from banlieue.sdk.kube import ApiError
    from banlieue.sdk.runtime.connection import NoConnectionError

    try:
        around: Surroundings = asyncio.run(read(kubeconfig, kube_context, provider, namespace))
        found = look(around)
    except ApiError as error:
        _refuse(f"the cluster cannot be read: {error.message}")
    except (NotReadable, NoConnectionError) as error:
        _refuse(str(error))
    wanted = Wanted(
        provider=provider,
        namespace=namespace,
        selectors=selectors,
        claimed=around.claimed,
        taken=around.taken,
        domain_name=around.domains.get,
    )
    manifests, left_out = propose(found, wanted)
    written = _Output(directory, [(it.name, it.text) for it in manifests])
    written.write()
    _tell(len(manifests), left_out, around.notes)


@dataclass(frozen=True, slots=True)
class _Output:
    """Where the manifests go: one after the other to the standard output, or each to a file."""

    directory: Path | None
    texts: Sequence[tuple[str, str]]

    def write(self) -> None:
        """Write all, or nothing when one of the files is there already."""
        if self.directory is None:
            click.echo("---\n".join(text for _, text in self.texts), nl=False)
            return
        paths = [(self.directory / f"{name}.yaml", text) for name, text in self.texts]
        there = [str(path) for path, _ in paths if path.exists()]
        if there:
            _refuse(f"{', '.join(there)}: there already; choose another directory")
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            for path, text in paths:
                path.write_text(text, encoding="utf-8")
        except OSError as error:
            _refuse(f"{self.directory}: cannot be written: {error.strerror}")


def _tell(count: int, left_out: Mapping[str, int], notes: Sequence[str]) -> None:
    for note in notes:
        click.echo(f"note: {note}", err=True)
    rest = ", ".join(f"{number} {why}" for why, number in sorted(left_out.items()))
    click.echo(f"{count} VMs to adopt{f'; left out: {rest}' if rest else ''}", err=True)


def _refuse(problem: str) -> NoReturn:
    click.echo(f"Error: {problem}", err=True)
    raise click.exceptions.Exit(BAD_INPUT)
