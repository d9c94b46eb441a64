"""What an operator does to a bucket by hand: fill it, or add to it. Once, however often it is sent.

| record | PK                | SK            |                                                |
|--------|-------------------|---------------|------------------------------------------------|
| once   | {ns}/ENTITY#{id}  | #ONCE#{key}   | in the transaction that the key was given with |
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headgate import shards, writes
from headgate.bucket import WCU_COST, Milliseconds, Millitokens, ceiling, share
from headgate.core import Core
from headgate.effects import Flow, Item, Pause
from headgate.errors import ValidationError
from headgate.journal import AuditEvent, recorded, subject
from headgate.limit import as_amounts
from headgate.namespaces import opened
from headgate.reads import batch_get
from headgate.schema import (
    Bucket,
    BucketRef,
    checked_entity,
    checked_key,
    checked_resource,
    in_namespace,
    key,
    pk_entity,
)
from headgate.status import contended, statuses

ONCE = "#ONCE#"
KEPT = 86_400  # seconds for which a key is known
_TRIES = 8


@dataclass(frozen=True, slots=True)
class Operated:
    """What became of it. Not `done`: this key was used before, for the same, and nothing happened
    now. `available` is what the bucket's limits held afterwards; empty if there was no bucket,
    which means that it is full.
    """

    done: bool
    key: str
    shards: int
    available: Mapping[str, int]


def reset(
    core: Core, entity_id: str, resource: str, *, idempotency_key: str | None = None
) -> Flow[Operated]:
    """Makes a bucket full again, debts gone, in all of its shards. Counted usage stays."""

    def update(bucket: Bucket, now: Milliseconds) -> tuple[str, dict[str, Any]]:
        sets, values = [], {}
        for i, (name, rate) in enumerate(
            zip(bucket.limits.names, bucket.limits.rates, strict=True)
        ):
            sets.append(f"b_{name}_tk = :d{i}")
            values[f":d{i}"] = {"N": str(ceiling(rate, bucket.shard, now))}
        return f"SET {', '.join(sets)} ADD ", values

    return (
        yield from _operate(core, entity_id, resource, "bucket_reset", {}, update, idempotency_key)
    )


def top_up(
    core: Core,
    entity_id: str,
    resource: str,
    amounts: Mapping[str, int],
    *,
    idempotency_key: str | None = None,
) -> Flow[Operated]:
    """Adds tokens to a bucket, each shard its share. What exceeds the capacity is cut when the
    bucket is next drawn from, as what accrues is.
    """
    added = as_amounts("amounts", amounts)

    def update(bucket: Bucket, now: Milliseconds) -> tuple[str, dict[str, Any]]:
        del now
        adds, values = [], {}
        for i, amount in enumerate(bucket.limits.amounts(added)):
            if amount:
                adds.append(f"b_{bucket.limits.names[i]}_tk :d{i}, ")
                values[f":d{i}"] = {"N": str(share(amount, bucket.shard))}
        return f"ADD {''.join(adds)}", values

    return (
        yield from _operate(
            core, entity_id, resource, "bucket_topped_up", added, update, idempotency_key
        )
    )


Update = Callable[[Bucket, Milliseconds], tuple[str, dict[str, Any]]]


def _operate(
    core: Core,
    entity_id: str,
    resource: str,
    action: str,
    amounts: Mapping[str, Millitokens],
    update: Update,
    once: str | None,
) -> Flow[Operated]:
    who, what = checked_entity(entity_id), checked_resource(resource)
    token = f"{core.unique.getrandbits(96):024x}" if once is None else checked_key(once)
    ns = yield from opened(core)
    ref = BucketRef(ns, who, what)
    told = {"resource": what, "add": {name: amount // 1000 for name, amount in amounts.items()}}
    meaning = json.dumps([action, told], sort_keys=True)
    for attempt in range(_TRIES):
        if attempt:
            yield Pause(0.005 * 2**attempt)
        buckets = yield from shards.read_all(core, ref)
        now = core.now()
        done = yield from recorded(
            core,
            ns,
            subject(who),
            action,
            [
                _remember(core, ref, token, meaning, now),
                *(_write(core, ref, bucket, *update(bucket, now)) for bucket in buckets),
            ],
            resource=what,
            before={"available": _held(buckets, now)},
            after={"available": _then(buckets, amounts, now)},
        )
        if isinstance(done, AuditEvent):
            return (yield from _after(core, ref, token, done=True))
        if done.failed():
            yield from _check_same(core, ref, token, meaning)
            return (yield from _after(core, ref, token, done=False))
        # A shard was split, or its limits were changed, since it was read.
    raise contended(ref)


def _remember(
    core: Core, ref: BucketRef, token: str, meaning: str, now: Milliseconds
) -> dict[str, Any]:
    pk = pk_entity(ref.ns, ref.entity_id)
    item: Item = {
        **key(pk, ONCE + token),
        **in_namespace(ref.ns, pk),
        "meaning": {"S": meaning},
        "ttl": {"N": str(now // 1000 + KEPT)},
    }
    return {
        "Put": {
            "TableName": core.table,
            "Item": item,
            # Expiry may come days late; the key is free again on time.
            "ConditionExpression": "attribute_not_exists(PK) OR #ttl < :now",
            "ExpressionAttributeNames": {"#ttl": "ttl"},
            "ExpressionAttributeValues": {":now": {"N": str(now // 1000)}},
        }
    }


def _write(
    core: Core, ref: BucketRef, bucket: Bucket, update: str, values: Mapping[str, Any]
) -> dict[str, Any]:
    return writes.by_hand(
        core.table,
        ref,
        bucket,
        f"{update}b_wcu_tk :w, b_wcu_tc :wc",
        values,
        cost=Millitokens(2 * WCU_COST),
    )


def _check_same(core: Core, ref: BucketRef, token: str, meaning: str) -> Flow[None]:
    place = pk_entity(ref.ns, ref.entity_id), ONCE + token
    items = yield from batch_get(core, [key(*place)], strong=True)
    if place in items and items[place]["meaning"]["S"] != meaning:
        raise ValidationError(
            f"the idempotency key {token!r} was used for something else: "
            f"{items[place]['meaning']['S']}"
        )


def _after(core: Core, ref: BucketRef, token: str, *, done: bool) -> Flow[Operated]:
    core.views.refusals.pop(ref)
    buckets = yield from shards.read_all(core, ref)
    return Operated(done, token, len(buckets), _held(buckets, core.now()))


def _then(
    buckets: Sequence[Bucket], amounts: Mapping[str, Millitokens], now: Milliseconds
) -> dict[str, int]:
    """What the bucket will hold: all after a reset, else so much more and never over its cap."""
    if not buckets:
        return {}
    return {
        s.name: min(s.capacity, s.available + amounts.get(s.name, 0) // 1000)
        if amounts
        else s.capacity
        for s in statuses(buckets, {}, now)
    }


def _held(buckets: Sequence[Bucket], now: Milliseconds) -> dict[str, int]:
    if not buckets:
        return {}
    return {status.name: status.available for status in statuses(buckets, {}, now)}
