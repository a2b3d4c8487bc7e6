"""Takes the synchronous half of the Kubernetes client out of a virtual environment.

Usage: python slim.py VENV

The distribution holds the client twice, and importing `kubernetes.aio` loads the other half too:
50 MB that nothing here calls. The asyncio half needs none of it; this ends with an error, and so
does the build of the image, if a library is found that does.
"""

import ast
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGE = "kubernetes"
KEPT = "aio"
# These look for the client without needing it: they catch the ImportError.
CONTENT_WITHOUT = frozenset(
    {"kopf/_cogs/helpers/thirdparty.py", "kopf/_core/intents/piggybacking.py"}
)
NOTICE = '''"""The Kubernetes client, of which this image holds only `kubernetes.aio`.

Changed by banlieue: the synchronous client and the imports of it are left out.
"""

__project__ = {project!r}
__version__ = {version!r}
'''


class NotSlim(Exception):
    """The client cannot be cut in two; the message says what holds it together."""


def main() -> int:
    """Slim the environment named on the command line; returns the exit code."""
    site_packages = next(Path(sys.argv[1]).glob("lib/python3*/site-packages"), Path(sys.argv[1]))
    try:
        removed = slim(site_packages)
    except NotSlim as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"removed {removed / 1e6:.1f} MB of the synchronous Kubernetes client")
    return 0


def slim(site_packages: Path) -> int:
    """Remove the synchronous half of the client.

    Args:
        site_packages: Folder that holds the installed package.

    Returns:
        The bytes that were removed.

    Raises:
        NotSlim: The package is missing, or some other module imports that half.
    """
    package = site_packages / PACKAGE
    if not (package / KEPT / "__init__.py").is_file():
        raise NotSlim(f"{package} holds no asyncio client")
    needing = sorted(
        f"{path.relative_to(site_packages)} imports {name}"
        for path in _modules_beside(package)
        for name in _imports(path, site_packages)
        if _is_removed(name)
    )
    if needing:
        raise NotSlim("the synchronous Kubernetes client is in use: " + "; ".join(needing))
    own = _assignments(package / "__init__.py")
    removed = 0
    for path in sorted(package.iterdir()):
        if path.is_dir() and path.name not in {KEPT, "__pycache__"}:
            removed += sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
            shutil.rmtree(path)
    text = NOTICE.format(project=own["__project__"], version=own["__version__"])
    (package / "__init__.py").write_text(text, encoding="utf-8")
    return removed


def _modules_beside(package: Path) -> Iterator[Path]:
    for path in package.parent.rglob("*.py"):
        inside = path.relative_to(package.parent)
        removed = inside.parts[0] == PACKAGE and inside.parts[1] != KEPT
        if not removed and inside.as_posix() not in CONTENT_WITHOUT:
            yield path


def _imports(path: Path, site_packages: Path) -> Iterator[str]:
    source = path.read_bytes()
    inside = path.relative_to(site_packages).parts
    # Parsing all of it would take half a minute; few other files name the package at all.
    if PACKAGE.encode() not in source and inside[0] != PACKAGE:
        return
    for node in ast.walk(ast.parse(source, str(path))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = inside[: -node.level] if node.level else ()
            module = ".".join((*above, *([node.module] if node.module else ())))
            yield from (f"{module}.{alias.name}" for alias in node.names)


def _is_removed(name: str) -> bool:
    parts = name.split(".")
    # A bare `import kubernetes` still works, and gives what is kept.
    return parts[0] == PACKAGE and len(parts) > 1 and parts[1] != KEPT


def _assignments(path: Path) -> dict[str, str]:
    found = {}
    for node in ast.parse(path.read_bytes()).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    found[target.id] = str(node.value.value)
    return found


if __name__ == "__main__":
    sys.exit(main())
