"""Buckets spread over several items, so that one key's write rate does not limit a limit.

An item says of itself "shard i of n". Shard 0 is the authority on how many there are; every
other shard is right about its own share at all times, however late it learns: since
share(x, i, n) = share(x, i, 2n) + share(x, i+n, 2n), a shard splits and merges exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headgate import writes
from headgate.align import reconcile
from headgate.bucket import (
    MAX_SHARDS,
    WCU,
    WHOLE,
    Milliseconds,
    Millitokens,
    Shard,
    ceiling,
    earned,
    level,
    share,
)
from headgate.core import Core, failure
from headgate.effects import (
    Answer,
    Call,
    Conflicted,
    Flow,
    Pause,
    Throttled,
    TransactionFailed,
    Unreachable,
)
from headgate.limit import LimitSet
from headgate.reads import batch_get, transact_get
from headgate.schema import Bucket, BucketRef
from headgate.status import contended
from headgate.views import FRESH, View

SPLIT_ABOVE = 0.8  # of the writes a second that one key takes
_GATHERS = 4
_FORCED_GATHERS = 12  # the last resort after these is a debt of one shard
_SPLITS = 3


def parent(index: int) -> int:
    """The shard that this one was split from, and merges into."""
    return index & ~(1 << (index.bit_length() - 1)) if index else 0


# ---------------------------------------------------------------- routing


def of(core: Core, ref: BucketRef, index: int) -> Shard:
    """A shard that was not seen, as shard 0 implies it."""
    return Shard(index, max(core.views.count(ref), index + 1))


def route(core: Core, ref: BucketRef, consume: Mapping[str, Millitokens], now: Milliseconds) -> int:
    """Which shard to draw from: any, but none that was just seen to be short."""
    count = core.views.count(ref)
    if count == 1:
        return 0
    start = core.rng.randrange(count)
    for step in range(count):
        index = (start + step) % count
        view = core.views.get(ref, index)
        if view is None or now - view.seen > FRESH or _suffices(view.bucket, consume, now):
            return index
    return start


def another(core: Core, ref: BucketRef, tried: set[int]) -> Bucket | None:
    """A shard that was not tried, as it probably is."""
    now = core.now()
    left = [index for index in range(core.views.count(ref)) if index not in tried]
    if not left:
        return None
    index = core.rng.choice(left)
    view = core.views.get(ref, index)
    if view is not None:
        return view.bucket
    known = core.views.get(ref) or core.views.get(ref, next(iter(tried)))
    assert known is not None, "a count of several shards came from a view"
    return replace(Bucket.unseen(known.bucket.limits, now), shard=of(core, ref, index))


def too_large(bucket: Bucket, consume: Mapping[str, Millitokens]) -> bool:
    """Whether this shard can never hold so much."""
    return any(
        amount > share(bucket.limits.rates[bucket.limits.positions[name]].cp, bucket.shard)
        for name, amount in consume.items()
    )


def _suffices(bucket: Bucket, consume: Mapping[str, Millitokens], now: Milliseconds) -> bool:
    holds = bucket.available(now)
    return all(
        holds[bucket.limits.positions[name]] >= amount
        for name, amount in consume.items()
        if name in bucket.limits.positions
    )


# ---------------------------------------------------------------- split


def wants_split(view: View) -> bool:
    """Whether this shard's writes come near to what a key takes."""
    return view.writes >= SPLIT_ABOVE * WCU.ra / 1000 and view.bucket.shard.n < MAX_SHARDS


def split(core: Core, ref: BucketRef, bucket: Bucket) -> Flow[None]:
    """Splits this shard, and shard 0 with it, so that others learn of the new count.

    Half of what a shard was seen to hold moves to the new one, provided that nobody drew so
    much meanwhile that this would leave a debt. A shard that keeps losing that race holds
    little by then: the last try moves nothing.
    """
    count = bucket.shard.n
    if count >= MAX_SHARDS:
        return
    pending = {0, bucket.shard.i}
    for attempt in range(_SPLITS):
        now = core.now()
        views = [core.views.get(ref, index) for index in sorted(pending)]
        sources = [view.bucket for view in views if view and view.bucket.shard.n == count]
        if not sources:
            return
        last = attempt == _SPLITS - 1
        outcomes = yield from core.call(
            *(split_request(core, ref, source, now, give=not last) for source in sources)
        )
        for source, outcome in zip(sources, outcomes, strict=True):
            match outcome:
                case Answer():
                    for half in halves(source, now, give=not last):
                        core.views.saw(ref, half, now)
                case TransactionFailed(reasons):
                    for _, item in reasons:
                        if item is not None:
                            core.views.saw(ref, core.decoder.bucket(item), now)
                case Conflicted() | Throttled() | Unreachable():
                    pending.discard(source.shard.i)
                case _:
                    raise failure(outcome)


def halves(bucket: Bucket, now: Milliseconds, *, give: bool = True) -> tuple[Bucket, Bucket]:
    """The two shards that this one becomes. Balance and accrual both divide exactly."""
    count = bucket.shard.n
    lower, upper = Shard(bucket.shard.i, count * 2), Shard(bucket.shard.i + count, count * 2)
    moved = []
    for i, rate in enumerate(bucket.limits.rates):
        holds = level(bucket.balance(i), now)
        # A debt is shared in any case: a shard without one would lend what is not there. Of
        # what is held, so much moves that what stays is not more than the lower half may hold.
        part = 0
        if give or holds < 0:
            part = max(holds // 2, holds - share(rate.cp, lower)) if holds > 0 else holds // 2
        moved.append(Millitokens(part - earned(rate, upper, now)))
    zero = Millitokens(0)
    lower_tk = tuple(Millitokens(tk - gone) for tk, gone in zip(bucket.tk, moved, strict=True))
    return (
        replace(bucket, shard=lower, tk=lower_tk),
        replace(
            bucket,
            shard=upper,
            tk=tuple(moved),
            tc=(zero,) * len(moved),
            wcu_tk=ceiling(WCU, WHOLE, now),
            wcu_tc=zero,
        ),
    )


def split_request(
    core: Core, ref: BucketRef, bucket: Bucket, now: Milliseconds, *, give: bool = True
) -> Call:
    """One transaction: the shard hands over a half, and the new shard is made of it."""
    lower, upper = halves(bucket, now, give=give)
    actions = [
        writes.hand_over(core.table, ref, bucket, lower, now),
        writes.put_shard(core.table, ref, upper),
    ]
    return Call("TransactWriteItems", {"TransactItems": actions, "ClientRequestToken": token(core)})


def token(core: Core) -> str:
    """Makes a transaction safe to repeat."""
    return f"{core.unique.getrandbits(128):032x}"


def missing(core: Core, ref: BucketRef, bucket: Bucket) -> Flow[Bucket]:
    """A shard that should be there is not: it was merged away, or its parent lags behind."""
    source = parent(bucket.shard.i)
    items = yield from batch_get(core, [ref.key(0), ref.key(source)], strong=True)
    now = core.now()
    seen = {}
    for item in items.values():
        found = core.decoder.bucket(item)
        core.views.saw(ref, found, now)
        seen[found.shard.i] = found
    if 0 not in seen:
        core.views.forget(ref)
        return Bucket.unseen(bucket.limits, now)
    lagging = seen.get(source)
    if lagging is not None and lagging.shard.n < seen[0].shard.n:
        yield from split(core, ref, lagging)
    view = core.views.get(ref, bucket.shard.i) or core.views.get(ref)
    assert view is not None
    return view.bucket


# ---------------------------------------------------------------- merge


def merge(core: Core, ref: BucketRef) -> Flow[bool]:
    """Halves the number of shards. False if some pair was busy: then calling again goes on.

    Shard 0 goes first, so that nobody who reads the count from it misses a token: an upper
    shard that is still there says so through its lower one.
    """
    buckets = {bucket.shard.i: bucket for bucket in (yield from read_all(core, ref))}
    count = max((bucket.shard.n for bucket in buckets.values()), default=1)
    done = True
    for low in range(count // 2):
        lower, upper = buckets.get(low), buckets.get(low + count // 2)
        if lower is None or upper is None or lower.limits != upper.limits:
            done = done and lower is not None and lower.shard.n < count
            continue
        if lower.shard.n != count or upper.shard.n != count:
            continue
        (outcome,) = yield from core.call(merge_request(core, ref, lower, upper, core.now()))
        match outcome:
            case Answer():
                core.views.forget(ref, upper.shard.i)
                core.views.forget(ref, low)
            case TransactionFailed() | Conflicted() | Throttled():
                done = False
            case _:
                raise failure(outcome)
    return done


def merged(lower: Bucket, upper: Bucket, now: Milliseconds) -> Bucket:
    """The shard that two become: each cut to its share, then added."""
    shard = Shard(lower.shard.i, lower.shard.n // 2)
    return replace(
        lower,
        shard=shard,
        tk=tuple(
            Millitokens(low + up - earned(rate, shard, now))
            for rate, low, up in zip(
                lower.limits.rates, lower.available(now), upper.available(now), strict=True
            )
        ),
    )


def merge_request(
    core: Core, ref: BucketRef, lower: Bucket, upper: Bucket, now: Milliseconds
) -> Call:
    """One transaction, conditioned on the balances read: quiet shards only.

    The upper shard's `tc` goes with it: what it counted was counted when it was drawn.
    """
    actions = writes.merge(core.table, ref, lower, upper, merged(lower, upper, now), now)
    return Call("TransactWriteItems", {"TransactItems": actions, "ClientRequestToken": token(core)})


# ---------------------------------------------------------------- gather


@dataclass(frozen=True, slots=True)
class Taken:
    """What each shard gave, and the shards as they were seen."""

    drawn: Mapping[int, Mapping[str, Millitokens]]
    buckets: tuple[Bucket, ...]


@dataclass(frozen=True, slots=True)
class Short:
    """All shards together did not suffice."""

    buckets: tuple[Bucket, ...]


def read_all(core: Core, ref: BucketRef) -> Flow[tuple[Bucket, ...]]:
    """All shards at one moment: a transaction, so that no token is seen twice or not at all
    while it moves from one shard to another. Empty if there is no bucket.
    """
    count = core.views.count(ref)
    while True:
        items = yield from transact_get(core, [ref.key(index) for index in range(count)])
        buckets = tuple(core.decoder.bucket(item) for item in items if item is not None)
        most = max((bucket.shard.n for bucket in buckets), default=0)
        if most <= count:
            break
        count = most
    now = core.now()
    for bucket in buckets:
        core.views.saw(ref, bucket, now)
    return buckets


def gather(
    core: Core,
    ref: BucketRef,
    consume: Mapping[str, Millitokens],
    explicit: LimitSet | None,
    *,
    force: bool = False,
) -> Flow[Taken | Short]:
    """Takes from as many shards as it needs, in one transaction. A forced one leaves what it
    cannot cover as a debt of all shards alike.
    """
    for attempt in range(_FORCED_GATHERS if force else _GATHERS):
        if attempt > 1:
            yield Pause(0.005 * 2 ** min(attempt, 6))
        buckets = yield from read_all(core, ref)
        if not buckets:
            break
        if buckets[0].limits.mode == "disabled" and not force:
            return Short(buckets)
        if any(name not in b.limits.positions for b in buckets for name in consume):
            for bucket in buckets:
                yield from reconcile(core, ref, bucket, explicit)
            continue
        now = core.now()
        drawn = allot(buckets, consume, now, force=force)
        if drawn is None:
            return Short(buckets)
        actions = debits(core, ref, buckets, drawn, now, force=force)
        (outcome,) = yield from core.call(
            Call(
                "TransactWriteItems", {"TransactItems": actions, "ClientRequestToken": token(core)}
            )
        )
        match outcome:
            case Answer():
                return Taken(drawn, after(buckets, drawn, now))
            case TransactionFailed() | Conflicted():
                continue
            case Throttled():
                if not force:
                    break
            case _:
                raise failure(outcome)
    raise contended(ref)


def debits(
    core: Core,
    ref: BucketRef,
    buckets: Iterable[Bucket],
    drawn: Mapping[int, Mapping[str, Millitokens]],
    now: Milliseconds,
    *,
    force: bool,
) -> list[dict[str, Any]]:
    """What takes so much from each shard, as actions of a transaction."""
    return [
        writes.in_transaction(
            writes.debit(
                core.table,
                ref,
                bucket,
                bucket.limits.amounts(drawn[bucket.shard.i]),
                now,
                fresh=True,
                force=force,
            )
        )
        for bucket in buckets
        if bucket.shard.i in drawn
    ]


def after(
    buckets: Iterable[Bucket], drawn: Mapping[int, Mapping[str, Millitokens]], now: Milliseconds
) -> tuple[Bucket, ...]:
    """The shards as they are when so much was taken from each."""
    return tuple(
        bucket.drawn(bucket.limits.amounts(drawn.get(bucket.shard.i, {})), now)
        for bucket in buckets
    )


def allot(
    buckets: Sequence[Bucket],
    consume: Mapping[str, Millitokens],
    now: Milliseconds,
    *,
    force: bool = False,
) -> dict[int, dict[str, Millitokens]] | None:
    """How much to take from which shard, the richest first; None if all are too poor."""
    drawn: dict[int, dict[str, Millitokens]] = {}
    for name, amount in consume.items():
        left = int(amount)
        holds = {b.shard.i: b.available(now)[b.limits.positions[name]] for b in buckets}
        spare = sum(holds.values()) - amount
        if spare < 0 and not force:
            return None
        # Shards divide a debt as they divide what accrues, so that all are out of it at once.
        stays = {b.shard.i: share(min(0, spare), b.shard) for b in buckets}
        # Shards that give already come first: the fewer are written to, the cheaper.
        for index in sorted(holds, key=lambda index: (index not in drawn, -holds[index])):
            part = min(left, holds[index] - stays[index])
            if part > 0:
                drawn.setdefault(index, {})[name] = Millitokens(part)
                left -= part
    return drawn
