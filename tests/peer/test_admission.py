"""What the closest system admits too much or too little of. Each test is one of its scenarios."""

from __future__ import annotations

import pytest

from headgate import Limit, RateLimitExceeded, ValidationError
from headgate.bucket import level
from headgate.clock import Clock, system_time
from headgate.limit import RESERVED_NAMES
from headgate.schema import BucketRef

HOUR = 3_600_000
REF = BucketRef("peer-tests_", "alice", "gpt-4")


def take(limiter, **consume):
    with limiter.acquire("alice", "gpt-4", consume) as lease:
        return lease


def admitted(limiter, times, **consume):
    """How many of so many acquires pass."""
    count = 0
    for _ in range(times):
        try:
            take(limiter, **consume)
        except RateLimitExceeded:
            continue
        count += 1
    return count


def item(limiter, ref=REF):
    client, table = limiter.limiter._driver._client, limiter.limiter._core.table
    return client.get_item(TableName=table, Key=ref.key(0), ConsistentRead=True)["Item"]


@pytest.mark.parametrize("off", [HOUR, -HOUR], ids=["ahead", "behind"])
def test_one_host_an_hour_ahead(make, off):
    limits = [Limit.per_hour("rpm", 60)]
    good = make(clock=Clock(), limits=limits)
    wrong = make(clock=Clock(lambda: system_time() + off), limits=limits)
    # An hour ahead there would be another 60 to take.
    assert admitted(good, 20, rpm=2) == 20
    assert admitted(wrong, 40, rpm=1) in (19, 20)  # a corrected clock may be a second late
    assert abs(wrong.clock_offset - off / 1000) < 10
    # And nobody is locked out for the hour to come.
    assert good.time_until_available("alice", "gpt-4", {"rpm": 1}) <= 60
    assert wrong.time_until_available("alice", "gpt-4", {"rpm": 1}) <= 63


def test_one_host_an_hour_ahead_waits_no_longer_than_it_was_told(make):
    limits = [Limit.per_hour("rpm", 60)]
    take(make(clock=Clock(), limits=limits), rpm=60)
    wrong = make(clock=Clock(lambda: system_time() + HOUR), limits=limits)
    with (
        pytest.raises(RateLimitExceeded) as caught,
        wrong.acquire("alice", "gpt-4", {"rpm": 1}, max_wait=5),
    ):
        pass
    assert caught.value.retry_after > 5


def test_per_day_50_on_a_bucket_refilled_each_second(make, time):
    limiter = make(limits=[Limit.per_second("rps", 5), Limit.per_day("rpd", 50)])
    take(limiter, rps=1, rpd=50)
    for _ in range(600):
        time.advance(1)
        take(limiter, rps=1)
    bucket = limiter.limiter._core.views.get(REF).bucket
    # 50,000 millitokens in 86,400 seconds.
    assert level(bucket.balance(bucket.limits.positions["rpd"]), time()) == 347
    time.advance(3_000)
    assert limiter.available("alice", "gpt-4")["rpd"] == 2


@pytest.mark.parametrize("latency", [1, 10])
def test_one_client_with_latency_gets_its_full_rate(make, time, latency):
    limiter = make(limits=[Limit.per_second("rps", 20, burst=5)])

    def slow(call, send):
        time.advance(latency / 2000)
        outcome = send(call)
        time.advance(latency / 2000)
        return outcome

    limiter.wire = slow
    take(limiter, rps=5)
    start, count = time(), 0
    while time() < start + 10_000:
        try:
            take(limiter, rps=1)
            count += 1
        except RateLimitExceeded as error:
            time.advance(error.retry_after)
    assert 198 <= count <= 202


def test_adjust_lands_between_read_and_write(make):
    limits = [Limit.per_hour("tpm", 100)]
    limiter, other = make(limits=limits), make(limits=limits)
    lease = take(other, tpm=10)
    take(limiter, tpm=10)

    def meanwhile(call, send):
        limiter.wire = None
        lease.adjust(tpm=500)
        return send(call)

    limiter.wire = meanwhile
    with pytest.raises(RateLimitExceeded) as caught:
        take(limiter, tpm=1)
    assert caught.value.limits[0].available == -420
    assert limiter.available("alice", "gpt-4") == {"tpm": -420}


def test_lease_consume_in_a_lease(make):
    limits = [Limit.per_hour("tpm", 500)]
    limiter, other = make(limits=limits), make(limits=limits)
    with limiter.acquire("alice", "gpt-4", {"tpm": 100}) as lease:
        take(other, tpm=390)
        with pytest.raises(RateLimitExceeded) as caught:
            lease.consume(tpm=400)
        assert caught.value.limits[0].available == 10
        lease.consume(tpm=10)
    assert limiter.available("alice", "gpt-4") == {"tpm": 0}


def test_lowering_a_resources_default_600_to_6_a_minute(make, time):
    admin, worker = make(), make()
    admin.set_limits([Limit.per_minute("rpm", 600)], resource="gpt-4")
    take(worker, rpm=600)
    admin.set_limits([Limit.per_minute("rpm", 6)], resource="gpt-4")
    count = 0
    for _ in range(120):
        time.advance(5)
        count += admitted(worker, 3, rpm=5)
    # A minute at the old rate while the cache lives, a capacity, and nine minutes at the new.
    assert count * 5 <= 600 + 6 + 9 * 6


def test_bucket_ttl_forgives_no_debt(make, time):
    limiter = make(limits=[Limit.per_minute("rpm", 60), Limit.per_minute("tpm", 1_000)])
    with limiter.acquire("alice", "gpt-4", {"tpm": 1_000}) as lease:
        lease.adjust(tpm=99_000)
    repaid = time() // 1000 + 99 * 60
    for _ in range(5):
        # Others go on with a limit that is in no debt.
        time.advance(60)
        take(limiter, rpm=10)
        assert int(item(limiter)["ttl"]["N"]) >= repaid + 60
    assert limiter.available("alice", "gpt-4")["tpm"] == -94_000


def test_float_amount(make):
    limiter = make(limits=[Limit.per_day("usd", 100)])
    with limiter.acquire("alice", "gpt-4", {"usd": 1}) as lease:
        with limiter.sending() as sent, pytest.raises(ValidationError, match=r"0\.0123"):
            lease.adjust(usd=0.0123)
        assert sent == []
    with pytest.raises(ValidationError, match=r"0\.5"):
        take(limiter, usd=0.5)
    assert take(limiter, usd=1).consumed == {"usd": 1}
    assert limiter.available("alice", "gpt-4") == {"usd": 98}


def test_misspelled_limit_name_in_consume(make):
    limiter = make(limits=[Limit.per_minute("rpm", 10)])
    for _ in range(2):
        with pytest.raises(ValidationError, match=r"'rmp'.*rpm"):
            take(limiter, rmp=1)
        with pytest.raises(ValidationError, match=r"'rmp'.*rpm"):
            take(limiter, rpm=1, rmp=1)
    assert limiter.available("alice", "gpt-4") == {"rpm": 10}


@pytest.mark.parametrize(
    "name", ["ttl", "window", "resource", "entity_id", "wcu", "version", "shard_count", "name"]
)
def test_limit_named_like_an_attribute(name):
    assert name in RESERVED_NAMES
    with pytest.raises(ValidationError, match="reserved"):
        Limit.per_minute(name, 10)
