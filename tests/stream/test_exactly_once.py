"""P5: usage snapshots add up to what was added to `tc`, whatever the delivery."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggregator import seen
from aggregator.records import BadRecord, BucketChange, parse
from aggregator.seen import MOST_GAPS, bounded, cover, covers, read, sortable, written
from aggregator.usage import count, fold
from headgate.breaker import Breaker
from headgate.core import Core, Settings
from headgate.effects import Throttled, Unreachable
from headgate.usage import WINDOWS
from tests.stream.esm import Chaos, EventSourceMapping, Mapping, sequence
from tests.stream.histories import Life, ref


class Aggregating:
    """The aggregator's counting as a function of Lambda, on a table that fails as it likes."""

    def __init__(self, life, *, lost=0.0, throttled=0.0, poisoned=0.0):
        self.life = life
        self.lost, self.throttled, self.poisoned = lost, throttled, poisoned
        self.calls = Counter()
        self._core = Core(Settings(table="table", attempts=2), breaker=Breaker(failures=10**9))
        self._bad = {}

    def heal(self):
        self.lost = self.throttled = self.poisoned = 0.0
        self._bad = {}

    def wire(self, call):
        rng = self.life.rng
        self.calls[call.operation] += 1
        if rng.random() < self.throttled:
            return Throttled("busy", of_key=True)
        if rng.random() < self.lost:
            if rng.random() < 0.5:
                self.life.engine.send(call)
            return Unreachable("no answer")
        return self.life.engine.send(call)

    def __call__(self, records):
        changes, failed = [], set()
        for record in records:
            try:
                changes.append(self._parse(record))
            except BadRecord:
                failed.add(record["dynamodb"]["SequenceNumber"])
        counted = yield from count(self._core, fold(changes, WINDOWS), 90)
        for tally, _ in counted.failed:
            failed |= {str(change.sequence) for change in tally.changes}
        if len(failed) == len(records):
            raise RuntimeError("all records failed")
        return {"batchItemFailures": [{"itemIdentifier": number} for number in sorted(failed)]}

    def _parse(self, record):
        """A record may be unreadable until the function is mended."""
        bad = self._bad.setdefault(record["eventID"], self.life.rng.random() < self.poisoned)
        if bad:
            raise BadRecord("not understood yet")
        return parse(record)


def chances(most):
    return st.floats(0, most).map(lambda chance: round(chance, 2))


mappings = st.builds(
    Mapping,
    batch_size=st.integers(1, 30),
    parallelization=st.integers(1, 4),
    bisect=st.booleans(),
    retries=st.integers(0, 3),
)
chaoses = st.builds(
    Chaos,
    timeouts=chances(0.2),
    zombies=chances(1.0),
    duplicates=chances(0.5),
    rewinds=chances(0.3),
)


def lived(life, source, writes):
    """Writes to buckets, and deliveries in between."""
    for _ in range(writes):
        life.live()
        if life.rng.random() < 0.5:
            source.step()


@given(seed=st.integers(0, 2**32), mapping=mappings, chaos=chaoses, writes=st.integers(1, 120))
def test_whatever_the_delivery_each_record_counts_once(seed, mapping, chaos, writes):
    life = Life(random.Random(seed))
    function = Aggregating(life)
    chaos = Chaos(0.0, chaos.zombies, chaos.duplicates, chaos.rewinds)
    source = EventSourceMapping(
        life.stream, function, mapping, life.rng, function.wire, chaos=chaos
    )
    lived(life, source, writes)
    source.drain()
    assert source.failures == []
    assert life.found() == life.expected()


@given(
    seed=st.integers(0, 2**32),
    mapping=mappings,
    chaos=chaoses,
    writes=st.integers(1, 120),
    lost=chances(0.6),
    throttled=chances(0.8),
    poisoned=chances(0.2),
)
def test_what_was_given_up_on_counts_once_it_is_delivered_again(
    seed, mapping, chaos, writes, lost, throttled, poisoned
):
    life = Life(random.Random(seed))
    function = Aggregating(life, lost=lost, throttled=throttled, poisoned=poisoned)
    source = EventSourceMapping(
        life.stream, function, mapping, life.rng, function.wire, chaos=chaos
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(seen, "MOST_GAPS", 10**6)
        lived(life, source, writes)
        source.drain()
        function.heal()
        source.chaos = Chaos(duplicates=chaos.duplicates)
        messages = list(source.failures)
        life.rng.shuffle(messages)
        for message in messages:
            source.redrive(message)
        lived(life, source, 20)
        source.drain()
    assert len(source.failures) == len(messages)
    (found, acquires), (expected, drew) = life.found(), life.expected()
    assert found == expected
    # Between equal totals there may have been a draw and its return that were never seen.
    assert all(acquires.get(where, 0) <= number for where, number in drew.items())


@given(seed=st.integers(0, 2**32), mapping=mappings, writes=st.integers(1, 120), lost=chances(0.6))
def test_what_was_given_up_on_is_never_counted_twice_however_many_gaps_are_forgotten(
    seed, mapping, writes, lost
):
    life = Life(random.Random(seed))
    function = Aggregating(life, lost=lost)
    source = EventSourceMapping(life.stream, function, mapping, life.rng, function.wire)
    lived(life, source, writes)
    source.drain()
    function.heal()
    for message in list(source.failures) * 2:
        source.redrive(message)
    source.drain()
    _, acquires = life.found()
    _, drew = life.expected()
    assert all(number <= drew[where] for where, number in acquires.items())


# ---------------------------------------------------------------- what was counted


def change(number, before, after, shard=0):
    from aggregator.records import Image

    def image(total):
        return None if total is None else Image(1, 1, {"rpm": total}, f"link-{total}")

    return BucketChange(number, 0, ref(0), shard, image(before), image(after))


def test_records_that_follow_one_another_are_one_span():
    spans = cover((), [change(5, None, 1), change(9, 1, 2), change(12, 2, 3)])
    assert len(spans) == 1
    assert [n for n in range(20) if covers(spans, n)] == list(range(5, 13))


def test_a_missing_record_leaves_a_gap_that_it_fills_when_it_comes():
    spans = cover((), [change(5, None, 1), change(12, 2, 3)])
    assert [n for n in range(20) if covers(spans, n)] == [5, 12]
    whole = cover(spans, [change(9, 1, 2)])
    assert len(whole) == 1


def test_records_that_come_before_the_first_are_counted_too():
    spans = cover((), [change(12, 2, 3)])
    assert not covers(spans, 9)
    assert len(cover(spans, [change(9, 1, 2)])) == 1


@given(st.lists(st.tuples(st.integers(1, 10**30), st.booleans()), max_size=30))
def test_spans_are_read_as_they_were_written(steps):
    changes = []
    total = number = 0
    for gap, lost in steps:
        number, total = number + gap, total + 1
        if not lost:
            changes.append(change(number, total - 1, total))
    if changes:
        spans = cover((), changes)
        item = {name: {"S": value} for name, value in written(3, spans).items()}
        assert read(3, item) == spans
        assert read(4, item) == ()
        kept = bounded(spans)
        assert len(kept) <= MOST_GAPS + 1
        assert all(covers(kept, change.sequence) for change in changes)


@given(st.lists(st.integers(1, 10**40 - 1)))
def test_sequence_numbers_sort_as_numbers(numbers):
    assert [int(s[2:]) for s in sorted(map(sortable, numbers))] == sorted(numbers)


def test_an_item_that_is_made_anew_gives_its_place_up_before_records_that_are_missing():
    spans = ()
    for number in range(0, 40, 4):
        renewed = change(number, None, number + 1)
        after_a_loss = change(number + 1, number + 100, number + 101)
        spans = cover(spans, [renewed if number > 4 else after_a_loss])
    kept = bounded(spans)
    assert not covers(kept, 3)
    assert covers(kept, 10)


def test_the_stream_numbers_records_in_order_across_a_change_of_length():
    life = Life(random.Random(1))
    for _ in range(100):
        life.live()
    numbers = [sequence(record) for record in life.stream.records()]
    assert len({len(str(number)) for number in numbers}) == 2
    assert numbers == sorted(numbers)
