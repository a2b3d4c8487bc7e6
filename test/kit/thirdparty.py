"""Installs the third-party backend beside the tree, where only who is told to finds it."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).parents[1] / "thirdparty"
CHECK: Final = SOURCE / "check_acme.py"
"""The third party's own test module."""

MANIFESTS: Final = SOURCE / "config"
"""What the third party has its users apply, beside the CRD that `banlieue crds` prints."""


def install_acme(directory: Path) -> Path:
    """Build the distribution and unpack it; the answer is what PYTHONPATH has to name.

    Raises:
        subprocess.CalledProcessError: The build failed; its output tells why.
    """
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)],
        cwd=SOURCE,
        check=True,
        capture_output=True,
    )
    (wheel,) = directory.glob("acme_banlieue-*.whl")
    site = directory / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return site


def environment_with(site: Path) -> dict[str, str]:
    """This process's environment with the distribution on the module path."""
    path = os.pathsep.join(filter(None, (str(site), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path}
