"""Decisions as requests: the conditional writes of one bucket item.

A debit of `c` from a limit, at the client's time, with `earned` and `ceiling` of bucket.py:

    ACTIVE  condition  tk BETWEEN c - earned AND ceiling + slack   update  ADD tk -c
    FULL    condition  tk > ceiling                                update  SET tk = ceiling - c

The refill is inside the condition, so nothing is ever refilled and no lock is needed. Which
clause is sent is a guess; a wrong one fails and returns the item, never a wrong balance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from functools import lru_cache
from itertools import product
from types import MappingProxyType
from typing import Any

from headgate.bucket import (
    BASELINE,
    WCU,
    WCU_COST,
    WCU_GRACE,
    WHOLE,
    Milliseconds,
    Millitokens,
    ceiling,
    earned,
    level,
    share,
    slack,
    time_to_full,
)
from headgate.effects import Call
from headgate.limit import LimitSet
from headgate.schema import Bucket, BucketRef, bucket_item, limit_attributes

# Over the time that a bucket certainly needs to be full again: clock error, requests under way.
TTL_MARGIN = 3_600

SAME_BUCKET = "shard_count = :n AND lv = :lv AND rf = :rf"


class Clause(Enum):
    """How a write treats one limit; `{t}` is its balance, `{i}` its position."""

    ACTIVE = ("{t} BETWEEN :l{i} AND :h{i}", False)
    FULL = ("{t} > :h{i}", True)
    FLOOR = ("{t} >= :l{i}", None)  # not drawn from, but the ttl counts on this
    BLIND = ("", False)

    def __init__(self, condition: str, sets: bool | None) -> None:  # noqa: FBT001
        self.condition = condition
        self.sets = sets


def guess(bucket: Bucket, position: int, now: Milliseconds) -> Clause:
    """The clause that holds if the bucket is still as it was seen."""
    rate = bucket.limits.rates[position]
    top = ceiling(rate, bucket.shard, now)
    # Halfway through the slack, either clause has the most room for what others do meanwhile.
    over = bucket.tk[position] > top + slack(rate, bucket.shard) // 2
    return Clause.FULL if over else Clause.ACTIVE


def debit(
    table: str,
    ref: BucketRef,
    bucket: Bucket,
    amounts: Sequence[Millitokens],
    now: Milliseconds,
    *,
    fresh: bool = False,
    force: bool = False,
) -> Call:
    """Draws the amounts, all or none. `force` draws into debt; the cap is applied all the same.
    `fresh` says that the bucket was seen within a second.
    """
    values = _identity(bucket)
    clauses: list[Clause | None] = []
    expires = _Expiry(bucket, now)
    for i, amount in enumerate(amounts):
        rate, tk = bucket.limits.rates[i], bucket.tk[i]
        gained = earned(rate, bucket.shard, now)
        floor = -gained if tk >= -gained else tk - rate.cp
        if not amount:
            clauses.append(Clause.FLOOR if expires.possible else None)
            values[f":l{i}"] = _n(floor)
            expires.after(i, floor + gained)
            continue
        top = share(rate.cp, bucket.shard) - gained
        clause = guess(bucket, i, now)
        values[f":c{i}"] = _n(amount)
        if clause is Clause.FULL:
            values[f":h{i}"] = _n(top)
            values[f":d{i}"] = _n(top - amount)
            expires.after(i, top + gained - amount)
        else:
            low = amount - gained
            if force:
                # Of a shard, others may draw meanwhile only what was to stay: a debt that this
                # leaves is one that all shards have their part of.
                low = floor if expires.possible else tk - max(0, tk + gained - amount)
            values[f":l{i}"] = _n(low)
            values[f":h{i}"] = _n(top + slack(rate, bucket.shard))
            values[f":d{i}"] = _n(-amount)
            expires.after(i, low + gained - amount)
        clauses.append(clause)
    return _update(
        table, ref, bucket, clauses, values, now, ttl=expires.moment(), fresh=fresh, force=force
    )


def debit_blind(
    table: str, ref: BucketRef, bucket: Bucket, amounts: Sequence[Millitokens], now: Milliseconds
) -> Call:
    """Draws the amounts whatever the balance: the last resort of a forced debit that kept
    losing races. With the balance unknown, so is the time of expiry: there is none.
    """
    values = _identity(bucket)
    clauses = _blind(amounts, values, sign=-1)
    return _update(table, ref, bucket, clauses, values, now, ttl=None, force=True, keep=False)


def credit(
    table: str, ref: BucketRef, bucket: Bucket, amounts: Sequence[Millitokens], now: Milliseconds
) -> Call:
    """Gives back. The next debit applies the cap. Sent at most once."""
    values = _identity(bucket)
    clauses = _blind(amounts, values, sign=1)
    return _update(table, ref, bucket, clauses, values, now, ttl=None, force=True, repeatable=False)


def create(table: str, ref: BucketRef, bucket: Bucket, now: Milliseconds) -> Call:
    """Makes the item unless it is there."""
    expires = _Expiry(bucket, now)
    for i, rate in enumerate(bucket.limits.rates):
        expires.after(i, bucket.tk[i] + earned(rate, bucket.shard, now))
    return Call(
        "PutItem",
        {
            "TableName": table,
            "Item": bucket_item(ref, bucket, expires.moment()),
            "ConditionExpression": "attribute_not_exists(PK)",
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        },
    )


def relimit(
    table: str, ref: BucketRef, bucket: Bucket, limits: LimitSet, now: Milliseconds
) -> Call:
    """Brings the item in line with other limits. Balances carry over: cut to the old capacity,
    moved by the difference of the accruals, by ADD where others may be drawing.
    """
    values = _identity(bucket)
    conditions = [SAME_BUCKET]
    sets: list[str] = []
    adds: list[str] = []
    removes: list[str] = []
    after = Bucket.full(limits, now, shard=bucket.shard)
    expires = _Expiry(after, now)
    for i, (name, rate) in enumerate(zip(limits.names, limits.rates, strict=True)):
        old = bucket.limits.positions.get(name)
        gained = earned(rate, bucket.shard, now)
        if old is None:
            values |= {f":d{i}": _n(after.tk[i]), f":c{i}": _n(0)}
            sets += [f"b_{name}_tk = :d{i}", f"b_{name}_tc = :c{i}"]
            continue
        was = bucket.limits.rates[old]
        top = ceiling(was, bucket.shard, now)
        moved = earned(was, bucket.shard, now) - gained
        if guess(bucket, old, now) is Clause.FULL:
            conditions.append(f"b_{name}_tk > :h{i}")
            values |= {f":h{i}": _n(top), f":d{i}": _n(top + moved)}
            sets.append(f"b_{name}_tk = :d{i}")
            expires.after(i, top + moved + gained)
        else:
            floor = min(bucket.tk[old], -earned(was, bucket.shard, now)) - was.cp
            conditions.append(f"b_{name}_tk BETWEEN :l{i} AND :h{i}")
            values |= {
                f":l{i}": _n(floor),
                f":h{i}": _n(top + slack(was, bucket.shard)),
                f":d{i}": _n(moved),
            }
            adds.append(f"b_{name}_tk :d{i}")
            expires.after(i, floor + moved + gained)
    # Many limits of long names would make an expression of more than the 4 KB that are allowed.
    short: dict[str, str] = {}
    for k, (name, value) in enumerate(limit_attributes(limits).items()):
        short[f"#s{k}"], values[f":s{k}"] = name, value
        sets.append(f"#s{k} = :s{k}")
    gone = [name for name in bucket.limits.names if name not in limits.positions]
    for k, (name, suffix) in enumerate(product(gone, ("tk", "tc", "cp", "ra", "rp"))):
        short[f"#r{k}"] = f"b_{name}_{suffix}"
        removes.append(f"#r{k}")
    if bucket.limits.mode != "normal" and limits.mode == "normal":
        short["#m"] = "mode"
        removes.append("#m")
    moment = expires.moment()
    if moment is not None:
        values[":ttl"] = _n(moment)
        sets.append("#ttl = :ttl")
    else:
        removes.append("#ttl")
    values |= {":w": _n(-WCU_COST), ":wc": _n(WCU_COST)}
    adds += ["b_wcu_tk :w", "b_wcu_tc :wc"]
    update = f"SET {', '.join(sets)} ADD {', '.join(adds)}"
    if removes:
        update += f" REMOVE {', '.join(removes)}"
    return _request(table, ref, bucket, " AND ".join(conditions), update, values, names=short)


def hand_over(
    table: str, ref: BucketRef, before: Bucket, after: Bucket, now: Milliseconds
) -> dict[str, Any]:
    """The lower half of a split, as an action of a transaction.

    Others may go on drawing meanwhile, but no more than what is to stay. A debt left behind
    would be one that the new shard does not know of.
    """
    values = _identity(before)
    conditions, adds = [SAME_BUCKET], []
    for i, name in enumerate(before.limits.names):
        moved = before.tk[i] - after.tk[i]
        adds.append(f"b_{name}_tk :d{i}")
        values[f":d{i}"] = _n(-moved)
        holds = level(before.balance(i), now)
        if holds < 0:
            # A debt is divided exactly or not at all.
            conditions.append(f"b_{name}_tk = :l{i}")
            values[f":l{i}"] = _n(before.tk[i])
        else:
            conditions.append(f"b_{name}_tk >= :l{i}")
            values[f":l{i}"] = _n(before.tk[i] - max(0, level(after.balance(i), now)))
    values |= {":m": _n(after.shard.n), ":w": _n(-2 * WCU_COST), ":wc": _n(2 * WCU_COST)}
    adds += ["b_wcu_tk :w", "b_wcu_tc :wc"]
    update = f"SET shard_count = :m ADD {', '.join(adds)} REMOVE #ttl"
    return in_transaction(_request(table, ref, before, " AND ".join(conditions), update, values))


def put_shard(table: str, ref: BucketRef, bucket: Bucket) -> dict[str, Any]:
    """The upper half of a split, as an action of a transaction."""
    return {
        "Put": {
            "TableName": table,
            "Item": bucket_item(ref, bucket, None),
            "ConditionExpression": "attribute_not_exists(PK)",
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
    }


def by_hand(
    table: str,
    ref: BucketRef,
    bucket: Bucket,
    update: str,
    values: Mapping[str, Any],
    *,
    cost: Millitokens,
) -> dict[str, Any]:
    """An operator's update of one shard, as an action of a transaction: whatever its balance, as
    long as it is this shard of so many and has these limits. `:w` and `:wc` are what it costs.
    """
    given = _identity(bucket) | {":w": _n(-cost), ":wc": _n(cost)} | dict(values)
    return in_transaction(_request(table, ref, bucket, SAME_BUCKET, update, given))


def merge(
    table: str, ref: BucketRef, lower: Bucket, upper: Bucket, after: Bucket, now: Milliseconds
) -> list[dict[str, Any]]:
    """A merge, as the actions of a transaction: the lower shard takes over, the upper goes. The
    last one makes the bucket whole again, and a whole bucket expires.
    """
    expires = _Expiry(after, now)
    sets, values = ["shard_count = :m"], _unmoved(lower)
    values |= {":m": _n(after.shard.n), ":w": _n(-2 * WCU_COST), ":wc": _n(2 * WCU_COST)}
    for i, name in enumerate(after.limits.names):
        sets.append(f"b_{name}_tk = :d{i}")
        values[f":d{i}"] = _n(after.tk[i])
        expires.after(i, level(after.balance(i), now))
    moment = expires.moment()
    if moment is not None:
        sets.append("#ttl = :ttl")
        values[":ttl"] = _n(moment)
    update = f"SET {', '.join(sets)} ADD b_wcu_tk :w, b_wcu_tc :wc"
    condition = _same_balances(lower)
    gone = {
        "TableName": table,
        "Key": ref.key(upper.shard.i),
        "ConditionExpression": condition,
        "ExpressionAttributeValues": _unmoved(upper),
    }
    return [
        in_transaction(_request(table, ref, lower, condition, update, values)),
        {"Delete": gone},
    ]


def _same_balances(bucket: Bucket) -> str:
    same = [f"b_{name}_tk = :b{i}" for i, name in enumerate(bucket.limits.names)]
    return " AND ".join([SAME_BUCKET, *same])


def _unmoved(bucket: Bucket) -> dict[str, Any]:
    return _identity(bucket) | {f":b{i}": _n(tk) for i, tk in enumerate(bucket.tk)}


def in_transaction(request: Call) -> dict[str, Any]:
    """An update as an action of a transaction."""
    return {"Update": {k: v for k, v in request.params.items() if k != "ReturnValues"}}


class _Expiry:
    """When a bucket is certainly full again, from the least that each limit can hold.

    Only an unsharded bucket expires: clients that held different shard counts could otherwise
    both be right. One with a limit that never refills does not expire either.
    """

    def __init__(self, bucket: Bucket, now: Milliseconds) -> None:
        self._bucket = bucket
        self._now = now
        self._longest = 0
        self.possible = bucket.shard.n == 1 and all(rate.ra for rate in bucket.limits.rates)

    def after(self, position: int, least: int) -> None:
        """The write leaves at least so much in this limit."""
        if self.possible:
            wait = time_to_full(self._bucket.limits.rates[position], self._bucket.shard, least)
            self._longest = max(self._longest, wait or 0)

    def moment(self) -> int | None:
        """Seconds since the epoch."""
        if not self.possible:
            return None
        return (self._now + self._longest) // 1000 + TTL_MARGIN


def _blind(
    amounts: Sequence[Millitokens], values: dict[str, Any], *, sign: int
) -> list[Clause | None]:
    for i, amount in enumerate(amounts):
        if amount:
            values |= {f":d{i}": _n(sign * amount), f":c{i}": _n(-sign * amount)}
    return [Clause.BLIND if amount else None for amount in amounts]


def _identity(bucket: Bucket) -> dict[str, Any]:
    return {
        ":n": _n(bucket.shard.n),
        ":lv": {"S": bucket.limits.fingerprint},
        ":rf": _RF,
    }


def _update(
    table: str,
    ref: BucketRef,
    bucket: Bucket,
    clauses: Sequence[Clause | None],
    values: dict[str, Any],
    now: Milliseconds,
    *,
    ttl: int | None,
    force: bool,
    fresh: bool = False,
    keep: bool = True,
    repeatable: bool = True,
) -> Call:
    wcu = Clause.BLIND
    if not force:
        wcu = _wcu(bucket, values, now, fresh=fresh)
    values |= {":w": values.get(":w", _MINUS_WCU), ":wc": _PLUS_WCU}
    if ttl is not None:
        values[":ttl"] = _n(ttl)
    shape = _shape(bucket.limits.names, tuple(clauses), wcu, ttl is not None, keep)
    needed = {name: value for name, value in values.items() if name in shape[2]}
    return _request(table, ref, bucket, shape[0], shape[1], needed, repeatable=repeatable)


def _wcu(bucket: Bucket, values: dict[str, Any], now: Milliseconds, *, fresh: bool) -> Clause:
    """A lower bound; and a cut where a second's worth or more has piled up over the cap."""
    top = ceiling(WCU, WHOLE, now)
    if fresh and bucket.wcu_tk > top + WCU.cp:
        values |= {":wl": _n(top), ":w": _n(top - WCU_COST)}
        return Clause.FULL
    values[":wl"] = _n(WCU_COST - WCU_GRACE - earned(WCU, WHOLE, now))
    return Clause.FLOOR


@lru_cache(maxsize=4096)
def _shape(
    names: tuple[str, ...],
    clauses: tuple[Clause | None, ...],
    wcu: Clause,
    has_ttl: bool,  # noqa: FBT001 - the cache's key
    keep_ttl: bool,  # noqa: FBT001
) -> tuple[str, str, frozenset[str]]:
    """Condition and update of a write, and the values they use: the same for all buckets of
    these limits, so made once.
    """
    conditions = [SAME_BUCKET]
    sets: list[str] = []
    adds: list[str] = []
    for i, (name, clause) in enumerate(zip(names, clauses, strict=True)):
        if clause is None:
            continue
        if clause.condition:
            conditions.append(clause.condition.format(t=f"b_{name}_tk", i=i))
        if clause.sets is not None:
            (sets if clause.sets else adds).append(
                f"b_{name}_tk = :d{i}" if clause.sets else f"b_{name}_tk :d{i}"
            )
            adds.append(f"b_{name}_tc :c{i}")
    if wcu is Clause.FULL:
        conditions.append("b_wcu_tk > :wl")
        sets.append("b_wcu_tk = :w")
    else:
        adds.append("b_wcu_tk :w")
        if wcu is Clause.FLOOR:
            conditions.append("b_wcu_tk >= :wl")
    adds.append("b_wcu_tc :wc")
    if has_ttl:
        sets.append("#ttl = :ttl")
    update = f"ADD {', '.join(adds)}"
    if sets:
        update = f"SET {', '.join(sets)} {update}"
    if not keep_ttl:
        update += " REMOVE #ttl"
    condition = " AND ".join(conditions)
    words = condition.split() + update.replace(",", " ").split()
    return condition, update, frozenset(word for word in words if word.startswith(":"))


def _request(
    table: str,
    ref: BucketRef,
    bucket: Bucket,
    condition: str,
    update: str,
    values: dict[str, Any],
    *,
    names: Mapping[str, str] = MappingProxyType({}),
    repeatable: bool = True,
) -> Call:
    params: dict[str, Any] = {
        "TableName": table,
        "Key": ref.key(bucket.shard.i),
        "ConditionExpression": condition,
        "UpdateExpression": update,
        "ExpressionAttributeValues": values,
        "ReturnValues": "ALL_NEW",
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }
    if "#" in update:
        params["ExpressionAttributeNames"] = {"#ttl": "ttl", **names}
    return Call("UpdateItem", params, repeatable)


def _n(value: int) -> dict[str, str]:
    return {"N": str(value)}


_RF = _n(BASELINE)
_MINUS_WCU = _n(-WCU_COST)
_PLUS_WCU = _n(WCU_COST)
