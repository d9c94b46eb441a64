"""Drawing from one bucket: guess, write, and learn from the answer.

expected bucket ──> debit ──> admitted
                      │
                      ├─ other clause holds ──────> debit again, knowing
                      ├─ other limits ────────────> resolve, bring in line, debit again
                      ├─ no item ─────────────────> create it, full less the request
                      ├─ short, one shard ────────> rejected
                      ├─ short, several shards ───> two others, then gather
                      └─ out of writes, throttled ─> split, another shard
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from headgate import config, shards, writes
from headgate.align import reconcile
from headgate.bucket import (
    WCU,
    WCU_COST,
    WCU_GRACE,
    WHOLE,
    Milliseconds,
    Millitokens,
    earned,
)
from headgate.core import Core, failure, logger
from headgate.effects import (
    Answer,
    Call,
    ConditionFailed,
    Conflicted,
    Flow,
    Item,
    Outcome,
    Pause,
    Throttled,
    Unreachable,
)
from headgate.errors import HeadgateError, RateLimitExceeded
from headgate.limit import LimitSet
from headgate.reads import batch_get, keyed
from headgate.records import Place
from headgate.schema import Bucket, BucketRef, EntityId
from headgate.status import contended, exceeded
from headgate.views import FRESH, Refusal, View

MAX_WRITES = 4
MAX_CERTAIN = 12  # of what must be done: each known not to have been before the next is sent
OTHER_SHARDS = 2

Amounts = Mapping[str, Millitokens]


@dataclass(frozen=True, slots=True)
class Grant:
    """What was drawn, and from where: what it takes to give it back."""

    ref: BucketRef
    shard: int
    amounts: Amounts


@dataclass(frozen=True, slots=True)
class Drawn:
    """A successful draw: the grants (several if it was gathered) and the bucket afterwards."""

    grants: tuple[Grant, ...]
    buckets: tuple[Bucket, ...]


class Draw:
    """One draw of some amounts from one bucket.

    `force` draws into debt and is never rejected. `subset` draws only the limits that the
    bucket has: a parent need not limit all that its children do.
    """

    def __init__(
        self,
        core: Core,
        ref: BucketRef,
        consume: Amounts,
        *,
        limits: LimitSet | None = None,
        force: bool = False,
        subset: bool = False,
        shard: int | None = None,
    ) -> None:
        self.core = core
        self.ref = ref
        self.asked = self.consume = consume
        self.subset = subset
        self.explicit = limits
        self.force = self.must = force
        self.shard = shard
        # Limits that are known to be in force, as against guessed or read from the bucket.
        self.wanted = limits
        self.tried: set[int] = set()
        self.at = Milliseconds(0)  # the time that the last write went by
        self.raced = False
        self.beside: tuple[Call, list[Place]] | None = None

    def run(self) -> Flow[Drawn]:
        now = self.core.now()
        if not self.force:
            self._recall(now)
        bucket = yield from self._expected(now)
        for attempt in range(MAX_CERTAIN if self.must else MAX_WRITES):
            bucket = yield from self._admissible(bucket)
            if not self.consume:
                return Drawn((), (bucket,))
            if shards.too_large(bucket, self.consume):
                if bucket.shard.n == 1 and not self.force:
                    bucket = yield from self._confirmed(bucket)
                if bucket.shard.n > 1:
                    return (yield from self._large(bucket))
            outcome = yield from self._write(bucket, fresh=attempt > 0)
            result = yield from self._after(bucket, outcome)
            if isinstance(result, Drawn):
                return result
            bucket = result
        if self.force:
            return (yield from self._forced(bucket))
        raise contended(self.ref)

    def _after(self, bucket: Bucket, outcome: Outcome) -> Flow[Drawn | Bucket]:
        """What was drawn, or the bucket to draw from next."""
        match outcome:
            case Answer(body):
                return self._granted(bucket, body["Attributes"])
            case ConditionFailed(None):
                return (yield from self._absent(bucket))
            case ConditionFailed(item) if item is not None:
                return (yield from self._learn(item))
            case Throttled(of_key=of_key):
                return (yield from self._hot(bucket, of_key=of_key))
            case Conflicted():
                return bucket
            case _:
                raise failure(outcome)

    # ------------------------------------------------------------ before the write

    def _recall(self, now: Milliseconds) -> None:
        refusal = self.core.views.refusals.get(self.ref)
        if refusal is not None and refusal.covers(self.consume, now):
            raise exceeded(self.ref, refusal.buckets, self.consume, now, remembered=True)

    def _expected(self, now: Milliseconds) -> Flow[Bucket]:
        """The bucket as it probably is: from its view, or from the limits it should have."""
        core, ref = self.core, self.ref
        if not core.clock.checked or not core.version_checked:
            # No write by an unchecked clock, and none into a namespace of another schema. This
            # read also brings the stored policy.
            yield from config.warm(core, ref)
            now = core.now()
        index = self.shard if self.shard is not None else shards.route(core, ref, self.consume, now)
        view = core.views.get(ref, index)
        if view is None:
            limits = self.wanted or (yield from self._limits(now))
            self._fit(limits)
            return replace(Bucket.unseen(limits, now), shard=shards.of(core, ref, index))
        self._hold_to_config(view, now)
        bucket = yield from self._settled(view.bucket)
        if bucket is not view.bucket:
            return bucket
        return view.expect(view.bucket.limits.amounts(self.consume), now)

    def _hold_to_config(self, view: View, now: Milliseconds) -> None:
        """Once in the life of the cache, a bucket's limits are compared with the stored ones:
        with what the cache holds, or else with what is read beside the next write.
        """
        core = self.core
        if not view.checked:
            view.checked, view.epoch = config.as_of(core, self.ref, now), core.epoch
        if self.explicit is not None:
            self.wanted = self.explicit.in_mode(view.bucket.limits.mode)
        due = now - view.checked >= core.settings.config_ttl * 1000 or view.epoch != core.epoch
        if not due:
            return
        resolution = config.known(core, self.ref, now, self.explicit)
        if resolution is None:
            self.beside = config.refresh(core, self.ref, now)
        else:
            self.wanted = resolution.limits
            view.checked, view.epoch = config.as_of(core, self.ref, now), core.epoch

    def _settled(self, bucket: Bucket) -> Flow[Bucket]:
        """The bucket with limits that this draw can go by."""
        if self._out_of_line(bucket):
            settled = yield from reconcile(self.core, self.ref, bucket, self.explicit)
            bucket = settled or Bucket.unseen(self.wanted or bucket.limits, self.core.now())
            self.wanted = bucket.limits
        self._fit(bucket.limits)
        return bucket

    def _admissible(self, bucket: Bucket) -> Flow[Bucket]:
        """The bucket, if its mode lets anything pass. A disabled one is never written to, so what
        is stored is asked each time that the rejection is not remembered.
        """
        core, ref = self.core, self.ref
        if bucket.limits.mode == "disabled" and not self.must:
            self.wanted = (yield from config.resolve(core, ref, self.explicit, strong=True)).limits
            if self.wanted.mode == "disabled":
                raise self._rejected((bucket,), core.now())
            bucket = yield from self._settled(bucket)
        self.force = self.must or bucket.limits.mode == "bypass"
        return bucket

    def _out_of_line(self, bucket: Bucket) -> bool:
        if self.wanted is not None:
            return bucket.limits != self.wanted
        return not self.subset and any(name not in bucket.limits.positions for name in self.consume)

    def _fit(self, limits: LimitSet) -> None:
        if self.subset:
            self.consume = {n: a for n, a in self.asked.items() if n in limits.positions}
        limits.amounts(self.consume)

    def _limits(self, now: Milliseconds) -> Flow[LimitSet]:
        known = config.known(self.core, self.ref, now)
        if known is not None:
            self.wanted = known.limits
            return known.limits
        guessed = config.guess(self.core, self.ref, now)
        if guessed is not None and (
            self.subset or all(name in guessed.positions for name in self.consume)
        ):
            return guessed
        self.wanted = (yield from config.resolve(self.core, self.ref)).limits
        return self.wanted

    def _write(self, bucket: Bucket, *, fresh: bool) -> Flow[Outcome]:
        core, now = self.core, self.core.now()
        self.at = now
        view = core.views.get(self.ref, bucket.shard.i)
        request = writes.debit(
            core.table,
            self.ref,
            bucket,
            bucket.limits.amounts(self.consume),
            now,
            fresh=fresh or (view is not None and now - view.seen < FRESH),
            # A debt of one shard would be one that the others do not know of: gather spreads it.
            force=self.force and bucket.shard.n == 1,
        )
        if self.beside is None:
            (outcome,) = yield from core.call(request)
            return outcome
        (read, places), self.beside = self.beside, None
        outcome, answer = yield from core.call(request, read)
        if isinstance(answer, Answer) and not answer.body.get("UnprocessedKeys"):
            config.absorb(core, places, keyed(answer.body["Responses"].get(core.table, ())))
        return outcome

    def _confirmed(self, bucket: Bucket) -> Flow[Bucket]:
        """The request is larger than the capacity, as far as that is known: rejected for good,
        unless the limits in force are larger.
        """
        core, ref = self.core, self.ref
        for seen in (yield from shards.read_all(core, ref)):
            if seen.shard.i == 0:
                bucket = (yield from reconcile(core, ref, seen, self.explicit)) or bucket
                break
        else:
            limits = (yield from config.resolve(core, ref, self.explicit, strong=True)).limits
            bucket = Bucket.unseen(limits, core.now())
        self._fit(bucket.limits)
        bucket = yield from self._admissible(bucket)
        if shards.too_large(bucket, self.consume) and bucket.shard.n == 1 and not self.force:
            raise self._rejected((bucket,), core.now())
        return bucket

    # ------------------------------------------------------------ after the write

    def _granted(self, bucket: Bucket, item: Item) -> Drawn:
        core, now = self.core, self.core.now()
        after = core.decoder.bucket(item)
        core.views.saw(self.ref, after, now, bucket.limits.amounts(self.consume))
        return Drawn((Grant(self.ref, after.shard.i, self.consume),), (after,))

    def upkeep(self, drawn: Drawn) -> Flow[None]:
        """What the answer showed to be due: other limits, a split. The draw stands, whatever
        becomes of this; the next one tries again.
        """
        core, after = self.core, drawn.buckets[0]
        view = core.views.get(self.ref, after.shard.i)
        if view is None or view.bucket is not after:
            return
        self._hold_to_config(view, core.now())
        self.beside = None
        try:
            if self._out_of_line(after):
                yield from reconcile(core, self.ref, after, self.explicit)
            if shards.wants_split(view):
                yield from shards.split(core, self.ref, after)
        except HeadgateError as error:
            view.epoch = -1
            logger.info("upkeep of a bucket of %s was put off: %s", self.ref.resource, error)

    def _learn(self, item: Item) -> Flow[Bucket | Drawn]:
        """The condition failed and this is the item. Raises the rejection if it is one."""
        core, now = self.core, self.core.now()
        bucket = core.decoder.bucket(item)
        self._hold_to_config(core.views.saw(self.ref, bucket, now), now)
        bucket = yield from self._admissible((yield from self._settled(bucket)))
        amounts = bucket.limits.amounts(self.consume)
        now = core.now()
        hot = bucket.wcu_tk + earned(WCU, WHOLE, now) < WCU_COST - WCU_GRACE
        if hot and not self.force:
            return (yield from self._hot(bucket, of_key=True))
        if not hot and _covers(bucket, amounts, now):
            return bucket if _covers(bucket, amounts, self.at) else (yield from self._raced(bucket))
        if bucket.shard.n == 1:
            if self.force:
                return bucket
            raise self._rejected((bucket,), now)
        self.tried.add(bucket.shard.i)
        if len(self.tried) <= OTHER_SHARDS and not self.force:
            other = shards.another(core, self.ref, self.tried)
            if other is not None:
                return (yield from self._settled(other))
        return (yield from self._large(bucket))

    def _raced(self, bucket: Bucket) -> Flow[Bucket]:
        """Short when this was sent and no longer: others are after the same tokens. Once more."""
        if self.force:
            return bucket
        if self.raced:
            raise contended(self.ref)
        self.raced = True
        self.tried.add(bucket.shard.i)
        other = shards.another(self.core, self.ref, self.tried)
        return bucket if other is None else (yield from self._settled(other))

    def _large(self, bucket: Bucket) -> Flow[Drawn]:
        """More than this shard has: from all of them together."""
        if self.force:
            return (yield from self._forced(bucket))
        return (yield from self._gather())

    def _rejected(self, buckets: Sequence[Bucket], now: Milliseconds) -> Exception:
        error = exceeded(self.ref, buckets, self.consume, now)
        memory = self.core.settings.rejection_memory
        if error.reason is not None and memory > 0:
            closed = Milliseconds(now + int(memory * 1000))
            self.core.views.refusals.put(self.ref, Refusal({}, tuple(buckets), closed))
            return error
        short = {}
        for status in error.violations:
            wait = memory if status.retry_after is None else min(memory, status.retry_after)
            if wait > 0:
                until = Milliseconds(now + int(wait * 1000))
                short[status.name] = self.consume[status.name], until
        if short:
            self.core.views.refusals.put(self.ref, Refusal(short, tuple(buckets)))
        return error

    def _gather(self) -> Flow[Drawn]:
        core, ref = self.core, self.ref
        taken = yield from shards.gather(core, ref, self.consume, self.explicit, force=self.force)
        if isinstance(taken, shards.Short) and taken.buckets[0].limits.mode == "disabled":
            # Rejected, unless the shards are the ones behind. Then once more.
            for bucket in taken.buckets:
                yield from self._admissible(bucket)
            taken = yield from shards.gather(
                core, ref, self.consume, self.explicit, force=self.force
            )
        if isinstance(taken, shards.Short):
            raise self._rejected(taken.buckets, self.core.now())
        grants = tuple(Grant(self.ref, shard, amounts) for shard, amounts in taken.drawn.items())
        return Drawn(grants, taken.buckets)

    def _forced(self, bucket: Bucket) -> Flow[Drawn]:
        """What must be drawn and kept losing races: from all shards, or else from this one
        whatever it holds.
        """
        if bucket.shard.n > 1:
            try:
                return (yield from self._gather())
            except RateLimitExceeded:
                pass
        core = self.core
        amounts = bucket.limits.amounts(self.consume)
        request = writes.debit_blind(core.table, self.ref, bucket, amounts, core.now())
        answer = yield from core.ask(request)
        return self._granted(bucket, answer.body["Attributes"])

    def _hot(self, bucket: Bucket, *, of_key: bool) -> Flow[Bucket]:
        """This key takes no more writes: split it, and go elsewhere."""
        core = self.core
        if of_key:
            yield from shards.split(core, self.ref, bucket)
        self.tried.add(bucket.shard.i)
        other = shards.another(core, self.ref, self.tried)
        if other is None:
            if self.force:
                return bucket
            raise contended(self.ref)
        return (yield from self._settled(other))

    # ------------------------------------------------------------ no item

    def _absent(self, bucket: Bucket) -> Flow[Drawn | Bucket]:
        core, ref = self.core, self.ref
        core.views.forget(ref, bucket.shard.i)
        if bucket.shard.i:
            found = yield from shards.missing(core, ref, bucket)
            return (yield from self._settled(found))
        full = yield from unmade(core, ref, self.explicit)
        limits, now = full.limits, core.now()
        self.wanted = limits
        self._fit(limits)
        amounts = limits.amounts(self.consume)
        self.force = self.must or limits.mode == "bypass"
        if limits.mode == "disabled" and not self.must:
            raise self._rejected((full,), now)
        if not self.force and any(a > r.cp for a, r in zip(amounts, limits.rates, strict=True)):
            raise exceeded(ref, (full,), self.consume, now)
        after = full.drawn(amounts, now)
        (outcome,) = yield from core.call(writes.create(core.table, ref, after, now))
        match outcome:
            case Answer():
                view = core.views.saw(ref, after, now)
                view.checked, view.epoch = config.as_of(core, ref, now), core.epoch
                return Drawn((Grant(ref, 0, self.consume),), (after,))
            case ConditionFailed(item) if item is not None:
                return (yield from self._learn(item))
            case ConditionFailed() | Conflicted():
                return full
            case Throttled():
                raise contended(ref)
            case _:
                raise failure(outcome)


def unmade(core: Core, ref: BucketRef, explicit: LimitSet | None = None) -> Flow[Bucket]:
    """A bucket that is not there, as it is to be made: full."""
    limits, entity = yield from config.for_creation(core, ref, explicit)
    return Bucket.full(
        limits,
        core.now(),
        cascade=entity is not None and entity.cascade,
        parent_id=EntityId(entity.parent_id) if entity and entity.parent_id else None,
    )


def _covers(bucket: Bucket, amounts: Sequence[Millitokens], now: Milliseconds) -> bool:
    return all(not a or a <= b for a, b in zip(amounts, bucket.available(now), strict=True))


def give_back(core: Core, grant: Grant, amounts: Amounts) -> Flow[bool]:
    """Returns amounts to the shard they were drawn from, or to the one it merged into.

    Sent again only where it is certain that it was not done. False if that is not known:
    then it counts as done, and the bucket is at worst poorer than it should be.
    """
    ref, shard = grant.ref, grant.shard
    core.views.refusals.pop(ref)
    for attempt in range(MAX_CERTAIN):
        bucket = yield from _seen(core, ref, shard)
        if bucket is not None:
            (outcome,) = yield from core.call(_credit(core, ref, bucket, amounts))
            match outcome:
                case Answer(body):
                    core.views.saw(ref, core.decoder.bucket(body["Attributes"]), core.now())
                    return True
                case ConditionFailed(item) if item is not None:
                    core.views.saw(ref, core.decoder.bucket(item), core.now())
                    continue
                case ConditionFailed(None):
                    core.views.forget(ref, shard)
                case Conflicted() | Throttled():
                    yield Pause(0.005 * 2 ** min(attempt, 6))
                    continue
                case Unreachable():
                    return False
                case _:
                    raise failure(outcome)
        if shard == 0:
            return True  # it expired, so it is full: there is nothing to return to
        shard = shards.parent(shard)
    return False


def _seen(core: Core, ref: BucketRef, shard: int) -> Flow[Bucket | None]:
    view = core.views.get(ref, shard)
    if view is not None:
        return view.bucket
    items = yield from batch_get(core, [ref.key(shard)], strong=True)
    return core.decoder.bucket(next(iter(items.values()))) if items else None


def _credit(core: Core, ref: BucketRef, bucket: Bucket, amounts: Amounts) -> Call:
    kept = {name: a for name, a in amounts.items() if name in bucket.limits.positions}
    return writes.credit(core.table, ref, bucket, bucket.limits.amounts(kept), core.now())
