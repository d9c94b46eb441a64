"""What a client remembers of the buckets it has seen, and what it expects of them now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp

from headgate.bucket import WCU_COST, Milliseconds, Millitokens, ceiling, slack
from headgate.cache import Bounded
from headgate.schema import Bucket, BucketRef

FRESH = Milliseconds(1_000)
# Over which time the pace of draws is averaged.
_MEMORY = Milliseconds(10_000)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A rejection worth repeating without asking: which amount of which limit was short, and
    until when it will be. `closed` is until when nothing at all passes.
    """

    short: Mapping[str, tuple[Millitokens, Milliseconds]]
    buckets: tuple[Bucket, ...]
    closed: Milliseconds = Milliseconds(0)

    def covers(self, consume: Mapping[str, Millitokens], now: Milliseconds) -> bool:
        """Whether this request would be rejected for the same reason."""
        return now < self.closed or any(
            consume.get(name, 0) >= amount and now < until
            for name, (amount, until) in self.short.items()
        )


@dataclass(slots=True)
class View:
    """One shard as last seen, how fast it is drawn from, and what follows from that."""

    bucket: Bucket
    seen: Milliseconds
    # Millitokens per millisecond, by limit: of other clients, and of all. None: no other ever drew.
    others: tuple[float, ...] | None = None
    total: tuple[float, ...] | None = None
    writes: float = 0.0  # per second, by all clients
    span: int = 0  # how much of the memory the paces were taken over
    checked: Milliseconds = Milliseconds(0)  # when its limits were last held to be in force
    epoch: int = 0

    def update(self, bucket: Bucket, drew: Sequence[Millitokens] | None, now: Milliseconds) -> None:
        """A newer answer. What `tc` grew by beyond our own draw, others drew."""
        elapsed = now - self.seen
        if bucket.limits is not self.bucket.limits:
            self.others, self.total, self.span = None, None, 0
        elif elapsed > 0:
            self._pace(bucket, drew, elapsed)
            rate = max(0, bucket.wcu_tc - self.bucket.wcu_tc) / elapsed
            self.writes += min(1.0, elapsed / FRESH) * (rate - self.writes)
        # A shard that was split has half of the writes to come, and one that was merged twice.
        self.writes *= self.bucket.shard.n / bucket.shard.n
        self.bucket = bucket
        self.seen = max(self.seen, now)

    def _pace(self, bucket: Bucket, drew: Sequence[Millitokens] | None, elapsed: int) -> None:
        self.span = min(_MEMORY, self.span + elapsed)
        weight = min(1.0, elapsed / self.span)
        grown = [max(0, new - old) for new, old in zip(bucket.tc, self.bucket.tc, strict=True)]
        drawn = (
            [max(0, all_ - own) for all_, own in zip(grown, drew, strict=True)] if drew else grown
        )
        self.total = _smoothed(self.total, grown, elapsed, weight)
        if self.others is not None or any(drawn):
            self.others = _smoothed(self.others, drawn, elapsed, weight)

    def expect(self, amounts: Sequence[Millitokens], now: Milliseconds) -> Bucket:
        """The bucket as it probably is now.

        Where our own draws explain all of `tc`, it is as it was. Where others have probably
        drawn since, either that left it under its cap, or it comes and goes there: then how busy
        it is says what is more likely. With `busy` the part of the refill that is drawn, it
        stands at its cap for `1 - busy` of the time; after a draw, for longer than the slack
        only if nobody comes meanwhile.
        """
        if self.others is None:
            return self.bucket
        bucket, elapsed = self.bucket, now - self.seen
        tk = list(bucket.tk)
        writes = max(1, bucket.wcu_tc // WCU_COST)
        for i, (rate, amount, pace, total) in enumerate(
            zip(bucket.limits.rates, amounts, self.others, self.total or self.others, strict=True)
        ):
            drawn = pace * elapsed
            if amount and rate.ra and drawn * 2 > amount:
                top = ceiling(rate, bucket.shard, now)
                busy = total * bucket.shard.n * rate.rp / rate.ra
                # How many draws of the usual size the slack refills.
                draws = slack(rate, bucket.shard) * writes / max(amount, bucket.tc[i])
                idle = busy < (1 - busy) * exp(-busy * draws)
                full = idle and tk[i] - drawn > top
                tk[i] = Millitokens(top + rate.cp if full else min(tk[i], top))
        return replace(bucket, tk=tuple(tk))


def _smoothed(
    before: Sequence[float] | None, amounts: Sequence[int], elapsed: int, weight: float
) -> tuple[float, ...]:
    if before is None:
        before = (0.0,) * len(amounts)
    return tuple(
        was + weight * (amount / elapsed - was) for was, amount in zip(before, amounts, strict=True)
    )


class Views:
    """The views of all buckets, bounded."""

    def __init__(self, most: int) -> None:
        self._views: Bounded[str, View] = Bounded(most)
        self.refusals: Bounded[BucketRef, Refusal] = Bounded(most)

    def __len__(self) -> int:
        return len(self._views)

    def get(self, ref: BucketRef, shard: int = 0) -> View | None:
        """The view of this shard, if it was seen."""
        return self._views.get(ref.pk(shard))

    def count(self, ref: BucketRef) -> int:
        """How many shards there are, as shard 0 said when last seen."""
        view = self.get(ref)
        return view.bucket.shard.n if view else 1

    def saw(
        self,
        ref: BucketRef,
        bucket: Bucket,
        now: Milliseconds,
        drew: Sequence[Millitokens] | None = None,
    ) -> View:
        """Takes in an answer that showed this bucket."""
        pk = ref.pk(bucket.shard.i)
        view = self._views.get(pk)
        if view is None:
            view = View(bucket, now)
            self._views.put(pk, view)
        else:
            view.update(bucket, drew, now)
        return view

    def forget(self, ref: BucketRef, shard: int = 0) -> None:
        """The item is gone."""
        self._views.pop(ref.pk(shard))

    def clear(self) -> None:
        """Everything is forgotten."""
        self._views.clear()
        self.refusals.clear()
