"""Tickets read back as they were written, and no data makes them anything else than refused."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate import Ticket, ValidationError
from headgate.held import divided, held, joined, spread
from tests import strategies as some

leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=30)
    | st.sampled_from(["_default_", "a#b", "rpm", 10**40, -1, 0, 64, "0" * 24])
)
json_values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)


@given(some.tickets())
def test_a_ticket_reads_back_as_it_was_written(ticket):
    data = ticket.as_dict()
    assert Ticket.from_dict(data) == ticket
    assert Ticket.from_dict(json.loads(json.dumps(data))) == ticket
    assert Ticket.from_dict(json.loads(json.dumps(data))).as_dict() == data


@given(some.tickets())
def test_what_a_ticket_says_to_hold_is_what_it_was_granted(ticket):
    first = held(ticket.grants, ticket.parts[0].ref)
    assert ticket.consumed == {name: amount // 1000 for name, amount in first.items()}


def places(data, path=()):
    """The path of every value in some data."""
    yield path
    inner = data.items() if isinstance(data, dict) else enumerate(data)
    for key, value in inner:
        if isinstance(value, dict | list):
            yield from places(value, (*path, key))
        else:
            yield (*path, key)


@given(st.data())
def test_altered_data_is_a_ticket_or_refused(data):
    told = json.loads(json.dumps(data.draw(some.tickets()).as_dict()))
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from([path for path in places(told) if path] or [()]))
        if not path:
            break
        inner = told
        for key in path[:-1]:
            inner = inner[key]
        how = data.draw(st.sampled_from(["replace", "remove", "repeat"]))
        if how == "remove":
            del inner[path[-1]]
        elif how == "repeat" and isinstance(inner, list):
            inner.append(inner[path[-1]])
        else:
            inner[path[-1]] = data.draw(json_values)
    try:
        ticket = Ticket.from_dict(told)
    except ValidationError:
        return
    assert Ticket.from_dict(ticket.as_dict()) == ticket


@given(json_values)
def test_arbitrary_data_is_refused(data):
    with pytest.raises(ValidationError):
        Ticket.from_dict(data)


def total(grants):
    counted = Counter()
    for grant in grants:
        for name, amount in grant.amounts.items():
            counted[grant.ref, grant.shard, name] += amount
    return counted


@given(some.tickets(), st.data())
def test_what_goes_back_and_what_stays_is_what_was_held(ticket, data):
    named = {
        part.ref: {
            name: data.draw(st.integers(1, amount))
            for name, amount in held(ticket.grants, part.ref).items()
        }
        for part in ticket.parts
    }
    falls = spread(named, {part.ref: part.parents for part in ticket.parts})
    kept, back = divided(ticket.grants, falls)
    assert total(kept) + total(back) == total(ticket.grants)
    for ref, amounts in falls.items():
        has, returned = held(ticket.grants, ref), held(back, ref)
        assert returned == {n: min(a, has[n]) for n, a in amounts.items() if n in has}
    for ref, amounts in named.items():
        assert all(falls[ref][name] >= amount for name, amount in amounts.items())


@given(some.tickets())
def test_grants_of_one_item_are_one_grant(ticket):
    assert joined(ticket.grants) == ticket.grants
    twice = joined([*ticket.grants, *reversed(ticket.grants)])
    assert [(g.ref, g.shard) for g in twice] == [(g.ref, g.shard) for g in ticket.grants]
    assert total(twice) == total([*ticket.grants, *ticket.grants])
