"""Prints the CustomResourceDefinitions this version implements."""

import click


@click.command()
@click.option(
    "--backend",
    "backends",
    multiple=True,
    help="Include the kinds of this backend; may be given more than once. Default: all installed.",
)
def crds(backends: tuple[str, ...]) -> None:
    """Print the CustomResourceDefinitions, for kubectl apply --server-side -f -.

    They are made from the models of this very version, so they never lag behind it.
    """
    from banlieue.api.crd.render import crd, to_yaml
    from banlieue.api.kinds import KINDS
    from banlieue.sdk.registry import UnknownBackend, backend_names, load_backend

    kinds = list(KINDS)
    try:
        for name in backends or backend_names():
            kinds.extend(load_backend(name).kinds)
    except UnknownBackend as error:
        raise click.BadParameter(str(error), param_hint="--backend") from error
    for kind in kinds:
        click.echo("---")
        click.echo(to_yaml(crd(kind)), nl=False)
