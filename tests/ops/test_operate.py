"""Reset and top-up: done once, by whoever, on all shards."""

from __future__ import annotations

import pytest

from headgate import Limit, RateLimitExceeded, ValidationError
from tests.behaviour.backends import split

LIMITS = [
    Limit.per_hour("rpm", 60),
    Limit.custom("quota", capacity=7, refill_amount=0, refill_period=1),
]


@pytest.fixture
def limiter(backend):
    made = backend.limiter()
    made.set_limits(LIMITS)
    return made


def take(limiter, entity="alice", **amounts):
    with limiter.acquire(entity, "gpt-4", amounts) as lease:
        return lease


@pytest.mark.parametrize("splits", [0, 2])
def test_a_reset_fills_all_limits_of_all_shards(limiter, splits):
    take(limiter, rpm=50, quota=7)
    split(limiter, splits)
    done = limiter.reset("alice", "gpt-4")
    assert (done.done, done.shards, dict(done.available)) == (
        True,
        2**splits,
        {"rpm": 60, "quota": 7},
    )
    assert take(limiter, rpm=60, quota=7).consumed == {"rpm": 60, "quota": 7}
    with pytest.raises(RateLimitExceeded):
        take(limiter, rpm=1)


def test_a_reset_forgives_a_debt(limiter):
    with limiter.acquire("alice", "gpt-4", {"rpm": 1}) as lease:
        lease.adjust(rpm=500)
    assert limiter.available("alice", "gpt-4")["rpm"] == -441
    limiter.reset("alice", "gpt-4")
    assert limiter.available("alice", "gpt-4")["rpm"] == 60


def test_other_clients_find_it_full_though_they_remember_a_rejection(backend, limiter, time):
    user = backend.limiter()
    take(user, rpm=60)
    with pytest.raises(RateLimitExceeded):
        take(user, rpm=60)
    limiter.reset("alice", "gpt-4")
    time.advance(1.1)
    assert take(user, rpm=60).consumed == {"rpm": 60}


@pytest.mark.parametrize("splits", [0, 2])
def test_a_top_up_adds_and_the_capacity_still_caps(limiter, splits):
    take(limiter, rpm=60, quota=7)
    split(limiter, splits)
    assert limiter.top_up("alice", "gpt-4", {"quota": 3, "rpm": 5}).done
    assert limiter.available("alice", "gpt-4") == {"rpm": 5, "quota": 3}
    limiter.top_up("alice", "gpt-4", {"quota": 1_000})
    assert limiter.available("alice", "gpt-4") == {"rpm": 5, "quota": 7}
    assert take(limiter, quota=7).consumed == {"quota": 7}
    with pytest.raises(RateLimitExceeded):
        take(limiter, quota=1)


def test_with_one_key_it_happens_once(backend, limiter):
    take(limiter, quota=7)
    first = limiter.top_up("alice", "gpt-4", {"quota": 2}, idempotency_key="ticket-17")
    again = backend.limiter().top_up("alice", "gpt-4", {"quota": 2}, idempotency_key="ticket-17")
    assert (first.done, again.done) == (True, False)
    assert limiter.available("alice", "gpt-4")["quota"] == 2
    assert [e.action for e in limiter.get_audit_events(entity_id="alice").events] == [
        "bucket_topped_up"
    ]


def test_a_key_is_free_again_after_a_day(limiter, time):
    take(limiter, quota=7)
    limiter.top_up("alice", "gpt-4", {"quota": 2}, idempotency_key="daily")
    time.advance(86_402)
    assert limiter.top_up("alice", "gpt-4", {"quota": 2}, idempotency_key="daily").done
    assert limiter.available("alice", "gpt-4")["quota"] == 4


def test_a_key_that_was_used_for_something_else_is_an_error(limiter):
    take(limiter, quota=7)
    limiter.top_up("alice", "gpt-4", {"quota": 2}, idempotency_key="ticket-17")
    with pytest.raises(ValidationError, match="something else"):
        limiter.reset("alice", "gpt-4", idempotency_key="ticket-17")
    with pytest.raises(ValidationError, match="something else"):
        limiter.top_up("alice", "gpt-4", {"quota": 3}, idempotency_key="ticket-17")


def test_a_bucket_that_is_not_there_is_full(limiter):
    done = limiter.reset("nobody", "gpt-4")
    assert (done.done, done.shards, dict(done.available)) == (True, 0, {})


@pytest.mark.parametrize("amounts", [{}, {"rpm": -1}, {"rpm": 1.5}, {"tpm": 1}])
def test_amounts_that_cannot_be_added_are_refused(limiter, amounts):
    take(limiter, rpm=1)
    with pytest.raises(ValidationError):
        limiter.top_up("alice", "gpt-4", amounts)
