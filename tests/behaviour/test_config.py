"""Stored limits: four levels, one answer, a bounded cache, and buckets that follow."""

from __future__ import annotations

import pytest

from headgate import Limit, LimitsNotFound, RateLimitExceeded, ValidationError

LEVELS = {
    "system": {},
    "resource": {"resource": "gpt-4"},
    "entity_default": {"entity_id": "alice"},
    "entity": {"entity_id": "alice", "resource": "gpt-4"},
}


def rpm(amount):
    return [Limit.per_minute("rpm", amount)]


def take(limiter, amount=1, entity="alice", resource="gpt-4"):
    with limiter.acquire(entity, resource, {"rpm": amount}) as lease:
        return lease


def capacity(limiter, entity="alice", resource="gpt-4"):
    return take(limiter, 1, entity, resource).limits[0].capacity


@pytest.fixture
def limiter(backend):
    return backend.limiter()


@pytest.mark.parametrize("level", LEVELS)
def test_limits_are_set_read_replaced_and_deleted_at_every_level(limiter, level):
    where = LEVELS[level]
    assert limiter.get_limits(**where) is None
    assert limiter.delete_limits(**where) is False

    stored = limiter.set_limits([*rpm(5), Limit.per_day("tpd", 7, burst=3)], **where)
    assert stored == limiter.get_limits(**where)
    assert stored.level == level
    assert stored.version == 1
    assert stored.limits == (*rpm(5), Limit.per_day("tpd", 7, burst=3))
    assert (stored.entity_id, stored.resource) == (where.get("entity_id"), where.get("resource"))

    assert limiter.set_limits(rpm(6), **where).version == 2
    assert limiter.get_limits(**where).limits == tuple(rpm(6))

    assert limiter.delete_limits(**where) is True
    assert limiter.get_limits(**where) is None
    assert limiter.delete_limits(**where) is False


def test_the_nearest_level_answers_and_says_which_it_is(backend):
    limiter = backend.limiter(limits=rpm(1))
    seen = [limiter.resolve_limits("alice", "gpt-4")]
    for amount, where in enumerate(LEVELS.values(), 2):
        limiter.set_limits(rpm(amount), **where)
        seen.append(limiter.resolve_limits("alice", "gpt-4"))
    assert [(found.level, found.limits[0].capacity) for found in seen] == [
        ("constructor", 1),
        ("system", 2),
        ("resource", 3),
        ("entity_default", 4),
        ("entity", 5),
    ]
    assert limiter.resolve_limits("bob", "gpt-4").level == "resource"
    assert limiter.resolve_limits("bob", "claude").level == "system"
    assert limiter.resolve_limits("alice", "claude").level == "entity_default"

    for where in reversed(LEVELS.values()):
        limiter.delete_limits(**where)
    assert limiter.resolve_limits("alice", "gpt-4").level == "constructor"


def test_resolving_is_one_read_of_all_levels_and_then_none(limiter):
    limiter.set_limits(rpm(5))
    limiter.invalidate_cache()
    with limiter.sending() as sent:
        limiter.resolve_limits("alice", "gpt-4")
    assert sent == ["BatchGetItem"]
    with limiter.sending() as sent:
        limiter.resolve_limits("alice", "gpt-4")
    assert sent == []


def test_the_cache_counts_hits_and_misses_and_lives_for_its_time(backend, time):
    limiter = backend.limiter(limits=rpm(5), config_ttl=60)
    limiter.resolve_limits("alice", "gpt-4")
    assert (limiter.cache_stats().hits, limiter.cache_stats().misses) == (0, 4)
    time.advance(59.999)
    limiter.resolve_limits("alice", "gpt-4")
    assert (limiter.cache_stats().hits, limiter.cache_stats().misses) == (4, 4)
    assert limiter.cache_stats().size == 4
    time.advance(0.001)
    with limiter.sending() as sent:
        limiter.resolve_limits("alice", "gpt-4")
    assert sent == ["BatchGetItem"]
    assert (limiter.cache_stats().hits, limiter.cache_stats().misses) == (4, 8)


def test_the_cache_has_a_bound(backend):
    limiter = backend.limiter(limits=rpm(5), max_cached=7)
    for number in range(60):
        take(limiter, entity=f"user-{number}")
    assert limiter.cache_stats().size <= 100
    assert len(limiter.limiter._core.views) <= 7


def test_list_shows_the_limits_of_a_level_and_below(limiter):
    for amount, where in enumerate(LEVELS.values(), 2):
        limiter.set_limits(rpm(amount), **where)
    limiter.set_limits(rpm(9), entity_id="bob", resource="gpt-4")
    limiter.set_limits(rpm(9), entity_id="bob", resource="gpt-4-mini")
    take(limiter)

    def listed(**where):
        return sorted((c.level, c.entity_id, c.resource) for c in limiter.list_limits(**where))

    assert listed() == [("resource", None, "gpt-4"), ("system", None, None)]
    assert listed(resource="gpt-4") == [
        ("entity", "alice", "gpt-4"),
        ("entity", "bob", "gpt-4"),
        ("resource", None, "gpt-4"),
    ]
    assert listed(entity_id="bob") == [
        ("entity", "bob", "gpt-4"),
        ("entity", "bob", "gpt-4-mini"),
    ]
    assert listed(entity_id="alice") == [
        ("entity", "alice", "gpt-4"),
        ("entity_default", "alice", None),
    ]
    assert listed(entity_id="bob", resource="gpt-4") == [("entity", "bob", "gpt-4")]
    assert listed(entity_id="nobody") == []


def test_a_stored_limit_holds_at_the_next_acquire(limiter):
    limiter.set_limits(rpm(5), resource="gpt-4")
    assert capacity(limiter) == 5


@pytest.mark.parametrize("level", ["entity", "entity_default"])
def test_a_changed_limit_of_an_entity_reaches_its_bucket_by_the_changing_call(backend, level):
    worker, admin = backend.limiter(limits=rpm(100)), backend.limiter(limits=rpm(100))
    take(worker)
    admin.set_limits(rpm(5), **LEVELS[level])
    # The worker's cache is still full of the old; the bucket tells it.
    assert capacity(worker) == 5
    assert worker.available("alice", "gpt-4") == {"rpm": 4}
    admin.delete_limits(**LEVELS[level])
    assert admin.available("alice", "gpt-4") == {"rpm": 4}
    assert admin.check("alice", "gpt-4", {"rpm": 1}).limits[0].capacity == 100


@pytest.mark.parametrize("level", ["resource", "system"])
def test_a_changed_default_reaches_a_busy_bucket_within_the_life_of_the_cache(backend, level, time):
    admin, worker = backend.limiter(), backend.limiter(config_ttl=60)
    admin.set_limits(rpm(600), **LEVELS[level])
    assert capacity(worker) == 600
    admin.set_limits(rpm(6), **LEVELS[level])
    admitted = []
    for _ in range(30):
        time.advance(10)
        try:
            admitted.append(capacity(worker))
        except RateLimitExceeded:
            admitted.append(6)
    assert set(admitted[6:]) == {6}


def test_a_bucket_first_seen_by_a_cached_default_follows_a_change_as_soon_as_the_others(
    backend, time
):
    admin, worker = backend.limiter(), backend.limiter(config_ttl=60)
    admin.set_limits(rpm(600), resource="gpt-4")
    take(admin, entity="late")
    take(worker, entity="early")
    admin.set_limits(rpm(6), resource="gpt-4")
    time.advance(30)
    assert capacity(worker, entity="late") == 600
    time.advance(31)
    take(worker, entity="late")
    time.advance(1)
    assert capacity(worker, entity="late") == 6


def test_the_client_that_changes_a_default_follows_it_at_once(limiter):
    limiter.set_limits(rpm(600), resource="gpt-4")
    take(limiter)
    limiter.set_limits(rpm(6), resource="gpt-4")
    assert capacity(limiter) == 6


def test_a_changed_limit_is_compared_beside_a_write_not_before_it(backend, time):
    limiter = backend.limiter(limits=rpm(5), config_ttl=60)
    take(limiter)
    time.advance(60)
    with limiter.sending() as sent:
        take(limiter)
    assert sorted(sent) == ["BatchGetItem", "UpdateItem"]
    with limiter.sending() as sent:
        take(limiter)
    assert sent == ["UpdateItem"]


def test_a_lowered_limit_keeps_what_was_drawn_and_cuts_the_rest(limiter):
    limiter.set_limits(rpm(10), resource="gpt-4")
    take(limiter, 4)
    limiter.set_limits(rpm(8), resource="gpt-4")
    take(limiter)
    assert limiter.available("alice", "gpt-4") == {"rpm": 5}
    limiter.set_limits(rpm(3), resource="gpt-4")
    take(limiter)
    assert limiter.available("alice", "gpt-4") == {"rpm": 2}


def test_a_raised_limit_is_not_filled_at_once(limiter, time):
    limiter.set_limits(rpm(10), entity_id="alice", resource="gpt-4")
    take(limiter, 10)
    limiter.set_limits(rpm(60), entity_id="alice", resource="gpt-4")
    assert limiter.available("alice", "gpt-4") == {"rpm": 0}
    time.advance(1)
    assert limiter.available("alice", "gpt-4") == {"rpm": 1}
    time.advance(600)
    assert limiter.available("alice", "gpt-4") == {"rpm": 60}


def test_a_new_limit_starts_full_and_a_removed_one_is_gone(limiter):
    where = LEVELS["entity"]
    limiter.set_limits(rpm(10), **where)
    take(limiter, 10)
    limiter.set_limits([*rpm(10), Limit.per_minute("tpm", 100)], **where)
    assert limiter.available("alice", "gpt-4") == {"rpm": 0, "tpm": 100}
    with limiter.acquire("alice", "gpt-4", {"tpm": 1}):
        pass
    limiter.set_limits([Limit.per_minute("tpm", 100)], **where)
    assert limiter.available("alice", "gpt-4") == {"tpm": 99}
    with pytest.raises(ValidationError, match="'rpm'"):
        take(limiter)
    limiter.set_limits(rpm(10), **where)
    assert limiter.available("alice", "gpt-4") == {"rpm": 10}


def test_clients_that_know_how_busy_a_bucket_is_survive_a_change_of_its_limits(backend, time):
    one, other = backend.limiter(limits=rpm(600)), backend.limiter(limits=rpm(600))
    for _ in range(4):
        take(one)
        take(other)
        time.advance(0.3)
    for limits in ([*rpm(600), Limit.per_minute("tpm", 100)], rpm(600)):
        one.set_limits(limits, **LEVELS["entity"])
        for _ in range(4):
            take(other)
            take(one)
            time.advance(0.3)


def test_a_limit_that_an_acquire_names_and_the_bucket_lacks_is_looked_for_in_the_store(backend):
    worker, admin = backend.limiter(limits=rpm(10)), backend.limiter()
    take(worker)
    admin.set_limits([*rpm(10), Limit.per_minute("tpm", 100)], resource="gpt-4")
    with worker.acquire("alice", "gpt-4", {"tpm": 30}):
        pass
    assert worker.available("alice", "gpt-4") == {"rpm": 9, "tpm": 70}


def test_deleting_the_only_limits_leaves_none(limiter):
    limiter.set_limits(rpm(5), resource="gpt-4")
    assert limiter.resolve_limits("alice", "gpt-4").level == "resource"
    limiter.delete_limits(resource="gpt-4")
    with pytest.raises(LimitsNotFound):
        limiter.resolve_limits("alice", "gpt-4")


def test_the_systems_policy_is_stored_with_or_without_limits(limiter):
    limiter.set_limits([], on_unavailable="allow")
    assert limiter.get_limits().on_unavailable == "allow"
    assert limiter.get_limits().limits == ()
    limiter.set_limits(rpm(5), on_unavailable="block")
    assert limiter.get_limits().on_unavailable == "block"
    assert limiter.resolve_limits("alice", "gpt-4").on_unavailable == "block"


BAD = {
    "no limits": ([], {}),
    "no limit objects": (["rpm"], {}),
    "a limit twice": ([*rpm(1), *rpm(2)], {}),
    "too many": ([Limit.per_minute(f"l{i}", 1) for i in range(17)], {}),
    "a policy below the system": (rpm(1), {"resource": "gpt-4", "on_unavailable": "allow"}),
    "another policy": (rpm(1), {"on_unavailable": "maybe"}),
    "an entity that is none": (rpm(1), {"entity_id": "a#b"}),
    "a resource that is none": (rpm(1), {"resource": ""}),
    "the name for all resources": (rpm(1), {"resource": "_default_"}),
}


@pytest.mark.parametrize("what", BAD)
def test_limits_that_can_never_be_right_are_refused_before_anything_is_sent(limiter, what):
    limits, where = BAD[what]
    with limiter.sending() as sent, pytest.raises(ValidationError):
        limiter.set_limits(limits, **where)
    assert sent == []
