"""What holds of every placement: found again in any order, no filter broken, nothing moved."""

import ipaddress
import random
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from banlieue.controller.scheduling.crowd import Crowd
from banlieue.controller.scheduling.placement import (
    TOPOLOGY_HOST,
    TOPOLOGY_PROVIDER,
    Capacity,
    Claim,
    Demand,
    Domain,
    Place,
    Placed,
    Resident,
    Site,
    Unplaced,
)
from banlieue.controller.scheduling.placing import place
from banlieue.controller.scheduling.scheduler import schedule, survey
from banlieue.sdk.kube import Key
from test.kit.scheduling import crowds, domain, scenes, site, site_lists

Scene = tuple[Demand, list[Site], list[Resident]]

EXAMPLES = settings(max_examples=30, deadline=None)


# What may be chosen, said once more and slowly.


def zone(topology_key: str, where: Place, sites: list[Site]) -> str:
    if topology_key == TOPOLOGY_PROVIDER:
        return str(where.provider)
    for it in sites:
        for one in it.domains:
            if Place(it.key, one.name) == where and topology_key in one.labels:
                return one.labels[topology_key]
    return f"{where.provider}/{where.domain}"


def apart_from_all(wanted: Demand, where: Place, sites: list[Site], crowd: list[Resident]) -> bool:
    def together(topology_key: str, other: Resident) -> bool:
        here = zone(topology_key, where, sites)
        return any(zone(topology_key, place, sites) == here for place in other.places)

    mine = (
        together(term.topology_key, other)
        for term in wanted.apart
        if term.required and term.topology_key != TOPOLOGY_HOST
        for other in crowd
        if term.selector.matches(other.labels)
    )
    theirs = (
        together(term.topology_key, other)
        for other in crowd
        for term in other.apart
        if term.required
        and term.topology_key != TOPOLOGY_HOST
        and term.selector.matches(wanted.labels)
    )
    return not any(mine) and not any(theirs)


def counted(capacity: Capacity, other: Resident) -> bool:
    if not other.digest:
        return other.settled
    return any(other.digest.startswith(beginning) for beginning in capacity.included)


def room(wanted: Demand, it: Site, one: Domain, crowd: list[Resident]) -> bool:
    capacity = one.capacity
    if capacity is None or it.admission_by_backend:
        return True
    where = Place(it.key, one.name)
    taken = sum(
        other.memory_mib
        for other in crowd
        if where in other.places and not counted(capacity, other)
    )
    extra = int(capacity.memory_mib * (it.overcommit_memory - 1))
    return capacity.free_memory_mib + extra - taken >= wanted.memory_mib


def static_allowed(wanted: Demand, it: Site) -> bool:
    return all(
        any(
            ipaddress.ip_address(wish.address) in ipaddress.ip_network(cidr)
            for cidr in it.allow_static.get(wish.network_class, ())
        )
        for wish in wanted.static_addresses
    )


def acceptable(wanted: Demand, sites: list[Site], crowd: list[Resident]) -> set[Place]:
    return {
        Place(it.key, one.name)
        for it in sites
        if it.allowed and it.ready and not it.cordoned and it.images["ubuntu"].ready
        if wanted.provider_selector is None or wanted.provider_selector.matches(it.labels)
        if static_allowed(wanted, it)
        for one in it.domains
        if one.schedulable and one.storage_classes >= set(wanted.storage_classes)
        if wanted.domain_selector is None or wanted.domain_selector.matches(one.labels)
        if room(wanted, it, one, crowd)
        if apart_from_all(wanted, Place(it.key, one.name), sites, crowd)
    }


@EXAMPLES
@given(scenes())
def test_what_is_chosen_is_acceptable_and_what_is_acceptable_is_found(scene: Scene) -> None:
    wanted, sites, crowd = scene
    found = survey(wanted, sites, crowd)
    assert {it.place for it in found.fits} == acceptable(wanted, sites, crowd)
    answer = schedule(wanted, sites, crowd)
    assert isinstance(answer, Placed) == bool(found.fits)
    if isinstance(answer, Placed):
        assert answer.place == found.fits[0].place


@EXAMPLES
@given(scenes(), st.integers(0, 99))
def test_the_order_of_the_input_does_not_matter(scene: Scene, seed: int) -> None:
    wanted, sites, crowd = scene
    shuffler = random.Random(seed)
    other_sites = [replace(it, domains=it.domains[::-1]) for it in sites]
    other_crowd = list(crowd)
    shuffler.shuffle(other_sites)
    shuffler.shuffle(other_crowd)
    assert survey(wanted, sites, crowd) == survey(wanted, other_sites, other_crowd)
    assert schedule(wanted, sites, crowd) == schedule(wanted, other_sites, other_crowd)


@EXAMPLES
@given(scenes())
def test_every_candidate_is_accounted_for_once(scene: Scene) -> None:
    wanted, sites, crowd = scene
    found = survey(wanted, sites, crowd)
    told = [it.place for it in found.fits]
    told += [Place(it.provider, it.domain) for it in found.rejections]
    whole = {it.provider for it in found.rejections if not it.domain}
    assert len(set(told)) == len(told)
    for it in sites:
        if not it.allowed:
            assert it.key not in {place.provider for place in told}
        elif it.key not in whole:
            assert {one.name for one in it.domains} == {
                place.domain for place in told if place.provider == it.key
            }
    assert all(it.detail and it.reason.kind.value in "WS" for it in found.rejections)


@EXAMPLES
@given(scenes(), st.data())
def test_more_room_never_makes_a_machine_unplaceable(scene: Scene, data: st.DataObject) -> None:
    wanted, sites, crowd = scene

    def enlarge(one: Domain) -> Domain:
        if one.capacity is None:
            return one
        more = data.draw(st.integers(0, 4096))
        capacity = replace(
            one.capacity,
            memory_mib=one.capacity.memory_mib + more,
            free_memory_mib=one.capacity.free_memory_mib + more,
        )
        return replace(one, capacity=capacity)

    larger = [replace(it, domains=tuple(map(enlarge, it.domains))) for it in sites]
    larger.append(site("zz-new", domain("zz-new-a")))
    leaving = data.draw(st.sets(st.sampled_from([it.key for it in crowd]))) if crowd else set()
    fewer = [it for it in crowd if it.key not in leaving]
    if isinstance(schedule(wanted, sites, crowd), Placed):
        assert isinstance(schedule(wanted, larger, crowd), Placed)
        assert isinstance(schedule(wanted, sites, fewer), Placed)


@EXAMPLES
@given(scenes(), site_lists("a-better-"), st.data())
def test_nothing_that_happens_around_it_moves_what_was_placed(
    scene: Scene, unrelated: list[Site], data: st.DataObject
) -> None:
    """A Provider appears, fills up, is cordoned, breaks, loses the image or is refused to us."""
    wanted, sites, crowd = scene
    first = schedule(wanted, sites, crowd)
    if not isinstance(first, Placed):
        return
    spoilt = [
        replace(
            it,
            allowed=data.draw(st.booleans()),
            ready=data.draw(st.booleans()),
            cordoned=data.draw(st.booleans()),
            domains=tuple(
                replace(one, capacity=Capacity(1024, 0), schedulable=False) for one in it.domains
            ),
            images={},
        )
        for it in sites
    ]
    everything = [*unrelated, *spoilt]
    newcomers = data.draw(crowds(everything))
    recovery = data.draw(st.booleans())
    again = place(wanted, everything, newcomers, before=first.place, recovery=recovery)
    assert again == first


@EXAMPLES
@given(scenes(), st.data())
def test_what_a_provider_holds_goes_there_and_nowhere_else(
    scene: Scene, data: st.DataObject
) -> None:
    wanted, sites, crowd = scene
    holder = site("holder", domain("holder-a"), ready=False, claims=(Claim("d" * 8, 3),))
    answer = place(wanted, [*sites, holder], crowd, recovery=data.draw(st.booleans()))
    assert isinstance(answer, Placed)
    assert answer.place.provider == holder.key
    assert answer.epoch == 3


@EXAMPLES
@given(scenes(), st.data())
def test_a_crowd_that_changed_answers_like_one_made_anew(scene: Scene, data: st.DataObject) -> None:
    wanted, sites, _ = scene
    crowd = Crowd()
    for _ in range(data.draw(st.integers(1, 4))):
        for newcomer in data.draw(crowds(sites)):
            crowd.put(newcomer)
        survey(wanted, sites, crowd)  # what is kept from here must follow the changes
        for leaving in data.draw(st.sets(st.integers(0, 4))):
            crowd.drop(Key(wanted.key.namespace, f"n{leaving}"))
    assert survey(wanted, sites, crowd) == survey(wanted, sites, list(crowd))


@EXAMPLES
@given(scenes())
def test_the_machine_itself_is_nobodys_neighbour(scene: Scene) -> None:
    wanted, sites, crowd = scene
    places = tuple(Place(it.key, one.name) for it in sites for one in it.domains)
    itself = Resident(
        key=wanted.key,
        places=places,
        labels=wanted.labels,
        digest=wanted.digest,
        cpus=8,
        memory_mib=65536,
        apart=wanted.apart,
    )
    assert survey(wanted, sites, [*crowd, itself]) == survey(wanted, sites, crowd)


@EXAMPLES
@given(scenes())
def test_a_refusal_always_says_something(scene: Scene) -> None:
    wanted, sites, crowd = scene
    answer = schedule(wanted, sites, crowd)
    if isinstance(answer, Unplaced):
        assert answer.message
        assert len(answer.message.encode()) <= 1024
        assert not answer.rejections or answer.reason is answer.rejections[0].reason
