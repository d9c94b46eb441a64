"""Where a bucket stands as a whole: the sum of its shards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headgate.bucket import (
    WHOLE,
    LimitStatus,
    Milliseconds,
    Millitokens,
    build_limit_status,
    calculate_available,
    limit_status,
    time_to_full,
)
from headgate.errors import CONTENDED_RETRY_AFTER, RateLimitExceeded
from headgate.schema import Bucket, BucketRef

_FOREVER = Milliseconds(400 * 86_400_000)


def statuses(
    buckets: Sequence[Bucket], consume: Mapping[str, Millitokens], now: Milliseconds
) -> tuple[LimitStatus, ...]:
    """The status of every limit, for a request of these amounts to all shards together."""
    limits = buckets[0].limits
    return tuple(
        build_limit_status(name, buckets[0].balance(i), consume.get(name, Millitokens(0)), now)
        if len(buckets) == 1
        else _summed(name, buckets, consume.get(name, Millitokens(0)), now)
        for i, name in enumerate(limits.names)
    )


def retry_after(limits: Sequence[LimitStatus]) -> float | None:
    """When the last of the short limits would pass; None if one of them never will."""
    waits = [status.retry_after for status in limits if status.short]
    return None if None in waits else max((wait for wait in waits if wait is not None), default=0.0)


def exceeded(
    ref: BucketRef,
    buckets: Sequence[Bucket],
    consume: Mapping[str, Millitokens],
    now: Milliseconds,
    *,
    remembered: bool = False,
) -> RateLimitExceeded:
    """The rejection that these balances, or this mode, call for."""
    limits = statuses(buckets, consume, now)
    if buckets[0].limits.mode == "disabled":
        return RateLimitExceeded(
            ref.entity_id,
            ref.resource,
            limits,
            retry_after=None,
            remembered=remembered,
            reason="disabled",
        )
    return RateLimitExceeded(
        ref.entity_id,
        ref.resource,
        limits,
        retry_after=retry_after(limits),
        remembered=remembered,
    )


def contended(ref: BucketRef) -> RateLimitExceeded:
    """The rejection for want of write capacity, not of tokens."""
    return RateLimitExceeded(
        ref.entity_id, ref.resource, (), retry_after=CONTENDED_RETRY_AFTER, contended=True
    )


def _summed(
    name: str, buckets: Sequence[Bucket], amount: Millitokens, now: Milliseconds
) -> LimitStatus:
    balances = [
        bucket.balance(bucket.limits.positions[name])
        for bucket in buckets
        if name in bucket.limits.positions
    ]

    def held(at: int) -> Millitokens:
        return Millitokens(sum(calculate_available(b, Milliseconds(at)) for b in balances))

    rate, holds = balances[0].rate, held(now)
    wait: Milliseconds | None = None
    if held(now + _FOREVER) >= amount:
        low, high = 0, int(_FOREVER)
        while low < high:  # shards fill at different times: no closed form, but monotone
            middle = (low + high) // 2
            if held(now + middle) >= amount:
                high = middle
            else:
                low = middle + 1
        wait = Milliseconds(low)
    full = time_to_full(rate, WHOLE, holds)
    return limit_status(name, rate, holds, amount, wait, full)
