"""A management cluster on this host: `python -m hack.cluster up|down|load|status|logs`."""

import argparse
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Final

from hack.cluster.choose import cluster_from_environment, names_of_clusters
from hack.cluster.interface import ClusterError, Leave
from hack.cluster.oserrors import told
from hack.tools.catalog import ToolError

_DEFAULT_NAME: Final = "banlieue"
_ENDED_BY_SIGNAL: Final = 130


class _Interrupted(BaseException):
    """Somebody wants this program to end; what it began is cleaned up on the way out."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    chosen = _parser().parse_args(arguments)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        run: Callable[[argparse.Namespace], None] = chosen.run
        run(chosen)
    except (ClusterError, ToolError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"error: {told(error)}", file=sys.stderr)
        return 1
    except _Interrupted:
        print(
            "interrupted; `.venv/bin/python -m hack.cluster status` says what is there",
            file=sys.stderr,
        )
        return _ENDED_BY_SIGNAL
    return 0


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # Cleaning up is short; a second Ctrl-C must not cut it shorter.
        signal.signal(number, signal.SIG_IGN)
    raise _Interrupted


def _up(chosen: argparse.Namespace) -> None:
    cluster = cluster_from_environment(chosen.name, _say)
    cluster.up()
    print(
        f"""
kubeconfig: {cluster.kubeconfig}
  export KUBECONFIG={shlex.quote(str(cluster.kubeconfig))}
  kubectl get nodes                  (`python3 hack/tools/build.py --print-path kubectl` names ours)
pods reach this host at {cluster.host_address}
load images:  .venv/bin/python -m hack.cluster load --name {chosen.name} FILE.tar
end it:       .venv/bin/python -m hack.cluster down --name {chosen.name}"""
    )


def _down(chosen: argparse.Namespace) -> None:
    cluster_from_environment(chosen.name, _say).down(chosen.leave)


def _load(chosen: argparse.Namespace) -> None:
    cluster_from_environment(chosen.name, _say).load(*chosen.archives)


def _status(chosen: argparse.Namespace) -> None:
    names = [chosen.name] if chosen.name else names_of_clusters()
    broken = []
    for name in names:
        try:
            print(cluster_from_environment(name).status())
        except ClusterError as error:
            # The others are asked for too.
            broken.append(f"{name}: {error}")
    if not names:
        print("there are no clusters")
    if broken:
        raise ClusterError("\n".join(broken))


def _logs(chosen: argparse.Namespace) -> None:
    directory: Path = chosen.directory or Path("out", "logs", chosen.name)
    cluster_from_environment(chosen.name, _say).save_logs(directory)
    print(directory)


def _say(line: str) -> None:
    print(line, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=".venv/bin/python -m hack.cluster", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(
        name: str,
        run: Callable[[argparse.Namespace], None],
        text: str,
        default: str | None = _DEFAULT_NAME,
    ) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        sub.add_argument("--name", default=default, help=f"default: {default or 'all'}")
        sub.set_defaults(run=run)
        return sub

    command("up", _up, "start a cluster, or go on with a kept one")
    down = command("down", _down, "end it; images stay, so that the next start is quick")
    what = down.add_mutually_exclusive_group()
    what.add_argument(
        "--keep",
        dest="leave",
        action="store_const",
        const=Leave.EVERYTHING,
        default=Leave.IMAGES,
        help="keep everything: the next `up` goes on with the same objects",
    )
    what.add_argument(
        "--purge",
        dest="leave",
        action="store_const",
        const=Leave.NOTHING,
        help="keep nothing, not even images",
    )
    load = command("load", _load, "give the node images")
    load.add_argument("archives", nargs="+", type=Path, metavar="FILE", help="a docker-archive")
    command("status", _status, "say how a cluster is", default=None)
    logs = command("logs", _logs, "copy what daemons and pods said into a folder")
    logs.add_argument("directory", nargs="?", type=Path, help="default: out/logs/NAME")
    return parser


if __name__ == "__main__":
    sys.exit(main())
