"""Entities, their parents, and acquires that draw from several buckets."""

from __future__ import annotations

import pytest

from headgate import (
    Blocked,
    EntityExists,
    EntityNotFound,
    Limit,
    RateLimitExceeded,
    Request,
    ValidationError,
    VersionConflict,
)


@pytest.fixture
def limiter(backend):
    made = backend.limiter()
    made.set_limits([Limit.per_minute("rpm", 10), Limit.per_minute("tpm", 1_000)], resource="gpt-4")
    return made


@pytest.fixture
def family(limiter):
    """alice and bob belong to acme, which belongs to the world; all of it cascades."""
    limiter.create_entity("world")
    limiter.create_entity("acme", parent_id="world", cascade=True)
    limiter.create_entity("alice", parent_id="acme", cascade=True)
    limiter.create_entity("bob", parent_id="acme", cascade=True)
    limiter.set_limits([Limit.per_minute("rpm", 15)], entity_id="acme")
    limiter.set_limits([Limit.per_minute("rpm", 100)], entity_id="world")
    return limiter


def rounds(limiter):
    """The batches of one acquire: what is sent side by side is one round trip."""
    batches = []
    perform = limiter.limiter._driver.run

    def run(flow, *args, **options):
        return perform(recorded(flow), *args, **options)

    def recorded(flow):
        outcomes = None
        while True:
            try:
                effect = next(flow) if outcomes is None else flow.send(outcomes)
            except StopIteration as stop:
                return stop.value
            batches.append([call.operation for call in effect])
            outcomes = yield effect

    limiter.limiter._driver.run = run
    return batches


# ---------------------------------------------------------------- records


def test_an_entity_is_read_back_as_it_was_made(limiter):
    limiter.create_entity("acme", name="Acme", metadata={"plan": "gold"})
    made = limiter.create_entity("alice", parent_id="acme", cascade=True)
    assert limiter.get_entity("alice") == made
    assert limiter.get_entity("acme").metadata == {"plan": "gold"}
    assert limiter.get_entity("nobody") is None


def test_an_entity_is_made_once(limiter):
    limiter.create_entity("acme")
    with pytest.raises(EntityExists, match="'acme'"):
        limiter.create_entity("acme")


def test_a_parent_must_exist(limiter):
    """PEER: a missing parent is accepted."""
    with pytest.raises(EntityNotFound, match="'acme'"):
        limiter.create_entity("alice", parent_id="acme")
    assert limiter.get_entity("alice") is None


def test_a_cascade_needs_a_parent(limiter):
    with pytest.raises(ValidationError, match="parent_id"):
        limiter.create_entity("alice", cascade=True)


def test_a_change_that_others_made_first_is_a_conflict(limiter):
    limiter.create_entity("acme")
    assert limiter.update_entity("acme", name="Acme", version=1).version == 2
    with pytest.raises(VersionConflict, match="version 2, not 1"):
        limiter.update_entity("acme", name="ACME", version=1)
    assert limiter.get_entity("acme").name == "Acme"


def test_an_entity_cannot_be_its_own_ancestor(family):
    with pytest.raises(ValidationError, match="world > alice > acme > world is a cycle"):
        family.update_entity("world", parent_id="alice")


def test_five_levels_are_refused_and_four_are_not(limiter):
    limiter.create_entity("0")
    for level in range(1, 5):
        limiter.create_entity(str(level), parent_id=str(level - 1))
    with pytest.raises(ValidationError, match="at most 4 levels"):
        limiter.create_entity("5", parent_id="4")
    limiter.create_entity("top")
    with pytest.raises(ValidationError, match="at most 4 levels"):
        limiter.update_entity("0", parent_id="top")


def test_children_are_listed_by_id(family):
    assert [child.entity_id for child in family.list_children("acme")] == ["alice", "bob"]
    family.update_entity("bob", parent_id="world")
    assert [child.entity_id for child in family.list_children("world")] == ["acme", "bob"]


def test_an_entity_with_children_is_not_deleted(family):
    with pytest.raises(ValidationError, match="2 children"):
        family.delete_entity("acme")
    assert family.delete_entity("alice") is True
    assert family.delete_entity("alice") is False


@pytest.mark.parametrize(
    "bad", [{"metadata": {"a": 1}}, {"metadata": ["a"]}, {"name": ""}, {"cascade": 1}]
)
def test_fields_that_are_not_what_they_say_are_refused(limiter, bad):
    with pytest.raises(ValidationError):
        limiter.create_entity("acme", **bad)
    assert limiter.get_entity("acme") is None


# ---------------------------------------------------------------- cascade


def test_a_cascade_draws_from_every_level(family):
    """PEER: the parent of a parent is silently not enforced."""
    with family.acquire("alice", "gpt-4", {"rpm": 1, "tpm": 100}):
        pass
    assert family.available("alice", "gpt-4") == {"rpm": 9, "tpm": 900}
    assert family.available("acme", "gpt-4") == {"rpm": 14}
    assert family.available("world", "gpt-4") == {"rpm": 99}


def test_a_warm_cascade_is_one_round_trip(family):
    for _ in range(2):
        with family.acquire("alice", "gpt-4", {"rpm": 1}):
            pass
    batches = rounds(family)
    with family.acquire("alice", "gpt-4", {"rpm": 1}):
        pass
    assert batches == [["UpdateItem", "UpdateItem", "UpdateItem"]]


def test_a_warm_cascade_of_two_levels_is_two_concurrent_writes(limiter):
    limiter.create_entity("acme")
    limiter.create_entity("alice", parent_id="acme", cascade=True)
    with limiter.acquire("alice", "gpt-4", {"rpm": 1}):
        pass
    batches = rounds(limiter)
    with limiter.acquire("alice", "gpt-4", {"rpm": 1}):
        pass
    assert batches == [["UpdateItem", "UpdateItem"]]


def test_a_parent_that_says_no_is_named_and_the_child_keeps_its_tokens(family):
    for name in ("alice", "bob"):
        with family.acquire(name, "gpt-4", {"rpm": 7}):
            pass
    with pytest.raises(RateLimitExceeded) as caught:
        family.acquire("alice", "gpt-4", {"rpm": 2}).__enter__()
    assert caught.value.entity_id == "acme"
    assert caught.value.violations[0].capacity == 15
    assert family.available("alice", "gpt-4")["rpm"] == 3
    assert family.available("world", "gpt-4")["rpm"] == 86


def test_a_child_that_says_no_costs_its_parents_nothing(family):
    with pytest.raises(RateLimitExceeded) as caught:
        family.acquire("alice", "gpt-4", {"rpm": 11}).__enter__()
    assert caught.value.entity_id == "alice"
    assert family.available("acme", "gpt-4") == {"rpm": 15}


def test_what_a_lease_corrects_is_corrected_at_every_level(family):
    with family.acquire("alice", "gpt-4", {"rpm": 4}) as lease:
        lease.adjust(rpm=3)
        assert family.available("acme", "gpt-4") == {"rpm": 8}
        lease.release(rpm=5)
        assert family.available("acme", "gpt-4") == {"rpm": 13}
    assert family.available("alice", "gpt-4")["rpm"] == 8
    assert family.available("world", "gpt-4") == {"rpm": 98}


def test_an_exception_gives_back_at_every_level(family):
    with pytest.raises(RuntimeError), family.acquire("alice", "gpt-4", {"rpm": 4}):
        raise RuntimeError
    for name, full in (("alice", 10), ("acme", 15), ("world", 100)):
        assert family.available(name, "gpt-4")["rpm"] == full


def test_a_change_of_parent_reaches_a_bucket_in_use(family):
    with family.acquire("alice", "gpt-4", {"rpm": 1}):
        pass
    family.update_entity("alice", parent_id="world")
    with family.acquire("alice", "gpt-4", {"rpm": 1}):
        pass
    assert family.available("acme", "gpt-4") == {"rpm": 14}
    assert family.available("world", "gpt-4") == {"rpm": 98}


def test_another_client_learns_of_a_change_of_parent_from_the_bucket(backend, family):
    other = backend.limiter()
    with other.acquire("alice", "gpt-4", {"rpm": 1}):
        pass
    family.update_entity("alice", parent_id=None, cascade=False)
    with other.acquire("alice", "gpt-4", {"rpm": 1}):
        pass
    assert family.available("acme", "gpt-4") == {"rpm": 14}


def test_an_ancestor_drawn_from_too_early_is_drawn_from_all_the_same(backend, family):
    """A client that still knows the old parent draws from it, gives back, and finds that the
    new parent's parent is the same one."""
    other = backend.limiter()
    family.update_entity("alice", parent_id="world")
    with other.acquire("alice", "gpt-4", {"rpm": 1}):
        pass
    family.update_entity("alice", parent_id="acme")
    with other.acquire("alice", "gpt-4", {"rpm": 1}):
        pass
    assert family.available("acme", "gpt-4") == {"rpm": 14}
    assert family.available("world", "gpt-4") == {"rpm": 98}


def test_an_entity_without_a_cascade_draws_from_itself_alone(limiter):
    limiter.create_entity("acme")
    limiter.create_entity("alice", parent_id="acme")
    with limiter.acquire("alice", "gpt-4", {"rpm": 1}):
        pass
    assert limiter.available("acme", "gpt-4")["rpm"] == 10


# ---------------------------------------------------------------- several


def test_several_requests_pass_together_or_not_at_all(limiter):
    limiter.set_limits([Limit.per_minute("rpm", 3)], entity_id="203.0.113.7")
    requests = [Request("alice", "gpt-4", {"rpm": 2}), Request("203.0.113.7", "gpt-4", {"rpm": 2})]
    with limiter.acquire_all(requests) as lease:
        assert lease.consumed == {"rpm": 2}
    with pytest.raises(RateLimitExceeded) as caught:
        limiter.acquire_all(requests).__enter__()
    assert caught.value.entity_id == "203.0.113.7"
    assert limiter.available("alice", "gpt-4")["rpm"] == 8
    assert limiter.available("203.0.113.7", "gpt-4")["rpm"] == 1


def test_of_several_that_say_no_the_most_restrictive_is_named(limiter):
    limiter.set_limits([Limit.per_day("rpm", 5)], entity_id="slow")
    requests = [Request("alice", "gpt-4", {"rpm": 11}), Request("slow", "gpt-4", {"rpm": 5})]
    with limiter.acquire("slow", "gpt-4", {"rpm": 1}):
        pass
    with pytest.raises(RateLimitExceeded) as caught:
        limiter.acquire_all(requests).__enter__()
    assert caught.value.entity_id == "alice"
    assert caught.value.retry_after is None
    assert caught.value.blocked == (
        Blocked("alice", "gpt-4", "rpm"),
        Blocked("slow", "gpt-4", "rpm"),
    )
    assert caught.value.as_dict()["blocked"][1] == {
        "entity_id": "slow",
        "resource": "gpt-4",
        "limit": "rpm",
    }


def test_also_adds_to_the_common_case(limiter):
    extra = [Request("everybody", "gpt-4", {"tpm": 10})]
    with limiter.acquire("alice", "gpt-4", {"rpm": 1}, also=extra):
        assert limiter.available("everybody", "gpt-4")["tpm"] == 990
    assert limiter.available("alice", "gpt-4")["rpm"] == 9


def test_a_bucket_asked_for_twice_is_drawn_from_once_for_both(limiter):
    twice = [Request("alice", "gpt-4", {"rpm": 2}), Request("alice", "gpt-4", {"rpm": 3})]
    with limiter.acquire_all(twice):
        assert limiter.available("alice", "gpt-4")["rpm"] == 5


def test_a_parent_that_is_asked_for_as_well_pays_for_both(family):
    requests = [Request("alice", "gpt-4", {"rpm": 1}), Request("acme", "gpt-4", {"rpm": 2})]
    for paid in (12, 9):
        with family.acquire_all(requests):
            assert family.available("acme", "gpt-4") == {"rpm": paid}


def test_twenty_five_buckets_are_taken_from_at_once_and_no_more(limiter):
    requests = [Request(f"entity-{i}", "gpt-4", {"rpm": 1}) for i in range(26)]
    with limiter.acquire_all(requests[:25]):
        assert limiter.available("entity-24", "gpt-4")["rpm"] == 9
    with limiter.sending() as sent, pytest.raises(ValidationError, match="from 1 to 25"):
        limiter.acquire_all(requests).__enter__()
    assert sent == []


def test_a_correction_falls_on_each_parent_as_the_draw_did(limiter):
    for name in ("acme", "umbrella"):
        limiter.create_entity(name)
    for name, parent in (("alice", "acme"), ("bob", "acme"), ("carol", "umbrella")):
        limiter.create_entity(name, parent_id=parent, cascade=True)
    everyone = ("alice", "bob", "carol", "acme", "umbrella")

    def left():
        return [limiter.available(name, "gpt-4")["rpm"] for name in everyone]

    requests = [Request(name, "gpt-4", {"rpm": 2}) for name in ("alice", "bob", "carol")]
    with limiter.acquire_all(requests) as lease:
        assert left() == [8, 8, 8, 6, 8]
        lease.adjust(rpm=1)
        assert left() == [7, 7, 7, 4, 7]
        lease.release(rpm=2)
        assert left() == [9, 9, 9, 8, 9]
        lease.release()
        assert left() == [10] * 5


def test_a_correction_of_a_parent_that_was_asked_for_as_well_counts_for_both(family):
    before = family.available("acme", "gpt-4")["rpm"]
    requests = [Request("alice", "gpt-4", {"rpm": 1}), Request("acme", "gpt-4", {"rpm": 2})]
    with family.acquire_all(requests) as lease:
        lease.adjust(rpm=1)
        assert family.available("acme", "gpt-4")["rpm"] == before - 5
        lease.release(rpm=2)
        assert family.available("acme", "gpt-4")["rpm"] == before - 1
