"""Deterministic simulation: real reconcilers, virtual time, everything from one seed.

    python -m test.simulation --seeds 10000          # as many schedules, in two processes
    python -m test.simulation --seed 17              # one, with its transcript

The processes of banlieue run whole: engine, queues, caches, controllers, drivers. Around them stand
an API server in memory, simulated hypervisors, and a loop whose time jumps (`loop`). A schedule
(`schedule`) begins with a platform at rest, lets users, accidents and restores happen to it
(`actions`, `backend_actions`, `restores`, `repeats`), heals what can be healed and waits for rest
(`ending`). All the while `oracle`, with `custody` and `strangers`, sees every write and VM and
halts at the first thing that must never happen. What is drawn is drawn from the seed, so a failure
is one line to play again.

`planted` holds bugs on purpose; a simulation that does not find them shows nothing.
"""
