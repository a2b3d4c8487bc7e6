"""Hold modules to their size: 400 lines are aimed at, more than 600 fail.

Usage: python hack/sizes.py
"""

import sys
from pathlib import Path

AIM = 400
LIMIT = 600
ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    """Name every module over a line limit; fail when one is over the hard one."""
    failed = False
    for folder in ("src", "test", "hack"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            lines = len(path.read_text(encoding="utf-8").splitlines())
            name = path.relative_to(ROOT)
            if lines > LIMIT:
                failed = True
                print(f"{name}: {lines} lines, at most {LIMIT}; split it")
            elif lines > AIM:
                print(f"{name}: {lines} lines, {AIM} are aimed at")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
