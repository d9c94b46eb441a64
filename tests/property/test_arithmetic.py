"""The bucket's arithmetic: exact, in integers, and the seed's formula for a single limit."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from headgate.bucket import (
    BASELINE,
    SLACK,
    WHOLE,
    Balance,
    Rate,
    Shard,
    accrued,
    build_limit_status,
    calculate_available,
    calculate_retry_after,
    ceiling,
    earned,
    force_consume,
    level,
    refill_bucket,
    share,
    slack,
    time_to_full,
    try_consume,
    would_refill_satisfy,
)
from tests import strategies as some


@given(some.rates, some.shards, some.times, st.lists(some.waits, max_size=20))
def test_any_partition_of_time_earns_the_same(rate, shard, start, steps):
    moments = [start]
    for step in steps:
        moments.append(moments[-1] + step)
    pieces = [
        earned(rate, shard, after) - earned(rate, shard, before)
        for before, after in pairwise(moments)
    ]
    assert sum(pieces) == earned(rate, shard, moments[-1]) - earned(rate, shard, start)
    assert all(piece >= 0 for piece in pieces)


@given(some.rates, some.times, some.waits)
def test_a_time_span_earns_its_rate_to_a_millitoken(rate, start, span):
    gained = accrued(rate, start + span) - accrued(rate, start)
    assert abs(gained * rate.rp - span * rate.ra) < rate.rp


@given(some.rates, some.times, some.waits, st.lists(some.waits, max_size=20))
def test_a_bucket_that_is_touched_often_holds_what_one_left_alone_does(rate, now, span, touches):
    # From empty, and for less time than fills it, so that the cap loses nothing.
    span = min(span, rate.cp * rate.rp // rate.ra) if rate.ra else span
    balance = Balance(rate, -accrued(rate, now), 0)
    touched = balance
    for touch in sorted(touch for touch in touches if touch < span):
        touched = refill_bucket(touched, now + touch)
        drawn = try_consume(touched, 0, now + touch)
        touched = drawn if drawn is not None else touched
    assert calculate_available(touched, now + span) == calculate_available(balance, now + span)


@given(st.integers(-(10**18), 10**18), st.sampled_from([1, 2, 4, 8, 16, 32, 64]))
def test_the_shares_of_all_shards_add_up_to_the_amount(amount, count):
    parts = [share(amount, Shard(i, count)) for i in range(count)]
    assert sum(parts) == amount
    assert max(parts) - min(parts) <= 1


@given(st.integers(-(10**18), 10**18), some.shards)
def test_a_shard_splits_exactly_into_two(amount, shard):
    i, n = shard
    lower, upper = Shard(i, 2 * n), Shard(i + n, 2 * n)
    assert share(amount, shard) == share(amount, lower) + share(amount, upper)


class SeedBucket:
    """The seed's bucket: a balance, and the time up to which it was refilled."""

    def __init__(self, rate, tokens, now):
        self.rate, self.tokens, self.refilled = rate, tokens, now

    def refill(self, now):
        gained = (now - self.refilled) * self.rate.ra // self.rate.rp
        if gained:
            self.refilled += gained * self.rate.rp // self.rate.ra
            self.tokens = min(self.tokens + gained, self.rate.cp)

    def try_consume(self, amount, now):
        self.refill(now)
        if self.tokens < amount:
            return False
        self.tokens -= amount
        return True


# Rates at which a millitoken takes whole milliseconds. At others the seed's compensation cuts the
# time used to whole milliseconds, and what it cuts off earns once more with the next step.
even_rates = st.builds(
    lambda rate, ms: rate._replace(rp=rate.ra * ms), some.refilling_rates, st.integers(1, 86_400)
)


@given(
    even_rates,
    some.times,
    st.lists(st.tuples(st.integers(0, 100_000), st.integers(1, 20_000)), max_size=30),
)
def test_a_single_limit_agrees_with_the_seeds_formula_to_a_millitoken(rate, now, steps):
    seed = SeedBucket(rate, rate.cp, now)
    balance = Balance(rate, ceiling(rate, WHOLE, now), 0)
    for wait, amount in steps:
        now += wait
        seed.refill(now)
        balance = refill_bucket(balance, now)
        assert abs(calculate_available(balance, now) - seed.tokens) <= 1
        # On the edge they may differ by that millitoken: then both are left alone.
        if abs(seed.tokens - amount) > 1:
            after = try_consume(balance, amount, now)
            assert (after is not None) == seed.try_consume(amount, now)
            balance = after or balance


@given(st.data(), some.times, some.waits)
def test_a_single_refill_is_the_seeds_formula_at_any_rate_and_balance(data, now, span):
    balance = refill_bucket(data.draw(some.balances(some.refilling_rates, now=now)), now)
    seed = SeedBucket(balance.rate, calculate_available(balance, now), now)
    seed.refill(now + span)
    assert 0 <= calculate_available(balance, now + span) - seed.tokens <= 1


@given(st.data(), some.times, some.amounts)
def test_retry_after_is_the_least_time_that_passes(data, now, amount):
    balance = data.draw(some.balances(shards=some.shards, now=now))
    wait = calculate_retry_after(balance, amount, now)
    if wait is None:
        for later in (0, 1, 86_400_000, 10**15):
            assert not would_refill_satisfy(balance, amount, now + later)
        return
    assert wait >= 0
    assert would_refill_satisfy(balance, amount, now + wait)
    assert wait == 0 or not would_refill_satisfy(balance, amount, now + wait - 1)


@given(st.data(), some.times)
def test_time_to_full_is_enough_from_any_balance(data, now):
    balance = data.draw(some.balances(shards=some.shards, now=now))
    rate, shard = balance.rate, balance.shard
    wait = time_to_full(rate, shard, level(balance, now))
    if wait is None:
        assert not rate.ra
    else:
        assert calculate_available(balance, now + wait) == share(rate.cp, shard)


@given(st.data(), some.times, some.amounts)
def test_a_draw_takes_exactly_its_amount_and_never_more_than_there_is(data, now, amount):
    balance = data.draw(some.balances(shards=some.shards, now=now))
    before = calculate_available(balance, now)
    after = try_consume(balance, amount, now)
    assert (after is None) == (before < amount)
    if after is not None:
        assert calculate_available(after, now) == before - amount >= 0
        assert after.tc == balance.tc + amount


@given(st.data(), some.times, some.amounts)
def test_a_forced_draw_is_a_debt_where_it_is_not_covered(data, now, amount):
    balance = data.draw(some.balances(shards=some.shards, now=now))
    after = force_consume(balance, amount, now)
    assert level(after, now) == calculate_available(balance, now) - amount
    assert after.tc == balance.tc + amount


@given(st.data(), some.times)
def test_what_overflows_is_gone_and_nothing_else(data, now):
    balance = data.draw(some.balances(shards=some.shards, now=now))
    capped = refill_bucket(balance, now)
    assert calculate_available(capped, now) == calculate_available(balance, now)
    assert level(capped, now) <= share(balance.rate.cp, balance.shard)
    assert refill_bucket(capped, now) == capped


@given(st.data(), some.times, some.amounts)
def test_no_float_enters_the_arithmetic(data, now, amount):
    balance = data.draw(some.balances(shards=some.shards, now=now))
    rate, shard = balance.rate, balance.shard
    results = [
        share(amount, shard),
        accrued(rate, now),
        earned(rate, shard, now),
        slack(rate, shard),
        ceiling(rate, shard, now),
        level(balance, now),
        calculate_available(balance, now),
        calculate_retry_after(balance, amount, now) or 0,
        time_to_full(rate, shard, amount) or 0,
        *refill_bucket(balance, now)[1:3],
        *force_consume(balance, amount, now)[1:3],
    ]
    assert {type(result) for result in results} == {int}


@given(st.data(), some.times, some.amounts)
def test_a_status_says_short_exactly_when_a_draw_would_fail(data, now, amount):
    balance = data.draw(some.balances(now=now))
    status = build_limit_status("rpm", balance, amount, now)
    assert status.short == (try_consume(balance, amount, now) is None)
    assert status.available * 1000 <= calculate_available(balance, now)
    assert (status.retry_after == 0) == (not status.short)


@given(st.data(), some.times)
def test_a_request_for_none_of_a_limit_is_never_short_of_it(data, now):
    status = build_limit_status("rpm", data.draw(some.balances(now=now)), 0, now)
    assert not status.short
    assert status.retry_after == 0


def test_per_day_50_on_a_bucket_touched_each_second_refills_2083_millitokens_an_hour():
    rate = Rate(50_000, 50_000, 86_400_000)
    busy = Rate(1_000_000, 1_000_000, 1_000)
    start = BASELINE + 700 * 86_400_000
    day, second = Balance(rate, -accrued(rate, start), 0), Balance(busy, 0, 0)
    for now in range(start, start + 3_600_001, 1_000):
        day, second = refill_bucket(day, now), force_consume(second, 1_000, now)
    assert calculate_available(day, start + 3_600_000) == 2_083


@given(some.rates, some.shards)
def test_the_slack_is_what_accrues_in_100_ms(rate, shard):
    assert slack(rate, shard) == earned(rate, shard, BASELINE + SLACK)
