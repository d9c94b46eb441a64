"""A bucket expires only once it is certainly full: its expiry forgives nothing."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st

from headgate import Limit, writes
from headgate.bucket import WCU, WHOLE, calculate_available, level
from headgate.effects import Answer
from headgate.limit import LimitSet
from headgate.schema import BucketRef, Decoder, bucket_item
from tests import strategies as some
from tests.simulation.engine import Engine

REF = BucketRef("namespace_1", "alice", "gpt-4")
# Rates that people use: with extreme ones a bucket takes longer to fill than DynamoDB can count.
limits = st.lists(
    st.builds(
        Limit,
        name=st.sampled_from(["rpm", "tpm", "rpd"]),
        capacity=st.integers(1, 1_000),
        refill_amount=st.integers(0, 1_000) | st.integers(1, 10),
        refill_period=st.sampled_from([1, 60, 3_600, 86_400]),
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda limit: limit.name,
).map(LimitSet)


@st.composite
def pairs(draw, now):
    """A bucket as it is, and as a client saw it: nearby, or not at all."""
    seen = draw(some.buckets(limits, st.just(WHOLE), now))
    moved = st.integers(-(10**6), 10**6) | st.just(0)
    tk = tuple(balance + draw(moved) for balance in seen.tk)
    return replace(seen, tk=tk), seen


def stored(actual, ttl=None):
    engine = Engine()
    item = bucket_item(REF, actual, ttl)
    engine.items[item["PK"]["S"], item["SK"]["S"]] = item
    return engine


def check(engine, now):
    """Whether what is stored may expire when it says so."""
    (item,) = engine.items.values()
    bucket = Decoder().bucket(item)
    refilling = all(rate.ra for rate in bucket.limits.rates)
    assert refilling or "ttl" not in item
    if "ttl" in item:
        moment = int(item["ttl"]["N"]) * 1000
        assert moment >= now
        for i, rate in enumerate(bucket.limits.rates):
            assert calculate_available(bucket.balance(i), moment) == rate.cp


@given(st.data(), some.times, st.booleans(), st.booleans())
def test_a_debit_leaves_an_expiry_after_every_limit_is_full(data, now, force, fresh):
    actual, seen = data.draw(pairs(now))
    amounts = tuple(data.draw(st.integers(0, 2 * rate.cp)) for rate in seen.limits.rates)
    assume(any(amounts))
    engine = stored(actual)
    call = writes.debit("table", REF, seen, amounts, now, force=force, fresh=fresh)
    if isinstance(engine.send(call), Answer):
        check(engine, now)


@given(st.data(), some.times)
def test_a_debit_of_what_was_just_seen_always_passes_if_it_is_there(data, now):
    bucket = data.draw(some.buckets(limits, st.just(WHOLE), now))
    bucket = replace(bucket, wcu_tk=WCU.cp)
    amounts = tuple(data.draw(st.integers(0, rate.cp)) for rate in bucket.limits.rates)
    assume(any(amounts))
    suffices = all(
        not asked or asked <= has for asked, has in zip(amounts, bucket.available(now), strict=True)
    )
    answer = stored(bucket).send(writes.debit("table", REF, bucket, amounts, now))
    assert isinstance(answer, Answer) == suffices


@given(st.data(), some.times)
def test_a_blind_debit_leaves_no_expiry(data, now):
    actual, seen = data.draw(pairs(now))
    amounts = tuple(data.draw(st.integers(1, 2 * rate.cp)) for rate in seen.limits.rates)
    engine = stored(actual, ttl=now // 1000 + 10)
    assert isinstance(engine.send(writes.debit_blind("table", REF, seen, amounts, now)), Answer)
    (item,) = engine.items.values()
    assert "ttl" not in item


@given(st.data(), some.times)
def test_a_credit_leaves_an_expiry_that_is_late_enough(data, now):
    bucket = data.draw(some.buckets(limits, st.just(WHOLE), now))
    taken = tuple(data.draw(st.integers(1, rate.cp)) for rate in bucket.limits.rates)
    engine = stored(bucket)
    if isinstance(engine.send(writes.debit("table", REF, bucket, taken, now)), Answer):
        (item,) = engine.items.values()
        seen = Decoder().bucket(item)
        engine.send(writes.credit("table", REF, seen, taken, now))
        check(engine, now)


@given(st.data(), some.times)
def test_a_new_bucket_and_one_brought_in_line_expire_when_they_are_full(data, now):
    bucket = data.draw(some.buckets(limits, st.just(WHOLE), now))
    engine = Engine()
    engine.send(writes.create("table", REF, bucket, now))
    check(engine, now)

    actual, seen = data.draw(pairs(now))
    engine, other = stored(actual), data.draw(limits)
    if isinstance(engine.send(writes.relimit("table", REF, seen, other, now)), Answer):
        check(engine, now)
        (item,) = engine.items.values()
        after = Decoder().bucket(item)
        for i, name in enumerate(other.names):
            if name in seen.limits.positions:
                was = actual.balance(seen.limits.positions[name])
                kept = min(level(was, now), was.rate.cp)
                assert kept <= level(after.balance(i), now)
                assert level(after.balance(i), now) - kept <= writes.slack(was.rate, WHOLE)
