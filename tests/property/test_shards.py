"""Shards hold exactly what the whole held, however it is cut and drawn from."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from headgate.bucket import MAX_SHARDS, Shard, level, share
from headgate.schema import Bucket
from headgate.shards import allot, halves, parent
from tests import strategies as some

splittable = some.shards.filter(lambda shard: shard.n < MAX_SHARDS)


def levels(bucket, now):
    return [level(bucket.balance(i), now) for i in range(len(bucket.tk))]


@given(st.data(), some.times, some.waits, st.booleans())
def test_a_split_makes_and_loses_nothing_now_or_later(data, now, wait, give):
    bucket = data.draw(some.buckets(shards=splittable, now=now))
    lower, upper = halves(bucket, now, give=give)
    assert lower.shard == Shard(bucket.shard.i, bucket.shard.n * 2)
    assert upper.shard == Shard(bucket.shard.i + bucket.shard.n, bucket.shard.n * 2)
    for moment in (now, now + wait):
        both = zip(levels(lower, moment), levels(upper, moment), strict=True)
        assert [a + b for a, b in both] == levels(bucket, moment)
    assert lower.tc == bucket.tc
    assert set(upper.tc) == {0}


@given(st.data(), some.times)
def test_a_split_shares_what_is_there_evenly_and_debts_too(data, now):
    bucket = data.draw(some.buckets(shards=splittable, now=now))
    lower, upper = halves(bucket, now)
    for rate, held, a, b in zip(
        bucket.limits.rates,
        levels(bucket, now),
        levels(lower, now),
        levels(upper, now),
        strict=True,
    ):
        if held <= share(rate.cp, bucket.shard):
            assert abs(a - b) <= 2


@given(st.data(), some.times)
def test_a_split_leaves_neither_half_with_more_than_it_may_hold(data, now):
    bucket = data.draw(some.buckets(shards=splittable, now=now))
    both = halves(bucket, now)
    for i, held in enumerate(bucket.available(now)):
        if level(bucket.balance(i), now) == held:
            assert sum(half.available(now)[i] for half in both) == held


@given(st.data(), some.times)
def test_a_split_that_gives_nothing_still_shares_a_debt(data, now):
    bucket = data.draw(some.buckets(shards=splittable, now=now))
    _, upper = halves(bucket, now, give=False)
    for held, moved in zip(levels(bucket, now), levels(upper, now), strict=True):
        assert moved == min(0, held // 2)


@given(st.data(), some.times, st.sampled_from([1, 2, 4, 8, 16, 32]))
def test_the_available_of_all_shards_is_never_more_than_the_capacity(data, now, count):
    limits = data.draw(some.small_limit_sets)
    shards = [Bucket.full(limits, now, shard=Shard(i, count)) for i in range(count)]
    for rate, holds in zip(
        limits.rates, zip(*(b.available(now) for b in shards), strict=True), strict=True
    ):
        assert sum(holds) == rate.cp


@st.composite
def shard_sets(draw, now):
    """All shards of one bucket, each holding what it will."""
    count = draw(st.sampled_from([1, 2, 4, 8]))
    limits = draw(some.small_limit_sets)
    return [
        draw(some.buckets(st.just(limits), st.just(Shard(i, count)), now)) for i in range(count)
    ]


@given(st.data(), some.times)
def test_a_gather_takes_exactly_what_was_asked_for_or_nothing(data, now):
    buckets = data.draw(shard_sets(now))
    limits = buckets[0].limits
    consume = {
        name: data.draw(st.integers(1, 2 * rate.cp))
        for name, rate in zip(limits.names, limits.rates, strict=True)
    }
    drawn = allot(buckets, consume, now)
    held = {n: sum(b.available(now)[i] for b in buckets) for i, n in enumerate(limits.names)}
    assert (drawn is None) == any(held[name] < amount for name, amount in consume.items())
    for name, amount in consume.items() if drawn is not None else ():
        assert sum(part.get(name, 0) for part in drawn.values()) == amount
    for index, part in (drawn or {}).items():
        holds = buckets[index].available(now)
        assert part
        assert all(0 < a <= holds[limits.positions[name]] for name, a in part.items())


@given(st.data(), some.times)
def test_a_forced_gather_takes_all_of_it_and_levels_the_debt(data, now):
    buckets = data.draw(shard_sets(now))
    limits = buckets[0].limits
    consume = {
        name: data.draw(st.integers(1, 3 * rate.cp))
        for name, rate in zip(limits.names, limits.rates, strict=True)
    }
    drawn = allot(buckets, consume, now, force=True)
    for name, amount in consume.items():
        i = limits.positions[name]
        assert sum(part.get(name, 0) for part in drawn.values()) == amount
        before = [b.available(now)[i] for b in buckets]
        after = [b.available(now)[i] - drawn.get(b.shard.i, {}).get(name, 0) for b in buckets]
        spare = sum(before) - amount
        if spare < 0:
            # Nobody is driven deeper into debt than its part, unless it was there already.
            part = spare // len(buckets)
            assert all(a >= min(part, b) for a, b in zip(after, before, strict=True))


@given(some.times, some.small_limit_sets, st.integers(1, MAX_SHARDS - 1))
def test_a_shard_merges_into_the_one_it_was_split_from(now, limits, index):
    count = 1 << (index.bit_length() - 1)
    source = Bucket.full(limits, now, shard=Shard(parent(index), count))
    _, upper = halves(source, now)
    assert upper.shard.i == index


@given(st.data(), some.times)
def test_what_a_bucket_loses_by_a_draw_is_counted(data, now):
    bucket = data.draw(some.buckets(now=now))
    amounts = [data.draw(st.integers(0, rate.cp)) for rate in bucket.limits.rates]
    after = bucket.drawn(amounts, now)
    for i, amount in enumerate(amounts):
        assert after.tc[i] - bucket.tc[i] == amount
        expected = bucket.available(now)[i] - amount if amount else levels(bucket, now)[i]
        assert levels(after, now)[i] == expected
    assert replace(after, tk=(), tc=(), wcu_tk=0, wcu_tc=0) == replace(
        bucket, tk=(), tc=(), wcu_tk=0, wcu_tc=0
    )
