import os
import pwd
from pathlib import Path

import pytest

from hack.user_cache import user_cache


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"XDG_CACHE_HOME": "/c", "HOME": "/h"}, "/c/banlieue"),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/h"}, "/h/.cache/banlieue"),
        ({"XDG_CACHE_HOME": "", "HOME": "/h"}, "/h/.cache/banlieue"),
    ],
)
def test_it_is_where_the_environment_says(environ: dict[str, str], expected: str) -> None:
    assert user_cache(environ) == Path(expected)


@pytest.mark.parametrize("environ", [{}, {"HOME": ""}, {"HOME": "relative"}])
def test_without_a_home_in_the_environment_it_is_where_the_system_says(
    environ: dict[str, str],
) -> None:
    home = Path(pwd.getpwuid(os.getuid()).pw_dir)
    assert user_cache(environ) == home / ".cache" / "banlieue"


def test_a_user_without_a_home_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_000)
    with pytest.raises(FileNotFoundError, match=r"user 4000000000 has no home.*XDG_CACHE_HOME"):
        user_cache({})
