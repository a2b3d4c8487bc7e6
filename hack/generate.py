"""Writes what is made from the models: CRDs and the API reference (`--check` only compares)."""

import argparse
import importlib
import pkgutil
import sys
from collections.abc import Mapping
from pathlib import Path

import banlieue.providers
from banlieue.api.crd.reference import reference
from banlieue.api.crd.render import HEADER, crd, file_name, to_yaml
from banlieue.api.kinds import KINDS
from banlieue.api.meta import ResourceObject
from banlieue.sdk.simulated.models import KINDS as SIMULATED_KINDS

ROOT = Path(__file__).resolve().parents[1]
CRDS = Path("config/crd/bases")
REFERENCE = Path("docs/reference/api.md")


def backend_kinds() -> tuple[type[ResourceObject], ...]:
    """Give the kinds of every backend in this tree; none of them loads its vendor library."""
    found: list[type[ResourceObject]] = []
    for folder in sorted(pkgutil.iter_modules(banlieue.providers.__path__), key=lambda it: it.name):
        models = importlib.import_module(f"banlieue.providers.{folder.name}.models")
        found.extend(models.KINDS)
    return (*found, *SIMULATED_KINDS)


def generated() -> dict[Path, str]:
    """Give every generated file's text by its path in the tree."""
    kinds = (*KINDS, *backend_kinds())
    files = {CRDS / file_name(kind.resource): HEADER + to_yaml(crd(kind)) for kind in kinds}
    files[REFERENCE] = reference(kinds)
    return files


def differences(files: Mapping[Path, str], root: Path = ROOT) -> list[str]:
    """Name the files that differ from the models, are missing, or belong to no model."""
    stale = [
        f"{path}: not what the models say"
        for path, text in files.items()
        if not (root / path).is_file() or (root / path).read_text(encoding="utf-8") != text
    ]
    present = {path.relative_to(root) for path in (root / CRDS).glob("*.yaml")}
    return stale + [f"{path}: no model is of that kind" for path in sorted(present - set(files))]


def write(files: Mapping[Path, str], root: Path = ROOT) -> None:
    """Make the tree what the models say."""
    for path in (root / CRDS).glob("*.yaml"):
        if path.relative_to(root) not in files:
            path.unlink()
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")


def main() -> int:
    """Run the command; 1 when `--check` found a difference."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only; fail on a difference")
    files = generated()
    if not parser.parse_args().check:
        write(files)
        return 0
    stale = differences(files)
    print(*stale, "run: make generate", sep="\n") if stale else None
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
