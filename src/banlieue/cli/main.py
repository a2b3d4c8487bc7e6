"""The `banlieue` command. Each role is imported only when it is chosen."""

import sys

import click

from banlieue import __version__
from banlieue.cli import memory

_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@click.group(context_settings=_CONTEXT)
@click.version_option(__version__, prog_name="banlieue")
def cli() -> None:
    """One Kubernetes API for virtual machines over vSphere, Proxmox VE and libvirt.

    \b
    banlieue dev                 every role in one process, to try things out
    banlieue controller          places VirtualMachines and mirrors their status
    banlieue operator            runs a provider process for every Provider
    banlieue provider vsphere    turns VSphereMachines into VMs on a vCenter
    banlieue schedule -f FILE    tells where VirtualMachines would be placed, and why not elsewhere
    banlieue adopt plan          proposes VirtualMachines for VMs that exist already
    banlieue bootstrap operator  installs everything into a cluster, or upgrades it
    banlieue crds                prints the CustomResourceDefinitions to apply first

    Roles talk to the cluster of --kubeconfig, $KUBECONFIG or the pod they run in, and end in
    order on SIGTERM or Ctrl-C.
    """  # noqa: D301 - click wants the character itself


def _register() -> None:
    from banlieue.cli import adopt, bootstrap, crds, recover, roles, schedule

    others = (
        *(schedule.schedule, adopt.adopt, crds.crds, recover.recover),
        bootstrap.bootstrap,
    )
    for command in (*roles.COMMANDS, *others):
        cli.add_command(command)


def main() -> None:
    """Run the command named on the command line."""
    memory.begin_import()
    _register()
    sys.exit(cli())
