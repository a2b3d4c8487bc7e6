"""Installs banlieue into a cluster, upgrades it and takes it out again."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from banlieue.api import names
from banlieue.cli.connect import connection_options, with_client
from banlieue.cli.options import SECRET
from banlieue.sdk.kube import ApiError, Obj

if TYPE_CHECKING:
    from banlieue.bootstrap.apply import How
    from banlieue.bootstrap.cluster import Tools
    from banlieue.bootstrap.plan import Target

F = TypeVar("F", bound=Callable[..., Any])

_DIFFERENT, _FAILED_DIFF = 1, 2
"""Exit codes of --diff, as those of `kubectl diff`."""

_SECONDS = 300


def _add(*options: Callable[[F], F]) -> Callable[[F], F]:
    def decorate(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def _not_empty(_: click.Context, option: click.Parameter, value: str | None) -> str:
    """What was given, and nothing where nothing was: an empty variable of a script is a mistake."""
    if value is None:
        return ""
    if not value.strip("/ "):
        raise click.BadParameter("is empty; leave it out for the default", param=option)
    return value


_namespace = click.option(
    "--namespace",
    default=names.SYSTEM_NAMESPACE,
    show_default=True,
    metavar="NAME",
    help="Namespace to install into.",
)
_release = _add(
    click.option(
        "--version",
        default=None,
        callback=_not_empty,
        metavar="TAG",
        help="Image tag. Default: that of this command.",
    ),
    click.option(
        "--registry",
        default=None,
        callback=_not_empty,
        metavar="HOST[:PORT][/PATH]",
        help="Where nodes pull from: the image becomes <registry>/banlieue:<version>. Default: "
        "localhost, an image that was loaded onto the nodes.",
    ),
)
_dry_run = click.option(
    "--dry-run", is_flag=True, help="Print the YAML for kubectl apply -f -; needs no cluster."
)
_applying = _add(
    click.option("--diff", is_flag=True, help="Show what would change, and change nothing."),
    click.option(
        "--force-conflicts",
        is_flag=True,
        help="Take over fields that others set to something else.",
    ),
    click.option(
        "--wait/--no-wait", default=True, show_default=True, help="Until the pods are available."
    ),
)
_downgrade = click.option(
    "--allow-downgrade",
    is_flag=True,
    help="Replace kinds of a newer version, whose further fields objects lose.",
)
_timeout = click.option(
    "--timeout",
    type=click.IntRange(1, 24 * 3600),
    default=_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait in all.",
)


@click.group()
def bootstrap() -> None:
    """Install banlieue, upgrade it, take it out.

    \b
    banlieue bootstrap operator            everything: kinds, rights, policies, controller, operator
    banlieue bootstrap controller          the same without the operator
    banlieue bootstrap provider vsphere    without the operator: one provider for a namespace
    banlieue bootstrap grant -n team-a     without the operator: let it read user data there
    banlieue bootstrap uninstall           take everything out; refuses while there are VMs

    Run the same again with a newer banlieue to upgrade. What others changed meanwhile is not
    overwritten without --force-conflicts.
    """  # noqa: D301 - click wants the character itself


@bootstrap.command()
@_namespace
@_release
@_dry_run
@click.option(
    "--skip-provider-classes",
    is_flag=True,
    help="Let the operator make no ProviderClass per backend when it starts.",
)
@_applying
@_downgrade
@_timeout
@connection_options
def operator(namespace: str, version: str, registry: str, **options: Any) -> None:  # noqa: ANN401 - click's
    """Install or upgrade everything: kinds, rights, policies, controller and operator.

    Then a Provider and its Secret are all a backend needs: the operator runs a process for each.
    Backends of third parties bring their kinds, roles and ProviderClass by manifests of their own.
    """
    from banlieue.bootstrap.plan import operator_plan

    target = _target(namespace, version, registry)
    skip = options["skip_provider_classes"]
    _install(lambda: operator_plan(target, default_classes=not skip), options, prune=True)


@bootstrap.command()
@_namespace
@_release
@_dry_run
@_applying
@_downgrade
@_timeout
@connection_options
def controller(namespace: str, version: str, registry: str, **options: Any) -> None:  # noqa: ANN401 - click's
    """Install or upgrade what `bootstrap operator` does, but the operator.

    No identity in the cluster may then make workloads or hand out rights. Each backend gets a
    process by `bootstrap provider`; a ProviderClass comes from config/samples or a file of yours.
    An operator that is there already stays, as it has to take back what it made: to do without it
    delete the Providers, take everything out with `bootstrap uninstall`, and begin anew.
    """
    from banlieue.bootstrap.plan import controller_plan

    target = _target(namespace, version, registry)
    _install(lambda: controller_plan(target), options)


@bootstrap.command()
@click.argument("backend")
@_namespace
@click.option(
    "--system-namespace",
    default="",
    metavar="NAME",
    help="Where the controller is. Default: the namespace installed into.",
)
@_release
@_dry_run
@_applying
@_timeout
@connection_options
def provider(
    backend: str,
    namespace: str,
    system_namespace: str,
    version: str,
    registry: str,
    **options: Any,  # noqa: ANN401 - click's
) -> None:
    """Install a provider of BACKEND without the operator.

    It serves every Provider of that backend in its namespace and none elsewhere. Never use it
    beside the operator for one backend: the second server of a Provider only waits.

    It needs what `bootstrap controller` installs. For a third party's BACKEND apply that party's
    manifests first: they bring its kinds and ClusterRole banlieue-provider-BACKEND.
    """
    from banlieue.bootstrap.plan import provider_plan
    from banlieue.sdk.registry import own_backend_names

    _note_foreign([backend], own_backend_names())
    target = _target(namespace, version, registry)
    _install(lambda: provider_plan(backend, target, system_namespace=system_namespace), options)


@bootstrap.command()
@click.option("-n", "--namespace", required=True, metavar="NAME", help="The tenant's namespace.")
@click.option(
    "--provider",
    "backends",
    multiple=True,
    metavar="BACKEND",
    help="Let the provider of this backend read; may be given more than once. Default: every "
    "backend that banlieue brings.",
)
@click.option(
    "--secret",
    "secrets",
    type=SECRET,
    multiple=True,
    metavar="NAME",
    help="Only this Secret; may be given more than once. Default: all Secrets there.",
)
@click.option(
    "--system-namespace",
    default=names.SYSTEM_NAMESPACE,
    show_default=True,
    metavar="NAME",
    help="Where the providers run.",
)
@_dry_run
@click.option("--diff", is_flag=True, help="Show what would change, and change nothing.")
@click.option("--force-conflicts", is_flag=True, help="Take over what others set differently.")
@_timeout
@connection_options
def grant(
    namespace: str,
    backends: Sequence[str],
    secrets: Sequence[str],
    system_namespace: str,
    **options: Any,  # noqa: ANN401 - click's
) -> None:
    """Let providers that run without the operator read the user data of VMs in a namespace.

    With the operator nobody needs this: it grants each Secret while a VM needs it.
    """
    from banlieue.bootstrap.plan import grant_plan
    from banlieue.sdk.registry import own_backend_names

    own = own_backend_names()
    chosen = backends or own
    _note_foreign(chosen, own)
    _install(
        lambda: grant_plan(namespace, chosen, secrets=secrets, system_namespace=system_namespace),
        {**options, "wait": False},
    )


@bootstrap.command()
@click.option(
    "--namespace",
    default=names.SYSTEM_NAMESPACE,
    show_default=True,
    metavar="NAME",
    help="Namespace it is installed in.",
)
@click.option(
    "--orphan",
    is_flag=True,
    help="Leave all VMs and imported images on their backends. Without it VMs are a refusal.",
)
@click.option(
    "--include-namespace", is_flag=True, help="Delete the namespace too, with every Secret in it."
)
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@_timeout
@connection_options
def uninstall(namespace: str, **options: Any) -> None:  # noqa: ANN401 - click's
    """Take banlieue out of a cluster, with its kinds and everything of them.

    Refuses while there are VMs, and lists them. Providers, images, classes and grants go; no kind
    goes while one of its objects has a finalizer.
    """
    from banlieue.bootstrap.plan import operator_plan
    from banlieue.bootstrap.uninstall import Removal
    from banlieue.bootstrap.uninstall import uninstall as remove

    plan = operator_plan(_target(namespace, "", ""))
    kept = ("orphan", "include_namespace", "dry_run")
    removal = Removal(namespace, **{name: options[name] for name in kept})

    async def act(tools: "Tools") -> None:
        await remove(tools, plan, removal)

    _visit(options, act)


def _note_foreign(backends: Sequence[str], own: Sequence[str]) -> None:
    for backend in sorted(set(backends) - set(own)):
        click.echo(
            f"note: banlieue brings no backend {backend}, only {', '.join(own)}; its kinds, its "
            f"ProviderClass and ClusterRole banlieue-provider-{backend} have to come by manifests "
            "of its own",
            err=True,
        )


def _target(namespace: str, version: str, registry: str) -> "Target":
    from banlieue.bootstrap.plan import PlanError, Target
    from banlieue.bootstrap.release import Release, VersionError

    try:
        return Target(namespace, Release.of(version, registry))
    except (PlanError, VersionError) as error:
        raise click.UsageError(str(error)) from error


def _install(
    planned: Callable[[], list[Obj]], options: dict[str, Any], *, prune: bool = False
) -> None:
    """Print a plan, show what it would change, or apply it."""
    from banlieue.bootstrap.apply import How
    from banlieue.bootstrap.objects import stream
    from banlieue.bootstrap.packed import ManifestError
    from banlieue.bootstrap.plan import PlanError

    if options["dry_run"] and options["diff"]:
        raise click.UsageError(
            "--dry-run asks no cluster and --diff compares with one: use one of them. To see what "
            "a stream would change, use --diff alone, or pipe the stream to kubectl diff -f -"
        )
    try:
        plan = planned()
    except PlanError as error:
        raise click.UsageError(str(error)) from error
    except ManifestError as error:
        raise click.ClickException(str(error)) from error
    if options["dry_run"]:
        click.echo(stream(plan), nl=False)
        return
    if options["diff"]:
        _show_differences(plan, options)
        return
    how = How(
        force=options["force_conflicts"],
        downgrade=options.get("allow_downgrade", False),
        wait=options["wait"],
        prune=prune,
    )
    _apply(plan, how, options)


def _apply(plan: list[Obj], how: "How", options: dict[str, Any]) -> None:
    from banlieue.bootstrap.apply import apply

    async def act(tools: "Tools") -> None:
        tools.say(str(await apply(tools, plan, how)))

    _visit(options, act)


def _show_differences(plan: list[Obj], options: dict[str, Any]) -> None:
    from banlieue.bootstrap.apply import differences

    async def act(tools: "Tools") -> list[str]:
        return await differences(tools, plan, force=options["force_conflicts"])

    found = _visit(options, act, failed=_FAILED_DIFF)
    for text in found:
        click.echo(text, nl=False)
    sys.exit(_DIFFERENT if found else 0)


T = TypeVar("T")


def _visit(
    options: dict[str, Any], act: Callable[["Tools"], Awaitable[T]], *, failed: int = 1
) -> T:
    """Act on the cluster; what goes wrong ends the command in its own words."""
    from banlieue.bootstrap.cluster import BootstrapError, Tools
    from banlieue.sdk.runtime.client import KubeClient
    from banlieue.sdk.runtime.clock import SystemClock
    from banlieue.sdk.runtime.connection import NoConnectionError

    clock = SystemClock()

    async def visit(client: KubeClient) -> T:
        return await act(Tools(client, clock, click.echo, clock.monotonic() + options["timeout"]))

    try:
        return asyncio.run(
            with_client("bootstrap", options["kubeconfig"], options["kube_context"], visit)
        )
    except (BootstrapError, NoConnectionError) as error:
        told = str(error)
    except ApiError as error:
        told = error.message
    click.echo(f"Error: {told}", err=True)
    sys.exit(failed)
