"""Where this project keeps what it builds and runs: below the cache directory of the user."""

import os
import pwd
from collections.abc import Mapping
from pathlib import Path
from typing import Final

VARIABLE: Final = "XDG_CACHE_HOME"
_FOLDER: Final = "banlieue"


def user_cache(environ: Mapping[str, str] = os.environ) -> Path:
    """Our folder in the cache directory of the user (XDG base directories); it may be missing.

    Args:
        environ: Environment variables.

    Raises:
        FileNotFoundError: The user has no home directory, and none is named.
    """
    # The specification tells to ignore a relative path here.
    for root in (Path(environ.get(VARIABLE, "")), Path(environ.get("HOME", "")) / ".cache"):
        if root.is_absolute():
            return root / _FOLDER
    return _home() / ".cache" / _FOLDER


def _home() -> Path:
    number = os.getuid()
    try:
        return Path(pwd.getpwuid(number).pw_dir)
    except KeyError as error:
        raise FileNotFoundError(
            f"user {number} has no home directory; name a folder by its absolute path in {VARIABLE}"
        ) from error
