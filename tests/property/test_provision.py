"""Planning: for anything wanted, stored and owned, carrying out the plan gives what is wanted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate import Limit
from headgate.errors import ValidationError
from headgate.provision import Action, Address, Change, Conflict, address, plan
from headgate.records import Entity, LimitsConfig

limits = st.sets(
    st.sampled_from(["rpm", "tpm", "usd"]).map(lambda name: Limit.per_minute(name, 10)), min_size=1
).map(tuple)
ids = st.sampled_from(["a", "b", "c"])
configs = st.builds(
    LimitsConfig,
    st.none() | ids,
    st.none() | ids,
    limits,
    st.just(None),
    st.integers(1, 3),
)


@st.composite
def families(draw):
    """Entities whose parents, if they have any, are among them or unknown; no cycles."""
    chosen = draw(st.lists(ids, unique=True))
    return [
        Entity(
            name,
            draw(st.none() | st.sampled_from(["stranger", *chosen[:position]])),
            metadata=draw(st.dictionaries(ids, ids, max_size=1)),
            version=draw(st.integers(1, 3)),
        )
        for position, name in enumerate(chosen)
    ]


@st.composite
def states(draw):
    by_address = {address(config): config for config in draw(st.lists(configs, max_size=5))}
    return [*draw(families()), *by_address.values()]


def plain(records):
    """Without versions, and whatever the order."""
    return {
        address(record): (
            (record.parent_id, record.cascade, record.name, dict(record.metadata))
            if isinstance(record, Entity)
            else (frozenset(record.limits), record.on_unavailable)
        )
        for record in records
    }


def carried_out(stored, changes):
    """What is stored afterwards, if each change finds what it expects."""
    now = {address(record): record for record in stored}
    for change in changes:
        assert now.get(change.address) == change.before
        if change.after is None:
            del now[change.address]
        else:
            now[change.address] = change.after
    return list(now.values())


@given(states(), states())
def test_with_everything_owned_what_is_stored_becomes_what_is_wanted(wanted, stored):
    owned = {address(record) for record in stored}
    changes = plan(wanted, stored, owned=owned)
    assert plain(carried_out(stored, changes)) == plain(wanted)
    assert plan(wanted, carried_out(stored, changes), owned=owned) == ()


@given(states(), states(), st.sets(st.integers(0, 10)))
def test_what_is_not_owned_is_never_touched(wanted, stored, chosen):
    owned = {address(record) for i, record in enumerate(stored) if i in chosen}
    foreign = {address(record): record for record in stored if address(record) not in owned}
    agreed = plain(wanted)
    taken = [
        place
        for place, record in foreign.items()
        if place in agreed and plain([record])[place] != agreed[place]
    ]
    if taken:
        with pytest.raises(Conflict) as refused:
            plan(wanted, stored, owned=owned)
        assert set(refused.value.taken) == set(taken)
    else:
        changed = {change.address for change in plan(wanted, stored, owned=owned)}
        assert not changed & set(foreign)


@given(states(), states())
def test_undone_from_the_end_everything_is_as_it_was(wanted, stored):
    owned = {address(record) for record in stored}
    changes = plan(wanted, stored, owned=owned)
    after = carried_out(stored, changes)
    back = carried_out(after, [change.undone() for change in reversed(changes)])
    assert plain(back) == plain(stored)


@given(families(), families())
def test_parents_come_before_their_children_and_go_after_them(wanted, stored):
    there = {record.entity_id for record in stored}
    for change in plan(wanted, stored, owned={address(record) for record in stored}):
        if change.action is Action.DELETE:
            there.discard(change.address.entity_id)
        else:
            parent = change.after.parent_id
            assert parent == "stranger" or parent is None or parent in there
            there.add(change.address.entity_id)


def test_limits_of_an_entity_come_after_it_and_go_before_it():
    everything = [LimitsConfig("a", None, (Limit.per_minute("rpm", 1),)), Entity("a")]
    owned = [address(record) for record in everything]
    made = [change.address.kind for change in plan(everything, [])]
    gone = [change.address.kind for change in plan([], everything, owned=owned)]
    assert made == ["entity", "limits"]
    assert gone == ["limits", "entity"]


def test_a_change_says_what_it_does():
    one, other = Entity("a"), Entity("a", name="A")
    place = Address("entity", "a")
    assert plan([one], []) == (Change(place, None, one),)
    assert plan([other], [one], owned=[place]) == (Change(place, one, other),)
    assert plan([], [one], owned=[place]) == (Change(place, one, None),)
    actions = [Change(place, *pair).action for pair in ((None, one), (one, other), (one, None))]
    assert actions == [Action.CREATE, Action.UPDATE, Action.DELETE]


@pytest.mark.parametrize(
    ("place", "words"),
    [
        (Address("entity", "a"), "entity 'a'"),
        (Address("limits", None), "the limits of the system"),
        (Address("limits", None, "gpt-4"), "the limits of resource 'gpt-4'"),
        (Address("limits", "a"), "the limits of entity 'a'"),
        (Address("limits", "a", "gpt-4"), "the limits of entity 'a' on resource 'gpt-4'"),
    ],
)
def test_an_address_reads_as_people_say_it(place, words):
    assert str(place) == words


def test_a_record_that_is_written_down_twice_is_refused():
    with pytest.raises(ValidationError, match="entity 'a' is written down twice"):
        plan([Entity("a"), Entity("a", name="A")], [])


def test_a_family_without_an_oldest_is_refused():
    with pytest.raises(ValidationError, match="is its own ancestor"):
        plan([Entity("a", "b"), Entity("b", "a")], [])
