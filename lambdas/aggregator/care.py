"""Care for busy buckets, as records show them: split early, finish splits, remember the sharded.

All of it is safe to repeat. A split is conditioned on the shard count that was seen, a finished
one has nothing left to do, and a bucket is remembered once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from aggregator.records import BucketChange
from headgate import shards
from headgate.bucket import MAX_SHARDS, WCU, WCU_COST, Milliseconds, Shard
from headgate.cache import Bounded
from headgate.core import Core, failure
from headgate.effects import Answer, Call, ConditionFailed, Flow
from headgate.reads import batch_get
from headgate.schema import REGISTRY, BucketRef, key, pk_system

MOST_REMEMBERED = 20_000
SPLIT_AT = shards.SPLIT_ABOVE * WCU.ra / WCU_COST  # writes a second

# Records carry their time in whole seconds, so a rate over less than this is a guess.
_LEAST = Milliseconds(5_000)
# Older records say what was, not what is: a batch that was stuck must not split anything now.
_STALE = Milliseconds(60_000)
_ROUNDS = 8  # a count of 64 is six splits of each shard

SHARDED = "#SHARDED#"


class Task(NamedTuple):
    """Something to do about a bucket, and the record that called for it."""

    ref: BucketRef
    sequence: int


class Hot(NamedTuple):
    """A shard, `shard.i` of `shard.n`, that takes nearly as many writes as a key can."""

    ref: BucketRef
    sequence: int
    shard: Shard


@dataclass(frozen=True, slots=True)
class _Sight:
    at: Milliseconds
    writes: int
    count: int


class Memory:
    """What this process has seen of buckets. Without it, care comes later, never wrong."""

    def __init__(self) -> None:
        self._sights: Bounded[tuple[BucketRef, int], _Sight] = Bounded(MOST_REMEMBERED)
        self._marked: Bounded[BucketRef, BucketRef] = Bounded(MOST_REMEMBERED)

    def hot(self, changes: Iterable[BucketChange], now: Milliseconds) -> list[Hot]:
        """Shards whose writes come near to what a key takes, by the records of some seconds."""
        found: dict[tuple[BucketRef, int], Hot] = {}
        for change in changes:
            if change.after is None or now - change.at > _STALE:
                continue
            place = change.ref, change.shard
            sight = _Sight(change.at, change.after.writes, change.after.shards)
            before = self._sights.get(place)
            if before is None or before.count != sight.count or before.writes > sight.writes:
                self._sights.put(place, sight)
                continue
            elapsed = sight.at - before.at
            if elapsed < _LEAST:
                continue
            self._sights.put(place, sight)
            rate = (sight.writes - before.writes) * 1000 / elapsed
            if rate >= SPLIT_AT and sight.count < MAX_SHARDS:
                shard = Shard(change.shard, sight.count)
                found[place] = Hot(change.ref, change.sequence, shard)
        return list(found.values())

    def unmarked(self, changes: Iterable[BucketChange]) -> list[Task]:
        """Sharded buckets that this process has not yet put on the list."""
        sharded = {
            change.ref: Task(change.ref, change.sequence)
            for change in changes
            if change.after is not None and change.after.shards > 1
        }
        return [task for ref, task in sharded.items() if self._marked.get(ref) is None]

    def marked(self, ref: BucketRef) -> None:
        """It is on the list."""
        self._marked.put(ref, ref)


def half_split(changes: Iterable[BucketChange]) -> list[Task]:
    """Buckets whose shard 0 announced a new count: the other shards have yet to follow."""
    grown = {
        change.ref: Task(change.ref, change.sequence)
        for change in changes
        if change.shard == 0
        and change.before is not None
        and change.after is not None
        and change.before.shards < change.after.shards
    }
    return list(grown.values())


def split(core: Core, hot: Hot) -> Flow[bool]:
    """Splits a hot shard, unless that has been done since it was seen. Whether it was."""
    keys = [hot.ref.key(index) for index in sorted({0, hot.shard.i})]
    items = yield from batch_get(core, keys, strong=True)
    found = [core.decoder.bucket(item) for item in items.values()]
    for bucket in found:
        core.views.saw(hot.ref, bucket, core.now())
    for bucket in found:
        if bucket.shard == hot.shard:
            yield from shards.split(core, hot.ref, bucket)
            return True
    return False


def complete(core: Core, ref: BucketRef) -> Flow[bool]:
    """Splits the shards that lag behind shard 0, until none does. False if some still do: each
    is right about its own share meanwhile, and the next sweep comes back to it.
    """
    for _ in range(_ROUNDS):
        buckets = yield from shards.read_all(core, ref)
        count = buckets[0].shard.n if buckets else 1
        lagging = [bucket for bucket in buckets if bucket.shard.n < count]
        if not lagging:
            return True
        for bucket in lagging:
            yield from shards.split(core, ref, bucket)
    return False


def mark(core: Core, ref: BucketRef) -> Flow[None]:
    """Puts a sharded bucket on the list that the sweep goes through."""
    put = Call(
        "PutItem",
        {
            "TableName": core.table,
            "Item": {**marker_key(ref), "bucket": {"S": ref.pk(0)}},
            "ConditionExpression": "attribute_not_exists(PK)",
        },
    )
    (outcome,) = yield from core.call(put)
    if not isinstance(outcome, Answer | ConditionFailed):
        raise failure(outcome)


def marker_key(ref: BucketRef) -> dict[str, dict[str, str]]:
    """Where the list holds a bucket. One partition for all namespaces: few buckets are sharded."""
    return key(pk_system(REGISTRY), f"{SHARDED}{ref.ns}#{ref.entity_id}#{ref.resource}")
