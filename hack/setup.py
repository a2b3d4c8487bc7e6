"""Make the virtual environment: locked dependencies with hashes, then this tree, editable.

Usage: python3 hack/setup.py DIRECTORY
"""

import subprocess
import sys
import venv
from pathlib import Path

MINIMUM = (3, 11)
ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    """Build the environment; the exit code is that of the first step that failed."""
    if sys.version_info < MINIMUM:
        found = ".".join(map(str, sys.version_info[:3]))
        print(f"Python {MINIMUM[0]}.{MINIMUM[1]} or newer is needed, this is {found}.")
        print("Name another one: make setup PYTHON=/path/to/python3")
        return 2
    target = Path(sys.argv[1])
    python = target / "bin" / "python"
    version = sys.version.split()[0]
    print(f"Setting up {target} with Python {version}; this takes minutes.", flush=True)
    try:
        if not python.exists():
            venv.create(target, with_pip=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        print("  locked dependencies ...", flush=True)
        subprocess.run(
            [*pip, "--require-hashes", "-r", str(ROOT / "requirements" / "dev.txt")], check=True
        )
        print("  this tree ...", flush=True)
        subprocess.run([*pip, "--no-deps", "--no-build-isolation", "-e", str(ROOT)], check=True)
    except subprocess.CalledProcessError as error:
        print(f"Setting up failed: pip ended with {error.returncode}; its words are above.")
        print("A package index must be reachable; on Debian python3-venv must be installed.")
        return 1
    except OSError as error:
        print(f"Setting up failed: {target}: {error.strerror}. Choose another place: VENV=...")
        return 1
    print(f"{target} is ready.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
