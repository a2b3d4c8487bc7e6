"""What the scheduler looks at, made small: one wish, Providers that meet it, and neighbours."""

from dataclasses import replace

from hypothesis import strategies as st

from banlieue.api.meta import LabelSelector
from banlieue.controller.scheduling.placement import (
    TOPOLOGY_FAILURE_DOMAIN,
    TOPOLOGY_HOST,
    TOPOLOGY_PROVIDER,
    Apart,
    Capacity,
    Demand,
    Domain,
    ImageState,
    Place,
    Placed,
    Resident,
    Site,
    Unplaced,
)
from banlieue.sdk.kube import Key

VM = Key("team-a", "db-1")
EVERYBODY = LabelSelector()


def labelled(**labels: str) -> LabelSelector:
    return LabelSelector(match_labels=labels)


def demand(**changes: object) -> Demand:
    base = Demand(
        key=VM,
        cpus=2,
        memory_mib=4096,
        image="ubuntu",
        labels={"app": "db"},
        digest="d" * 64,
        storage_classes=("gold",),
        network_classes=("prod",),
    )
    return replace(base, **changes)  # type: ignore[arg-type] # fields by name


def domain(name: str = "a", **changes: object) -> Domain:
    base = Domain(
        name=name,
        storage_classes=frozenset({"gold"}),
        network_classes=frozenset({"prod"}),
    )
    return replace(base, **changes)  # type: ignore[arg-type] # fields by name


def site(name: str = "one", *domains: Domain, **changes: object) -> Site:
    base = Site(
        key=Key("system", name),
        domains=domains or (domain(f"{name}-a"),),
        images={"ubuntu": ImageState(ready=True)},
        complete=True,
        told=True,
        recovering=True,
    )
    return replace(base, **changes)  # type: ignore[arg-type] # fields by name


def resident(name: str, where: Place, **changes: object) -> Resident:
    base = Resident(key=Key("team-a", name), places=(where,), labels={"app": "db"})
    return replace(base, **changes)  # type: ignore[arg-type] # fields by name


def chosen(decision: object) -> str:
    assert isinstance(decision, Placed), decision
    return decision.place.domain


def refusal(decision: object) -> Unplaced:
    assert isinstance(decision, Unplaced), decision
    return decision


OFTEN = st.integers(0, 11).map(lambda number: number < 11)
FEW = st.sampled_from([2, 1, 3, 3, 2, 0])
TOPOLOGIES = st.sampled_from(["rack", TOPOLOGY_FAILURE_DOMAIN, TOPOLOGY_PROVIDER, TOPOLOGY_HOST])
SELECTORS = st.sampled_from([EVERYBODY, labelled(app="db"), labelled(app="web")])
NAMES = st.sampled_from(["a", "b", "c"])
ALL_CLASSES, GOLD, NO_CLASS = frozenset({"gold", "silver"}), frozenset({"gold"}), frozenset[str]()
OFFERED = st.sampled_from([ALL_CLASSES, ALL_CLASSES, ALL_CLASSES, GOLD, NO_CLASS])
WANTED = st.sampled_from([NO_CLASS, GOLD, GOLD, ALL_CLASSES])
DIGESTS = ("a" * 64, "b" * 64)


@st.composite
def domains(draw: st.DrawFn, name: str) -> Domain:
    return Domain(
        name=name,
        labels=draw(st.dictionaries(st.sampled_from(["zone", "rack"]), NAMES, max_size=2)),
        schedulable=draw(OFTEN),
        storage_classes=draw(OFFERED),
        network_classes=frozenset({"prod"}),
        capacity=draw(
            st.none()
            | st.builds(
                Capacity,
                memory_mib=st.integers(1024, 65536),
                free_memory_mib=st.integers(0, 65536),
                cpus=st.none() | st.integers(1, 64),
                included=st.sampled_from(
                    [frozenset(), frozenset({DIGESTS[0]}), frozenset({"b" * 8})]
                ),
            )
        ),
    )


@st.composite
def site_lists(draw: st.DrawFn, prefix: str = "p") -> list[Site]:
    made = []
    for number in range(draw(FEW)):
        name = f"{prefix}{number}"
        count = draw(FEW)
        made.append(
            Site(
                key=Key("system", name),
                domains=tuple(draw(domains(f"{name}-{index}")) for index in range(count)),
                labels=draw(st.dictionaries(st.just("env"), NAMES, max_size=1)),
                allowed=draw(OFTEN),
                ready=draw(OFTEN),
                cordoned=not draw(OFTEN),
                admission_by_backend=not draw(OFTEN),
                images={"ubuntu": ImageState(draw(OFTEN))},
                overcommit_memory=draw(st.sampled_from([1.0, 1.5, 2.0])),
                complete=draw(st.booleans()),
            )
        )
    return made


@st.composite
def demands(draw: st.DrawFn) -> Demand:
    return demand(
        memory_mib=draw(st.integers(64, 16384)),
        storage_classes=tuple(sorted(draw(WANTED))),
        provider_selector=None if draw(OFTEN) else labelled(env=draw(NAMES)),
        domain_selector=None if draw(OFTEN) else labelled(zone=draw(NAMES)),
        apart=tuple(draw(st.lists(terms(), max_size=2))),
    )


@st.composite
def crowds(draw: st.DrawFn, sites: list[Site], most: int = 5) -> list[Resident]:
    """Neighbours at places there are; some say themselves whom they keep away from."""
    places = [Place(it.key, one.name) for it in sites for one in it.domains]
    if not places:
        return []
    return [
        resident(
            f"n{number}",
            draw(st.sampled_from(places)),
            memory_mib=1024,
            digest=draw(st.sampled_from(["", *DIGESTS])),
            labels={"app": draw(st.sampled_from(["db", "web"]))},
            apart=draw(st.just(()) | st.tuples(terms())),
            since=draw(st.none() | st.integers(0, 9).map(float)),
            settled=draw(st.booleans()),
        )
        for number in range(draw(st.integers(0, most)))
    ]


def terms() -> st.SearchStrategy[Apart]:
    """Anti-affinity terms of every kind."""
    return st.builds(Apart, topology_key=TOPOLOGIES, selector=SELECTORS, required=st.booleans())


@st.composite
def scenes(draw: st.DrawFn) -> tuple[Demand, list[Site], list[Resident]]:
    """A wish, what there is, and who is there."""
    sites = draw(site_lists())
    return draw(demands()), sites, draw(crowds(sites))
