"""Restores that are tried out: every Provider only looks, and nothing may change on a backend."""

from banlieue.api.resources import PROVIDERS
from test.simulation.actions import Actor
from test.simulation.cluster import CONTROLLER
from test.simulation.platform import provider_key


class Drills(Actor):
    """What admins do who try a restore out, or begin a real one."""

    def drill(self) -> None:
        """All Providers are made read-only while nothing runs, then everything is started."""
        self._stop_all()
        for name in self.cluster.names:
            if self.cluster.api.look_at(PROVIDERS, provider_key(name)) is not None:
                self.edit_provider(name, mode="ReadOnly")
                self.oracle.custody.note_drill(name)
        self.oracle.forget_calls()
        for role in (CONTROLLER, *self.cluster.names):
            self.cluster.start(role)

    def work_again(self) -> None:
        """The drill is over."""
        for name in self.cluster.names:
            self.edit_provider(name, mode="ReadWrite")

    def _stop_all(self) -> None:
        for process in list(self.cluster.processes):
            if not process.dead:
                self.cluster.kill(process)
