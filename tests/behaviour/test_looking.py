"""Looking without touching."""

from __future__ import annotations

import pytest

from headgate import Limit, LimitsNotFound, RateLimitExceeded, ValidationError

RPM = Limit.per_minute("rpm", 10)
TPM = Limit.per_minute("tpm", 1_000)
READS = {"GetItem", "BatchGetItem", "TransactGetItems", "Query"}


@pytest.fixture
def limiter(backend):
    return backend.limiter(limits=[RPM, TPM])


def take(limiter, **consume):
    with limiter.acquire("alice", "gpt-4", consume):
        pass


def test_looking_only_reads_and_changes_nothing(backend, limiter):
    take(limiter, rpm=4)
    with limiter.sending() as sent:
        for _ in range(20):
            limiter.check("alice", "gpt-4", {"rpm": 5})
            limiter.available("alice", "gpt-4")
            limiter.time_until_available("alice", "gpt-4", {"rpm": 9})
    assert set(sent) <= READS
    assert len(sent) == 60
    assert backend.limiter(limits=[RPM, TPM]).available("alice", "gpt-4")["rpm"] == 6


def test_looking_at_an_entity_that_was_never_seen_makes_no_bucket(backend, limiter):
    assert limiter.available("nobody", "gpt-4") == {"rpm": 10, "tpm": 1000}
    assert limiter.check("nobody", "gpt-4", {"rpm": 10}).allowed
    with limiter.sending() as sent, limiter.acquire("nobody", "gpt-4", {"rpm": 1}):
        pass
    assert "PutItem" in sent


def test_a_check_says_what_an_acquire_would_be_told(limiter):
    take(limiter, rpm=8)
    passes = limiter.check("alice", "gpt-4", {"rpm": 2})
    assert passes.allowed
    assert passes.retry_after == 0.0
    assert "Retry-After" not in passes.headers()

    fails = limiter.check("alice", "gpt-4", {"rpm": 3, "tpm": 10})
    with (
        pytest.raises(RateLimitExceeded) as caught,
        limiter.acquire("alice", "gpt-4", {"rpm": 3, "tpm": 10}),
    ):
        pass
    assert not fails.allowed
    assert fails.limits == caught.value.limits
    assert fails.retry_after == caught.value.retry_after == 6.0
    assert fails.headers()["Retry-After"] == "6"


def test_the_time_until_available_is_that_of_the_slowest_limit(limiter):
    take(limiter, rpm=10, tpm=1000)
    assert limiter.time_until_available("alice", "gpt-4", {"rpm": 1}) == 6.0
    assert limiter.time_until_available("alice", "gpt-4", {"rpm": 1, "tpm": 200}) == 12.0
    assert limiter.time_until_available("alice", "gpt-4", {"tpm": 1001}) is None
    assert limiter.time_until_available("bob", "gpt-4", {"rpm": 10}) == 0.0


def test_available_counts_up_as_time_passes_and_stops_at_the_capacity(limiter, time):
    take(limiter, rpm=10)
    seen = []
    for _ in range(4):
        seen.append(limiter.available("alice", "gpt-4")["rpm"])
        time.advance(21)
    assert seen == [0, 3, 7, 10]


def test_a_debt_shows_as_less_than_nothing_and_shorts_only_who_asks_for_it(limiter):
    with limiter.acquire("alice", "gpt-4", {"tpm": 1}) as lease:
        lease.adjust(tpm=1999)
    assert limiter.available("alice", "gpt-4") == {"rpm": 10, "tpm": -1000}
    assert limiter.check("alice", "gpt-4", {"rpm": 1}).allowed
    assert not limiter.check("alice", "gpt-4", {"rpm": 1, "tpm": 1}).allowed


@pytest.mark.parametrize("consume", [{}, {"rpm": 0}, {"rpm": 1.5}, {"rmp": 1}, None])
def test_a_check_of_what_can_never_be_right_is_refused(limiter, consume):
    for look in (limiter.check, limiter.time_until_available):
        with pytest.raises(ValidationError):
            look("alice", "gpt-4", consume)
    with pytest.raises(ValidationError):
        limiter.available("a#b", "gpt-4")


def test_looking_where_no_limits_are_is_an_error(backend):
    with pytest.raises(LimitsNotFound):
        backend.limiter().available("alice", "gpt-4")
