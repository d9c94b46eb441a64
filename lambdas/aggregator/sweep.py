"""The sweep: what no record calls for. Quiet buckets get their shards merged.

A quiet bucket writes nothing, so the stream says nothing of it. Sharded buckets are therefore on
a list, and every few minutes each is looked at: how many writes did each shard take since the
last time? Once all were under 30 % of what a key takes for as long as `merge_after`, the number
of shards is halved, as often as the rate seen allows.

    sharded ──> look ──> look ── quiet long enough ──> merge ──> one shard: off the list
                  └── busy: the quiet time starts anew
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aggregator.care import SHARDED, complete, marker_key
from headgate import shards
from headgate.align import align
from headgate.bucket import WCU, WCU_COST, Milliseconds
from headgate.core import Core, failure
from headgate.effects import Answer, Call, ConditionFailed, Flow
from headgate.reads import query
from headgate.schema import REGISTRY, Bucket, BucketRef, parse_bucket_pk, pk_system

QUIET_BELOW = 0.3 * WCU.ra / WCU_COST  # writes a second, of each shard
_TRIES = 4  # a write between reading and merging makes a merge fail


@dataclass(frozen=True, slots=True)
class Marker:
    """A sharded bucket, and what was seen of it last: the writes of each shard, ever."""

    ref: BucketRef
    at: Milliseconds | None = None
    writes: Mapping[int, int] | None = None
    quiet_since: Milliseconds | None = None


def markers(core: Core) -> Flow[list[Marker]]:
    """All sharded buckets, those first that were looked at longest ago."""
    items = yield from query(core, "PK = :p AND begins_with(SK, :s)", pk_system(REGISTRY), SHARDED)
    found = [_read(item) for item in items]
    return sorted(found, key=lambda marker: marker.at or 0)


def look(core: Core, marker: Marker, merge_after: Milliseconds) -> Flow[int]:
    """Looks at one bucket and merges its shards if it is time. How often it halved them."""
    if not (yield from complete(core, marker.ref)):
        return 0
    buckets = yield from shards.read_all(core, marker.ref)
    now = core.now()
    rates = _rates(marker, buckets, now)
    since, halved = marker.quiet_since, 0
    if rates is None or since is None or max(rates.values(), default=0.0) >= QUIET_BELOW:
        since = now
    elif now - since >= merge_after:
        if any(bucket.limits != buckets[0].limits for bucket in buckets):
            yield from align(core, marker.ref)
        total = sum(rates.values())
        count = max(bucket.shard.n for bucket in buckets)
        while count > 1 and total / count < QUIET_BELOW and (yield from _merge(core, marker.ref)):
            halved += 1
            count //= 2
        buckets = yield from shards.read_all(core, marker.ref)
    yield from _remember(core, marker, buckets, now, since)
    return halved


def _merge(core: Core, ref: BucketRef) -> Flow[bool]:
    for _ in range(_TRIES):
        if (yield from shards.merge(core, ref)):
            return True
    return False


def _rates(
    marker: Marker, buckets: tuple[Bucket, ...], now: Milliseconds
) -> dict[int, float] | None:
    """The writes a second of each shard since the last look; None if that cannot be told. A
    shard that is new came from a split, which is no sign of quiet.
    """
    if marker.at is None or marker.writes is None or now <= marker.at:
        return None
    rates = {}
    for bucket in buckets:
        before, after = marker.writes.get(bucket.shard.i), _writes(bucket)
        if before is None or after < before:
            return None
        rates[bucket.shard.i] = (after - before) * 1000 / (now - marker.at)
    return rates


def _remember(
    core: Core,
    marker: Marker,
    buckets: tuple[Bucket, ...],
    now: Milliseconds,
    since: Milliseconds,
) -> Flow[None]:
    """Stores the look, or takes the bucket off the list. Another sweep may have been faster:
    then its look stands.
    """
    condition, values = "attribute_not_exists(seen_at)", {}
    if marker.at is not None:
        condition, values = "seen_at = :was", {":was": {"N": str(marker.at)}}
    where: dict[str, Any] = {"TableName": core.table, "Key": marker_key(marker.ref)}
    if all(bucket.shard.n == 1 for bucket in buckets):
        call = Call("DeleteItem", {**where, "ConditionExpression": condition})
    else:
        values |= {
            ":at": {"N": str(now)},
            ":since": {"N": str(since)},
            ":writes": {"S": " ".join(f"{b.shard.i}:{_writes(b)}" for b in buckets)},
        }
        update = "SET seen_at = :at, quiet_since = :since, writes = :writes"
        condition = f"attribute_exists(PK) AND {condition}"
        call = Call(
            "UpdateItem", {**where, "UpdateExpression": update, "ConditionExpression": condition}
        )
    if values:
        call = Call(call.operation, {**call.params, "ExpressionAttributeValues": values})
    (outcome,) = yield from core.call(call)
    if not isinstance(outcome, Answer | ConditionFailed):
        raise failure(outcome)


def _read(item: Mapping[str, Any]) -> Marker:
    ref, _ = parse_bucket_pk(item["bucket"]["S"])
    if "seen_at" not in item:
        return Marker(ref)
    pairs = (pair.split(":") for pair in item["writes"]["S"].split())
    return Marker(
        ref,
        Milliseconds(int(item["seen_at"]["N"])),
        {int(shard): int(count) for shard, count in pairs},
        Milliseconds(int(item["quiet_since"]["N"])),
    )


def _writes(bucket: Bucket) -> int:
    return bucket.wcu_tc // WCU_COST
