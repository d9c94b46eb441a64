"""What a client expects of a bucket it has seen: a guess, but one that is mostly right."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headgate import Limit
from headgate.bucket import BASELINE, Shard
from headgate.limit import LimitSet
from headgate.schema import Bucket, BucketRef
from headgate.views import Refusal, View, Views
from headgate.writes import Clause, guess

NOW = BASELINE + 500 * 86_400_000
LIMITS = LimitSet([Limit.per_minute("rpm", 60)])  # one a second
REF = BucketRef("namespace_1", "alice", "gpt-4")


def full(now=NOW, limits=LIMITS):
    return Bucket.full(limits, now)


def drawn(bucket, amount, now):
    return bucket.drawn((amount * 1000,), now)


def test_a_bucket_that_only_we_draw_from_is_as_it_was():
    bucket = drawn(full(), 10, NOW)
    view = View(full(), NOW)
    view.update(bucket, (10_000,), NOW + 5)
    assert view.others is None
    assert view.expect((1_000,), NOW + 60_000) is bucket


def test_what_the_count_grew_by_beyond_our_own_draw_others_drew():
    view = View(full(), NOW)
    after = drawn(full(), 10, NOW)
    view.update(after, (4_000,), NOW + 1_000)
    assert view.others == (6.0,)  # millitokens a millisecond
    assert view.total == (10.0,)
    # The pace is that of the last seconds.
    view.update(after, None, NOW + 2_000)
    assert view.others == (3.0,)
    view.update(after, None, NOW + 22_000)
    assert view.others == (0.0,)


def test_answers_close_together_move_the_pace_little():
    view = View(full(), NOW)
    view.update(full(), None, NOW + 10_000)
    view.update(drawn(full(), 1, NOW), None, NOW + 10_100)
    assert view.others == (pytest.approx(0.1),)


def test_a_busy_bucket_is_expected_under_its_cap_and_an_idle_one_full():
    def clause(pace, age):
        view = View(drawn(full(), 5, NOW), NOW, others=(pace,))
        now = NOW + age
        return guess(view.expect((1_000,), now), 0, now)

    # The refill is one millitoken a millisecond.
    assert clause(pace=0.9, age=30_000) is Clause.ACTIVE
    assert clause(pace=0.1, age=30_000) is Clause.FULL
    # Too soon for others to have drawn: as it was seen.
    assert clause(pace=0.1, age=1_000) is Clause.ACTIVE


def test_other_limits_start_another_history():
    view = View(full(), NOW, others=(5.0,))
    more = LimitSet([*LIMITS.limits, Limit.per_minute("tpm", 100)])
    view.update(full(limits=more), None, NOW + 500)
    assert view.others is None
    view.expect((1_000, 0), NOW + 60_000)
    view.update(full(limits=more), None, NOW + 1_000)


def test_the_write_rate_of_all_clients_shows_in_wcu():
    view = View(full(), NOW)
    view.update(replace(full(), wcu_tc=900_000), None, NOW + 1_000)
    assert view.writes == 900.0


def test_a_shard_that_was_split_has_half_of_the_writes_to_come_and_one_that_was_merged_twice():
    view = View(full(), NOW, writes=900.0)
    view.update(replace(full(), shard=Shard(0, 2)), None, NOW)
    assert view.writes == 450.0
    view.update(full(), None, NOW)
    assert view.writes == 900.0


def test_an_older_answer_does_not_turn_the_clock_back():
    view = View(full(), NOW)
    view.update(drawn(full(), 1, NOW), None, NOW - 50)
    assert view.seen == NOW


def test_views_have_a_bound():
    views = Views(10)
    for number in range(50):
        ref = REF._replace(entity_id=f"user-{number}")
        views.saw(ref, full(), NOW)
        views.refusals.put(ref, Refusal({"rpm": (1_000, NOW + 1)}, (full(),)))
    assert len(views) == 10
    assert len(views.refusals) == 10
    assert views.get(REF._replace(entity_id="user-0")) is None
    assert views.get(REF._replace(entity_id="user-49")) is not None


def test_a_bucket_that_is_gone_is_forgotten():
    views = Views(10)
    views.saw(REF, full(), NOW)
    views.forget(REF)
    assert views.get(REF) is None
    assert views.count(REF) == 1
    views.saw(REF, full(), NOW)
    views.clear()
    assert len(views) == 0


def test_a_refusal_covers_what_asks_for_as_much_of_a_limit_that_is_still_short():
    refusal = Refusal({"rpm": (3_000, NOW + 500), "tpm": (100_000, NOW + 900)}, (full(),))
    assert refusal.covers({"rpm": 3_000}, NOW)
    assert refusal.covers({"rpm": 4_000, "other": 1_000}, NOW)
    assert not refusal.covers({"rpm": 2_000}, NOW)
    assert not refusal.covers({"other": 9_000}, NOW)
    assert not refusal.covers({"rpm": 3_000}, NOW + 500)
    assert refusal.covers({"rpm": 3_000, "tpm": 100_000}, NOW + 500)
    assert not refusal.covers({"tpm": 100_000}, NOW + 900)
