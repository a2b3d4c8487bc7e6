"""The long-running roles: controller, operator, provider, dev."""

import asyncio
import contextlib
import sys
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from banlieue.api import names
from banlieue.cli import memory
from banlieue.cli.options import ProviderKey, leader_options, role_options
from banlieue.sdk.kube import Key

if TYPE_CHECKING:
    from banlieue.sdk.backend import Backend
    from banlieue.sdk.runtime.elector import LeaseTimes
    from banlieue.sdk.runtime.process import Process

CONTROLLER_LEASE = names.CONTROLLER_ACCOUNT
OPERATOR_LEASE = names.OPERATOR_ACCOUNT
NODE_PATCHER_LEASE = names.NODE_PATCHER_ACCOUNT


def _process(role: str, options: dict[str, Any], *, lease: str = "") -> "Process":
    from banlieue.sdk.runtime import logs
    from banlieue.sdk.runtime.process import Options, Process

    logs.configure(log_format=options["log_format"], level=options["log_level"])
    told = Options(
        role=role,
        kubeconfig=options["kubeconfig"],
        context=options["kube_context"],
        http_host=options["http_host"],
        http_port=options["http_port"],
        settings={"systemNamespace": options["system_namespace"]},
    )
    if lease and options["leader_elect"]:
        key = Key(options["system_namespace"], lease)
        told = replace(told, lease=key, lease_times=_lease_times(options))
    return Process(told)


def _lease_times(options: dict[str, Any]) -> "LeaseTimes":
    from banlieue.sdk.runtime.elector import LeaseTimes

    duration, deadline, retry = (options[f"lease_{it}"] for it in ("duration", "deadline", "retry"))
    try:
        return LeaseTimes(duration, deadline, retry)
    except ValueError as error:
        message = (
            "--leader-elect-lease-duration must be longer than --leader-elect-renew-deadline, that "
            "longer than --leader-elect-retry-period, and none longer than 300 s"
        )
        raise click.UsageError(message) from error


@click.command()
@role_options
@click.option(
    "--namespace", default="", help="Look at VirtualMachines of this namespace only. Default: all."
)
@leader_options(CONTROLLER_LEASE)
def controller(namespace: str, **options: Any) -> None:  # noqa: ANN401 - click's
    """Place VirtualMachines, make their infrastructure machines, mirror their status.

    Needs no access to any backend and reads no Secret.
    """
    from banlieue.controller import app

    process = _process("controller", options, lease=CONTROLLER_LEASE)
    app.build(process, namespace=namespace, system_namespace=options["system_namespace"])
    memory.begin_work()
    sys.exit(process.main())


@click.command()
@role_options
@click.option(
    "--image",
    envvar="BANLIEUE_IMAGE",
    default="",
    metavar="IMAGE",
    help="What providers run where their ProviderClass does not say, such as "
    "registry.example.com/banlieue:v0.2.0. Default: the image of the operator's own Deployment.",
)
@click.option(
    "--skip-provider-classes",
    is_flag=True,
    help="Make no default ProviderClass for installed backends that lack one at the start.",
)
@leader_options(OPERATOR_LEASE)
def operator(
    image: str,
    *,
    skip_provider_classes: bool,
    **options: Any,  # noqa: ANN401 - click's
) -> None:
    """Run a provider process for every Provider, as its ProviderClass says.

    Applying a Provider is enough: its Deployment, account and rights follow, and go with it.
    """
    from banlieue.operator import app
    from banlieue.sdk.provider.classes import default_class
    from banlieue.sdk.registry import backend_names

    system = options["system_namespace"]
    process = _process("operator", options, lease=OPERATOR_LEASE)
    backends = [] if skip_provider_classes else _backends(backend_names())
    classes = [default_class(backend) for backend in backends]
    app.build(process, app.Settings(system, image, classes))
    memory.begin_work()
    sys.exit(process.main())


@click.command(name="node-patcher")
@role_options
@click.option(
    "--namespace", default="", help="Look at Clusters of this namespace only. Default: all."
)
@leader_options(NODE_PATCHER_LEASE)
def node_patcher(namespace: str, **options: Any) -> None:  # noqa: ANN401 - click's
    """Write the provider ID of Cluster API Machines into Nodes of the same system UUID.

    For systems whose kubelet is told none (Talos, RKE2, k3s). Not part of an installation; reads
    the kubeconfigs of the clusters it is allowed to, and no other Secret.
    """
    from banlieue.controller.nodes import app

    process = _process("node-patcher", options, lease=NODE_PATCHER_LEASE)
    app.build(process, namespace=namespace)
    memory.begin_work()
    sys.exit(process.main())


@click.command()
@click.argument("backend")
@role_options
@click.option(
    "--namespace",
    default="",
    help="Serve the Providers of this backend in this namespace. Default: in all namespaces.",
)
@click.option(
    "--provider",
    "only",
    type=ProviderKey(),
    default=None,
    help="Serve just this Provider.",
)
def provider(backend: str, namespace: str, only: Key | None, **options: Any) -> None:  # noqa: ANN401 - click's
    """Serve Providers of BACKEND: turn their machines into VMs.

    BACKEND is vsphere, simulated, or one that another installed distribution brings.
    """
    from banlieue.sdk.runtime.serve import ProviderRole, Scope

    (loaded,) = _backends([backend])
    process = _process(f"provider-{backend}", options)
    ProviderRole(process, loaded, Scope(only, namespace, options["system_namespace"]))
    memory.begin_work()
    sys.exit(process.main())


@click.command()
@role_options
@click.option(
    "--backend",
    "backends",
    multiple=True,
    help="Backend to serve; may be given more than once. Default: all that are installed.",
)
def dev(backends: tuple[str, ...], **options: Any) -> None:  # noqa: ANN401 - click's
    """Run every role in one process against any cluster, to try things out.

    \b
    banlieue crds | kubectl apply --server-side -f -
    kubectl create namespace banlieue-system
    kubectl apply -f config/samples/simulated.yaml -f config/samples/virtualmachine.yaml
    banlieue dev --log-format text

    It makes a ProviderClass per backend and the system namespace when they are missing.
    """  # noqa: D301 - click wants the character itself
    from banlieue.controller import app
    from banlieue.sdk.registry import backend_names
    from banlieue.sdk.runtime.process import run_all
    from banlieue.sdk.runtime.serve import ProviderRole, Scope

    system = options["system_namespace"]
    processes = [_process("controller", options)]
    app.build(processes[0], namespace="", system_namespace=system)
    served = _backends(backends or backend_names())
    processes[0].on_start(partial(_prepare, processes[0], system, served))
    for backend in served:
        one = _process(f"provider-{backend.name}", {**options, "http_port": None})
        ProviderRole(one, backend, Scope(installation_namespace=system))
        processes.append(one)
    memory.begin_work()
    sys.exit(asyncio.run(run_all(*processes)))


def _backends(wanted: Iterable[str]) -> list["Backend[Any]"]:
    from banlieue.sdk.registry import UnknownBackend, load_backend

    try:
        return [load_backend(name) for name in wanted]
    except UnknownBackend as error:
        raise click.BadParameter(str(error), param_hint="backend") from error


async def _prepare(process: "Process", namespace: str, served: list["Backend[Any]"]) -> None:
    """Make what an install would have made, where it is missing."""
    from banlieue.api.resources import NAMESPACES
    from banlieue.operator import classes
    from banlieue.sdk.kube import AlreadyExists
    from banlieue.sdk.provider.classes import default_class

    with contextlib.suppress(AlreadyExists):
        obj = {"metadata": {"name": namespace}}
        await process.client.create(NAMESPACES, obj, manager=names.MANAGER_OPERATOR)
    await classes.make_missing(process.client, map(default_class, served))


COMMANDS = (controller, operator, provider, node_patcher, dev)
