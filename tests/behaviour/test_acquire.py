"""Admission and rejection: what an acquire costs, takes and says."""

from __future__ import annotations

import pytest

from headgate import Limit, LimitsNotFound, RateLimitExceeded, Request, ValidationError

RPM = Limit.per_minute("rpm", 10)  # one in 6 seconds
TPM = Limit.per_minute("tpm", 1_000)
ONE = {"rpm": 1}


@pytest.fixture
def limiter(backend):
    return backend.limiter(limits=[RPM])


def take(limiter, amount=1, entity="alice", **options):
    with limiter.acquire(entity, "gpt-4", {"rpm": amount}, **options) as lease:
        return lease


def refused(limiter, consume, entity="alice", **options):
    with (
        pytest.raises(RateLimitExceeded) as caught,
        limiter.acquire(entity, "gpt-4", consume, **options),
    ):
        pass
    return caught.value


def test_the_first_acquire_of_an_entity_draws_from_a_full_bucket(limiter):
    lease = take(limiter, 3)
    assert lease.consumed == {"rpm": 3}
    assert limiter.available("alice", "gpt-4") == {"rpm": 7}
    assert not lease.degraded


def test_an_acquire_that_makes_the_bucket_is_three_requests(limiter):
    take(limiter, entity="bob")
    with limiter.sending() as sent:
        take(limiter, entity="alice")
    assert sent == ["UpdateItem", "BatchGetItem", "PutItem"]


def test_an_acquire_by_a_new_client_reads_the_configuration_once(backend, limiter):
    take(limiter)
    backend.time.advance(30)
    newcomer = backend.limiter(limits=[RPM])
    with newcomer.sending() as sent:
        take(newcomer)
    assert sent == ["BatchGetItem", "UpdateItem"]


def test_an_acquire_of_an_entity_that_others_know_is_one_request(backend, limiter):
    take(limiter, entity="alice")
    other = backend.limiter(limits=[RPM])
    take(other, entity="bob")
    backend.time.advance(30)
    with other.sending() as sent:
        take(other, entity="alice")
    assert sent == ["UpdateItem"]


def test_a_warm_acquire_is_one_request(limiter):
    take(limiter)
    with limiter.sending() as sent:
        take(limiter)
    assert sent == ["UpdateItem"]


def test_an_acquire_of_a_drained_and_refilled_bucket_is_one_request(limiter, time):
    take(limiter, 10)
    refused(limiter, ONE)
    time.advance(12)
    with limiter.sending() as sent:
        take(limiter, 2)
    assert sent == ["UpdateItem"]
    refused(limiter, ONE)


def test_an_acquire_of_an_idle_full_bucket_is_one_request(limiter, time):
    take(limiter)
    time.advance(45)
    with limiter.sending() as sent:
        take(limiter, 10)
    assert sent == ["UpdateItem"]


def test_a_known_rejection_is_no_request(limiter):
    take(limiter, 10)
    first = refused(limiter, ONE)
    with limiter.sending() as sent:
        again = refused(limiter, ONE)
        larger = refused(limiter, {"rpm": 2})
    assert sent == []
    assert (first.remembered, again.remembered, larger.remembered) == (False, True, True)
    assert again.retry_after == first.retry_after == 6.0
    assert larger.retry_after == 12.0


def test_a_remembered_rejection_counts_down_and_is_forgotten_after_a_second(limiter, time):
    take(limiter, 10)
    refused(limiter, ONE)
    time.advance(0.999)
    with limiter.sending() as sent:
        assert refused(limiter, ONE).retry_after == 5.001
    assert sent == []
    time.advance(0.001)
    with limiter.sending() as sent:
        assert refused(limiter, ONE).retry_after == 5.0
    assert sent == ["UpdateItem"]


def test_a_remembered_rejection_ends_when_the_amount_is_there(backend, time):
    limiter = backend.limiter(limits=[Limit.per_second("rpm", 10)])
    take(limiter, 10)
    assert refused(limiter, ONE).retry_after == 0.1
    time.advance(0.1)
    take(limiter)


def test_a_smaller_request_than_a_remembered_one_is_sent(limiter):
    take(limiter, 8)
    refused(limiter, {"rpm": 3})
    take(limiter, 2)


def test_a_limit_that_has_refilled_is_not_refused_for_the_sake_of_another(backend, time):
    fast, slow = Limit.per_second("fast", 10), Limit.per_minute("slow", 1)
    limiter = backend.limiter(limits=[fast, slow])
    with limiter.acquire("alice", "gpt-4", {"fast": 10, "slow": 1}):
        pass
    refused(limiter, {"fast": 1, "slow": 1})
    time.advance(0.1)
    with limiter.acquire("alice", "gpt-4", {"fast": 1}):
        pass


def test_without_memory_every_rejection_is_asked_for(backend):
    limiter = backend.limiter(limits=[RPM], rejection_memory=0)
    take(limiter, 10)
    refused(limiter, ONE)
    with limiter.sending() as sent:
        refused(limiter, ONE)
    assert sent == ["UpdateItem"]


def test_a_rejection_carries_the_status_of_every_limit(backend):
    limiter = backend.limiter(limits=[RPM, TPM])
    with limiter.acquire("alice", "gpt-4", {"rpm": 1, "tpm": 900}):
        pass
    error = refused(limiter, {"tpm": 200})
    assert (error.entity_id, error.resource) == ("alice", "gpt-4")
    rpm, tpm = error.limits
    assert (rpm.name, rpm.capacity, rpm.available, rpm.requested, rpm.short) == (
        "rpm",
        10,
        9,
        0,
        False,
    )
    assert (tpm.name, tpm.capacity, tpm.available, tpm.requested, tpm.short) == (
        "tpm",
        1000,
        100,
        200,
        True,
    )
    assert error.violations == (tpm,)
    assert error.retry_after == tpm.retry_after == 6.0


def test_a_rejection_takes_nothing_of_any_limit(backend):
    limiter = backend.limiter(limits=[RPM, TPM])
    with limiter.acquire("alice", "gpt-4", {"rpm": 1, "tpm": 900}):
        pass
    refused(limiter, {"rpm": 1, "tpm": 200})
    assert limiter.available("alice", "gpt-4") == {"rpm": 9, "tpm": 100}


def test_retry_after_is_when_it_passes_and_not_before(limiter, time):
    take(limiter, 10)
    wait = refused(limiter, {"rpm": 3}).retry_after
    time.advance(wait - 0.001)
    refused(limiter, {"rpm": 3})
    time.advance(0.001)
    take(limiter, 3)


def test_a_request_larger_than_the_capacity_is_told_that_waiting_does_not_help(limiter):
    assert refused(limiter, {"rpm": 11}).retry_after is None
    take(limiter)
    error = refused(limiter, {"rpm": 11}, max_wait=60)
    assert error.retry_after is None
    assert "waiting will not help" in str(error)


def test_a_quota_without_refill_is_spent_for_good_but_for_what_is_released(backend, time):
    limiter = backend.limiter(
        limits=[Limit.custom("credits", capacity=5, refill_amount=0, refill_period=1)]
    )
    with limiter.acquire("alice", "gpt-4", {"credits": 5}) as lease:
        pass
    time.advance(30 * 86_400)
    assert refused(limiter, {"credits": 1}).retry_after is None
    lease.release(credits=2)
    with limiter.acquire("alice", "gpt-4", {"credits": 2}):
        pass
    assert limiter.available("alice", "gpt-4") == {"credits": 0}


def test_idle_time_fills_a_bucket_once_and_no_more(limiter, time):
    take(limiter, 10)
    time.advance(3600)
    for _ in range(10):
        take(limiter)
    refused(limiter, ONE)


def test_clients_share_one_bucket_exactly(backend):
    clients = [backend.limiter(limits=[RPM]) for _ in range(3)]
    admitted = 0
    for turn in range(24):
        try:
            take(clients[turn % 3])
        except RateLimitExceeded:
            continue
        admitted += 1
    assert admitted == 10


def test_a_wrong_guess_costs_a_second_write_and_no_token(backend, limiter, time):
    take(limiter)
    other = backend.limiter(limits=[RPM])
    take(other, 9)
    time.advance(12)
    # The first client expects a full bucket; two tokens are in it.
    with limiter.sending() as sent:
        take(limiter)
    assert sent == ["UpdateItem", "UpdateItem"]
    assert limiter.available("alice", "gpt-4") == {"rpm": 1}


def test_limits_of_a_call_win_over_all_others(backend, limiter):
    own = [Limit.per_minute("rpm", 2)]
    take(limiter, 2, limits=own)
    assert refused(limiter, ONE, limits=own).limits[0].capacity == 2


def test_limits_of_a_call_reach_a_bucket_that_has_others(limiter):
    take(limiter, 4)
    lease = take(limiter, 1, limits=[Limit.per_minute("rpm", 100)])
    assert lease.limits[0].capacity == 100
    assert lease.limits[0].available == 5


def test_an_entity_without_limits_anywhere_is_an_error_that_says_what_to_do(backend):
    limiter = backend.limiter()
    with pytest.raises(LimitsNotFound, match=r"'alice'.*'gpt-4'.*set_limits"):
        take(limiter)


def test_max_wait_waits_and_passes(backend, time):
    time.flow()
    limiter = backend.limiter(limits=[Limit.per_second("rpm", 1000, burst=1)])
    for _ in range(5):
        take(limiter, max_wait=30)


def test_max_wait_shorter_than_retry_after_is_a_rejection_at_once(limiter):
    take(limiter, 10)
    with limiter.sending() as sent:
        error = refused(limiter, ONE, max_wait=5.9)
    assert error.retry_after == 6.0
    assert len(sent) == 1


def test_events_tell_what_happened_without_entity_ids(backend):
    events = []
    limiter = backend.limiter(limits=[RPM], on_event=events.append)
    take(limiter, 10)
    refused(limiter, ONE)
    refused(limiter, ONE)
    assert [(event.name, event.resource) for event in events] == [
        ("admitted", "gpt-4"),
        ("rejected", "gpt-4"),
        ("rejected", "gpt-4"),
    ]
    assert [event.attributes.get("remembered") for event in events] == [None, False, True]
    assert "alice" not in repr(events)


def test_a_callback_that_fails_does_not_fail_the_acquire(backend, caplog):
    def broken(_event):
        raise RuntimeError("no metrics today")

    limiter = backend.limiter(limits=[RPM], on_event=broken)
    assert take(limiter).consumed == {"rpm": 1}
    assert "no metrics today" in caplog.text


BAD = {
    "a float": ({"rpm": 1.0}, {}),
    "a fraction": ({"rpm": 0.0123}, {}),
    "a negative amount": ({"rpm": -1}, {}),
    "nothing of a limit": ({"rpm": 0}, {}),
    "a truth value": ({"rpm": True}, {}),
    "text": ({"rpm": "1"}, {}),
    "no amount": ({"rpm": None}, {}),
    "no limit": ({}, {}),
    "no mapping": (["rpm"], {}),
    "more than there can be": ({"rpm": 10**12 + 1}, {}),
    "a negative wait": (ONE, {"max_wait": -1}),
    "a wait that is no number": (ONE, {"max_wait": "1"}),
    "an endless wait": (ONE, {"max_wait": float("nan")}),
    "another policy": (ONE, {"on_unavailable": "maybe"}),
    "a name that the call's limits lack": ({"tpm": 1}, {"limits": [RPM]}),
    "limits that are none": (ONE, {"limits": []}),
    "limits that are no limits": (ONE, {"limits": ["rpm"]}),
    "a limit twice": (ONE, {"limits": [RPM, Limit.per_hour("rpm", 5)]}),
}


@pytest.mark.parametrize("what", BAD)
def test_input_that_can_never_be_right_is_refused_before_anything_is_sent(limiter, what):
    consume, options = BAD[what]
    with (
        limiter.sending() as sent,
        pytest.raises(ValidationError),
        limiter.acquire("alice", "gpt-4", consume, **options),
    ):
        pass
    assert sent == []


@pytest.mark.parametrize(
    "bad", ["", "a#b", "#STATE", "x" * 300, " alice", "a\nb", "a\x00", 7, None]
)
def test_ids_that_can_never_be_right_are_refused_before_anything_is_sent(limiter, bad):
    with limiter.sending() as sent:
        for entity, resource in ((bad, "gpt-4"), ("alice", bad)):
            with (
                pytest.raises(ValidationError) as caught,
                limiter.acquire(entity, resource, ONE),
            ):
                pass
            assert repr(bad) in str(caught.value)
    assert sent == []


def test_the_name_for_all_resources_is_no_resource(limiter):
    with pytest.raises(ValidationError, match="_default_"), limiter.acquire("a", "_default_", ONE):
        pass


def test_a_limit_that_the_bucket_does_not_have_is_refused_by_name(limiter):
    take(limiter)
    with (
        limiter.sending() as sent,
        pytest.raises(ValidationError, match=r"'rmp'.*rpm"),
        limiter.acquire("alice", "gpt-4", {"rmp": 1}),
    ):
        pass
    assert "UpdateItem" not in sent
    assert limiter.available("alice", "gpt-4") == {"rpm": 9}


def test_several_buckets_are_taken_from_or_none(limiter):
    take(limiter, 10, entity="10.0.0.1")
    requests = [Request("alice", "gpt-4", {"rpm": 2}), Request("10.0.0.1", "gpt-4", ONE)]
    with pytest.raises(RateLimitExceeded) as caught, limiter.acquire_all(requests):
        pass
    assert caught.value.entity_id == "10.0.0.1"
    assert limiter.available("alice", "gpt-4") == {"rpm": 10}
    with limiter.acquire("alice", "gpt-4", ONE, also=[Request("bob", "gpt-4", {"rpm": 2})]):
        pass
    assert limiter.available("alice", "gpt-4") == {"rpm": 9}
    assert limiter.available("bob", "gpt-4") == {"rpm": 8}
