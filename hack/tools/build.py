"""Builds the pinned Go tools: `python hack/tools/build.py [--group GROUP | NAME ...]`.

Needs nothing but Python 3.11 and Go. Says nothing when everything is there already.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TextIO

if not __package__:
    # Run as a script, without installation: the package is found from the top of the checkout.
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from hack.tools import gobuild
from hack.tools.catalog import TOOLS, Group, Store, Tool, ToolError, find_tool, tool_named

_LINE_EVERY_SECONDS: Final = 20.0
_ALL: Final = "all"
_NAME_WIDTH: Final = max(len(tool.name) for tool in TOOLS)


def main(arguments: Sequence[str] | None = None, out: TextIO | None = None) -> int:
    """Run the command line; returns the exit code."""
    out = out or sys.stdout
    parser = _parser()
    chosen = parser.parse_args(arguments)
    if chosen.names and chosen.group:
        parser.error("name tools or a group, not both")
    try:
        store = Store.from_environment()
        if chosen.list:
            _print_list(store, out)
        elif chosen.print_path:
            print(find_tool(chosen.print_path, store), file=out)
        else:
            named = [tool_named(name) for name in chosen.names]
            build_missing(named or tools_of(chosen.group or Group.TEST), store, out)
    except ToolError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"error: cannot build the tools: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted; what is built so far is kept", file=sys.stderr)
        return 130
    return 0


def tools_of(group: str) -> tuple[Tool, ...]:
    """The tools of the group of that name; `all` are those that something of ours runs on."""
    if group == _ALL:
        return tuple(tool for tool in TOOLS if tool.group is not Group.PEER)
    return tuple(tool for tool in TOOLS if tool.group == group)


def build_missing(tools: Sequence[Tool], store: Store, out: TextIO) -> None:
    """Build those of the tools that are not there yet, one at a time.

    Raises:
        ToolError: One of them cannot be built; those before it are kept.
    """
    missing = _missing(tools, store)
    if not missing:
        return
    # Before anything is said or waited for: without Go none of it can come true.
    for tool in missing:
        gobuild.require_go_for(tool, store)
    waits = "another build is running; waiting for it to end"
    with gobuild.build_lock(store.cache, lambda: print(waits, file=out, flush=True)):
        # Whoever held the lock may have built them.
        missing = _missing(tools, store)
        display = _Display(missing, out)
        for number, tool in enumerate(missing):
            display.begin(number)
            gobuild.build(tool, store, display.show)
            display.end()


@dataclass
class _Display:
    """One line that moves on a terminal, a line now and then elsewhere."""

    tools: Sequence[Tool]
    out: TextIO
    number: int = 0
    started: float = 0.0
    shown: float = field(default=0.0)

    def begin(self, number: int) -> None:
        self.number = number
        self.started = self.shown = time.monotonic()
        left = sum(tool.cold_seconds for tool in self.tools[number:])
        self._write(f"{self._label()}: starting, {_about(left)} left in all", last=True)

    def show(self, progress: gobuild.Progress) -> None:
        now = time.monotonic()
        if not self.out.isatty() and now - self.shown < _LINE_EVERY_SECONDS:
            return
        self.shown = now
        later = sum(tool.cold_seconds for tool in self.tools[self.number + 1 :])
        left = progress.seconds_left(self.tools[self.number].cold_seconds) + later
        self._write(
            f"{self._label()}: {progress.compiled} of {progress.stale} packages, "
            f"{_clock(progress.elapsed)}, {_about(left)} left in all"
        )

    def end(self) -> None:
        self._write(
            f"{self._label()}: done in {_clock(time.monotonic() - self.started)}", last=True
        )

    def _label(self) -> str:
        return f"[{self.number + 1}/{len(self.tools)}] {self.tools[self.number].name}"

    def _write(self, text: str, *, last: bool = False) -> None:
        if self.out.isatty():
            print(f"\r\033[K{text}", end="\n" if last else "", file=self.out, flush=True)
        else:
            print(text, file=self.out, flush=True)


def _missing(tools: Sequence[Tool], store: Store) -> list[Tool]:
    # In the order of TOOLS, whatever order the user named them in.
    return [tool for tool in TOOLS if tool in tools and store.find(tool) is None]


def _print_list(store: Store, out: TextIO) -> None:
    for tool in TOOLS:
        try:
            path = store.find(tool)
            state = str(path) if path else f"not built, takes {_about(tool.cold_seconds)}"
        except ToolError as error:
            state = f"error: {error}"
        print(f"{tool.group:<8} {tool.name:<{_NAME_WIDTH}} {state}", file=out)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}m{rest:02d}s" if minutes else f"{rest}s"


def _about(seconds: float) -> str:
    minutes = int(seconds) // 60
    return f"about {minutes + 1} min" if minutes else "less than a minute"


def _parser() -> argparse.ArgumentParser:
    names = ", ".join(tool.name for tool in TOOLS)
    parser = argparse.ArgumentParser(
        prog="build.py",
        description="Build the pinned Go tools and keep them in the user's cache.",
        epilog="KUBEBUILDER_ASSETS, when set, names a folder whose etcd, kube-apiserver, kubectl "
        "and, if it is there, kube-controller-manager are used instead.",
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"what to build instead of a group: {names}"
    )
    parser.add_argument(
        "--group",
        choices=[*Group, _ALL],
        help="what the tests run (the default), what the local cluster runs besides, both, or "
        "what the bench can measure beside ours (peer)",
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--print-path", metavar="NAME", help="print where that binary is")
    what.add_argument("--list", action="store_true", help="list the tools and where they are")
    return parser


if __name__ == "__main__":
    sys.exit(main())
