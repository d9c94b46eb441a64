"""No answer from the table: the caller's policy, soon, and visibly."""

from __future__ import annotations

import pytest

from headgate import BreakerState, Limit, RateLimiterUnavailable, RateLimitExceeded

RPM = [Limit.per_minute("rpm", 10)]
ONE = {"rpm": 1}


def take(limiter, **options):
    with limiter.acquire("alice", "gpt-4", ONE, **options) as lease:
        return lease


@pytest.mark.parametrize("constructor", ["block", "allow"])
@pytest.mark.parametrize("stored", [None, "block", "allow"])
@pytest.mark.parametrize("call", [None, "block", "allow"])
def test_the_call_goes_before_the_stored_policy_and_that_before_the_constructor(
    backend, call, stored, constructor
):
    limiter = backend.limiter(limits=RPM, on_unavailable=constructor)
    if stored:
        backend.limiter().set_limits([], on_unavailable=stored)
    take(limiter)
    limiter.cut()
    if (call or stored or constructor) == "allow":
        assert take(limiter, on_unavailable=call).degraded
    else:
        with pytest.raises(RateLimiterUnavailable) as caught:
            take(limiter, on_unavailable=call)
        assert caught.value.reason == "the cable is cut"


def test_a_degraded_lease_says_so_takes_nothing_and_gives_nothing_back(backend):
    events = []
    limiter = backend.limiter(limits=RPM, on_event=events.append)
    take(limiter)
    limiter.cut()
    with (
        pytest.raises(KeyError),
        limiter.acquire("alice", "gpt-4", ONE, on_unavailable="allow") as lease,
    ):
        assert lease.degraded
        assert lease.degraded_reason == "the cable is cut"
        assert lease.consumed == {}
        assert lease.limits == ()
        assert lease.headers() == {}
        limiter.mend()
        with limiter.sending() as sent:
            lease.consume(rpm=1)
            assert lease.adjust(rpm=5) is False
            lease.release(rpm=1)
            lease.release()
        assert sent == []
        raise KeyError
    assert [event.name for event in events] == ["admitted", "degraded"]
    assert limiter.available("alice", "gpt-4") == {"rpm": 9}


def test_an_outage_from_the_very_first_request_follows_the_policy_too(backend):
    limiter = backend.limiter(namespace_id=None, on_unavailable="allow")
    limiter.cut()
    lease = take(limiter)
    assert lease.degraded
    assert lease.consumed == {}


def test_a_request_without_an_answer_is_repeated_once_by_default(backend):
    limiter = backend.limiter(limits=RPM)
    take(limiter)
    limiter.cut()
    with limiter.sending() as sent, pytest.raises(RateLimiterUnavailable):
        take(limiter)
    assert sent == ["UpdateItem"] * 2


@pytest.mark.parametrize("attempts", [1, 3])
def test_the_number_of_attempts_is_configurable(backend, attempts):
    limiter = backend.limiter(limits=RPM, attempts=attempts)
    take(limiter)
    limiter.cut()
    with limiter.sending() as sent, pytest.raises(RateLimiterUnavailable):
        take(limiter)
    assert sent == ["UpdateItem"] * attempts


def test_five_failures_open_the_breaker_and_then_nothing_is_sent(backend, caplog):
    events = []
    limiter = backend.limiter(limits=RPM, attempts=1, on_event=events.append)
    take(limiter)
    limiter.cut()
    for count in range(5):
        assert limiter.breaker is BreakerState.CLOSED, count
        assert take(limiter, on_unavailable="allow").degraded
    assert limiter.breaker is BreakerState.OPEN
    with limiter.sending() as sent:
        assert take(limiter, on_unavailable="allow").degraded_reason == "the breaker is open"
        with pytest.raises(RateLimiterUnavailable, match="breaker is open"):
            take(limiter)
        with pytest.raises(RateLimiterUnavailable):
            limiter.available("alice", "gpt-4")
    assert sent == []
    assert [event.name for event in events].count("breaker_opened") == 1
    assert len([record for record in caplog.records if "breaker" in record.message]) == 1


def test_after_ten_seconds_a_trial_goes_through_and_two_close_the_breaker(backend, time):
    events = []
    limiter = backend.limiter(limits=RPM, attempts=1, on_event=events.append)
    take(limiter)
    limiter.cut()
    for _ in range(5):
        take(limiter, on_unavailable="allow")
    limiter.mend()
    time.advance(9.999)
    assert take(limiter, on_unavailable="allow").degraded
    time.advance(0.001)
    assert not take(limiter).degraded
    assert limiter.breaker is BreakerState.HALF_OPEN
    assert not take(limiter).degraded
    assert limiter.breaker is BreakerState.CLOSED
    assert events[-2].name == "breaker_closed"


def test_a_trial_that_fails_doubles_the_wait(backend, time):
    limiter = backend.limiter(limits=RPM, attempts=1)
    take(limiter)
    limiter.cut()
    for _ in range(5):
        take(limiter, on_unavailable="allow")
    time.advance(10)
    take(limiter, on_unavailable="allow")
    assert limiter.breaker is BreakerState.OPEN
    limiter.mend()
    time.advance(19.999)
    assert take(limiter, on_unavailable="allow").degraded
    time.advance(0.001)
    assert not take(limiter).degraded


def test_rejections_do_not_open_the_breaker(backend):
    limiter = backend.limiter(limits=RPM, rejection_memory=0)
    for _ in range(10):
        take(limiter)
    for _ in range(20):
        with pytest.raises(RateLimitExceeded):
            take(limiter)
    assert limiter.breaker is BreakerState.CLOSED


def test_a_bucket_that_expired_is_made_again_full(backend, time):
    limiter = backend.limiter(limits=RPM)
    take(limiter)
    backend.expire("alice", "gpt-4")
    with limiter.sending() as sent:
        lease = take(limiter)
    assert sent == ["UpdateItem", "BatchGetItem", "PutItem"]
    assert lease.limits[0].available == 9
