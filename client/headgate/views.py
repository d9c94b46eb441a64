"""What a client remembers of the buckets it has seen, and what it expects of them now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from headgate.bucket import Milliseconds, Millitokens, ceiling
from headgate.cache import Bounded
from headgate.schema import Bucket, BucketRef

FRESH = Milliseconds(1_000)
# Below this share of the refill being drawn by others, an old view's bucket is likely full.
_IDLE_BELOW = 0.5


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
    """One shard as last seen, how fast others draw from it, and what follows from that."""

    bucket: Bucket
    seen: Milliseconds
    others: tuple[float, ...] | None = None  # millitokens per millisecond, by limit
    writes: float = 0.0  # per second, by all clients
    checked: Milliseconds = Milliseconds(0)  # when its limits were last held to be in force
    epoch: int = 0

    def update(self, bucket: Bucket, drew: Sequence[Millitokens] | None, now: Milliseconds) -> None:
        """A newer answer. What `tc` grew by beyond our own draw, others drew."""
        elapsed = now - self.seen
        if bucket.limits is not self.bucket.limits:
            self.others = None
        elif elapsed > 0:
            weight = min(1.0, elapsed / FRESH)
            own = drew or (0,) * len(bucket.tc)
            before = self.others or (0.0,) * len(bucket.tc)
            drawn = [
                max(0, new - old - mine)
                for new, old, mine in zip(bucket.tc, self.bucket.tc, own, strict=True)
            ]
            if any(drawn) or any(before):
                self.others = tuple(
                    was + weight * (amount / elapsed - was)
                    for was, amount in zip(before, drawn, strict=True)
                )
            rate = max(0, bucket.wcu_tc - self.bucket.wcu_tc) / elapsed
            self.writes += weight * (rate - self.writes)
        self.bucket = bucket
        self.seen = max(self.seen, now)

    def expect(self, amounts: Sequence[Millitokens], now: Milliseconds) -> Bucket:
        """The bucket as it probably is now.

        Where our own draws explain all of `tc`, it is as it was. Where others have probably
        drawn since, how busy they are says whether it stands at its cap or under it.
        """
        if self.others is None:
            return self.bucket
        bucket, elapsed = self.bucket, now - self.seen
        tk = list(bucket.tk)
        for i, (rate, amount, pace) in enumerate(
            zip(bucket.limits.rates, amounts, self.others, strict=True)
        ):
            if amount and rate.ra and pace * elapsed * 2 > amount:
                top = ceiling(rate, bucket.shard, now)
                idle = pace * bucket.shard.n * rate.rp < _IDLE_BELOW * rate.ra
                tk[i] = Millitokens(top + rate.cp if idle else min(tk[i], top))
        return replace(bucket, tk=tuple(tk))


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
