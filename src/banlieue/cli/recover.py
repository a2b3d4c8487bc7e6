"""Settles what a restore left open: whose installation this is, and when recovery is going on."""

import asyncio
from typing import Any

import click

from banlieue.api import names
from banlieue.api.resources import CONFIG_MAPS, NAMESPACES
from banlieue.cli.connect import connection_options, with_client
from banlieue.cli.options import NAMESPACE
from banlieue.sdk.installation import is_id
from banlieue.sdk.kube import ApiClient, ApiError, Key, NotFound

_MANAGER = f"{names.GROUP}/recover"


@click.command()
@click.option("--confirm", is_flag=True, help="The other cluster is off for good: act here.")
@click.option("--begin", is_flag=True, help="An older backup was restored: look before placing.")
@click.option("--done", is_flag=True, help="Everything was restored: place new VMs again.")
@click.option("--id", "installation_id", default="", help="Installation to go on with.")
@connection_options
@click.option(
    "--system-namespace",
    type=NAMESPACE,
    default=names.SYSTEM_NAMESPACE,
    show_default=True,
    help="Where banlieue is installed.",
)
def recover(
    *,
    confirm: bool,
    begin: bool,
    done: bool,
    installation_id: str,
    kubeconfig: str,
    kube_context: str,
    system_namespace: str,
) -> None:
    """Settle a restored or rebuilt cluster.

    \b
    --confirm  the backup of another cluster was restored here, and that cluster is off for good;
               until this is said, no VM is made, changed or destroyed
    --begin    an older backup was restored here: VirtualMachines that were never placed wait until
               every Provider read which VMs it holds; say it before the controller starts
    --done     all objects are back, so VirtualMachines that were never placed may be placed
    """  # noqa: D301 - click wants the character itself
    if not (confirm or begin or done):
        raise click.UsageError("say --confirm, --begin or --done")
    if installation_id and not is_id(installation_id):
        raise click.UsageError(
            f"--id {installation_id!r} is no id of an installation; give what ConfigMap "
            f"{names.INSTALLATION_CONFIG_MAP} or the owner of a VM has, such as "
            "0b7e6f0c-1f3a-4c53-9d7c-5f2c8c1d2e3f"
        )
    if begin and done:
        raise click.UsageError("say either --begin or --done")
    from banlieue.sdk.runtime.connection import NoConnectionError

    recovery = True if begin else False if done else None
    key = Key(system_namespace, names.INSTALLATION_CONFIG_MAP)

    async def act(api: ApiClient) -> str:
        return await _settle(api, key, confirm=confirm, recovery=recovery, chosen=installation_id)

    try:
        click.echo(asyncio.run(with_client("recover", kubeconfig, kube_context, act)))
    except NotFound:
        raise click.ClickException(f"ConfigMap {key} does not exist yet") from None
    except ApiError as error:
        raise click.ClickException(error.message) from None
    except NoConnectionError as error:
        raise click.ClickException(str(error)) from None


async def _settle(
    api: ApiClient, key: Key, *, confirm: bool, recovery: bool | None, chosen: str
) -> str:
    config_map = await api.get(CONFIG_MAPS, key)
    system = await api.get(NAMESPACES, Key("", "kube-system"))
    cluster = system["metadata"]["uid"]
    data = dict(config_map.get("data") or {})
    annotations = dict(config_map["metadata"].get("annotations") or {})
    said = []
    if confirm:
        data[names.INSTALLATION_CLUSTER_UID] = cluster
        annotations[names.ANNOTATION_CONFIRMED_CLUSTER] = cluster
        said.append("confirmed for this cluster")
    if chosen:
        data[names.INSTALLATION_ID] = chosen
    if recovery is not None:
        said.append("in recovery" if recovery else "out of recovery")
        data.pop(names.INSTALLATION_RECOVERY, None)
        data |= {names.INSTALLATION_RECOVERY: "true"} if recovery else {}
    version = config_map["metadata"]["resourceVersion"]
    ops: list[dict[str, Any]] = [
        {"op": "test", "path": "/metadata/resourceVersion", "value": version},
        {"op": "add", "path": "/data", "value": data},
        {"op": "add", "path": "/metadata/annotations", "value": annotations},
    ]
    await api.json_patch(CONFIG_MAPS, key, ops, manager=_MANAGER)
    return f"installation {data.get(names.INSTALLATION_ID, '?')}: {' and '.join(said)}"
