"""What a management cluster for tests and development can do, whatever it is made of."""

import re
from enum import Enum
from pathlib import Path
from typing import Final, Protocol

_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,28}[a-z0-9])?")


class ClusterError(Exception):
    """A cluster cannot do what was asked; the message says what to do about it."""


def is_name(text: str) -> bool:
    """Whether this can be the name of a cluster, whatever it is made of."""
    return _NAME.fullmatch(text) is not None


def require_name(name: str) -> None:
    """Raise ClusterError unless this can be the name of a cluster."""
    if not is_name(name):
        raise ClusterError(
            f"{name!r} is no name for a cluster: "
            "up to 30 lower-case letters, digits and dashes, no dash at either end"
        )


class Leave(Enum):
    """What `down` leaves behind for the next `up`."""

    NOTHING = "nothing"
    IMAGES = "images"  # and certificates: the next `up` starts afresh, but quickly
    EVERYTHING = "everything"  # the next `up` goes on with the same objects


class Cluster(Protocol):
    """A cluster with one node that runs pods, on this host."""

    @property
    def name(self) -> str:
        """Its name; clusters of different names live side by side."""
        ...

    @property
    def kubeconfig(self) -> Path:
        """Kubeconfig of an administrator, for use on this host; there once it is up."""
        ...

    @property
    def host_address(self) -> str:
        """Address at which pods reach what listens on this host.

        Raises:
            ClusterError: The cluster is not up, so it has none.
        """
        ...

    def is_up(self) -> bool:
        """Whether it is up; raises ClusterError when that cannot be told."""
        ...

    def up(self) -> None:
        """Start it and wait until it runs pods; nothing happens when it is up already.

        Raises:
            ClusterError: It cannot be started; what was begun is cleaned up.
        """
        ...

    def down(self, leave: Leave = Leave.IMAGES) -> None:
        """End it; nothing happens when it is not there.

        Raises:
            ClusterError: Something of it could not be removed.
        """
        ...

    def load(self, *archives: Path) -> None:
        """Give the node images, so that pods run them without pulling.

        Args:
            archives: Files in the docker-archive format.

        Raises:
            ClusterError: The cluster is not up, or an archive is not readable.
        """
        ...

    def save_logs(self, directory: Path) -> None:
        """Copy what the daemons and the pods said into a directory, as far as it is there.

        Raises:
            ClusterError: Nothing is there, or it cannot be written.
        """
        ...

    def status(self) -> str:
        """How it is, for people, in one line."""
        ...
