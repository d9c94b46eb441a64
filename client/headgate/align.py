"""Bringing buckets in line with the limits that are in force."""

from __future__ import annotations

from headgate import config, writes
from headgate.core import Core, failure
from headgate.effects import Answer, ConditionFailed, Conflicted, Flow
from headgate.errors import LimitsNotFound
from headgate.limit import LimitSet
from headgate.reads import batch_get
from headgate.schema import Bucket, BucketRef

_TRIES = 8


def reconcile(
    core: Core, ref: BucketRef, bucket: Bucket, explicit: LimitSet | None
) -> Flow[Bucket | None]:
    """The bucket with the limits in force: written into it if it is the one behind.

    Resolved strongly, since either side may be behind. None if the item has gone.
    """
    limits = (yield from config.resolve(core, ref, explicit, strong=True)).limits
    for _ in range(_TRIES):
        if bucket.limits == limits:
            break
        (outcome,) = yield from core.call(
            writes.relimit(core.table, ref, bucket, limits, core.now())
        )
        match outcome:
            case Answer(body):
                bucket = core.decoder.bucket(body["Attributes"])
            case ConditionFailed(None):
                core.views.forget(ref, bucket.shard.i)
                return None
            case ConditionFailed(item) if item is not None:
                bucket = core.decoder.bucket(item)
                # Somebody else brought it in line meanwhile, perhaps with something newer.
                limits = (yield from config.resolve(core, ref, explicit, strong=True)).limits
            case Conflicted():
                continue
            case _:
                raise failure(outcome)
    view = core.views.saw(ref, bucket, core.now())
    view.checked, view.epoch = core.now(), core.epoch
    return bucket


def align(core: Core, ref: BucketRef, *, mode_only: bool = False) -> Flow[None]:
    """Brings all shards of a bucket in line, if there is one. `mode_only` leaves its limits as
    they are: they may be ones that its callers bring.
    """
    pending, seen = [0], 0
    while pending:
        items = yield from batch_get(core, [ref.key(shard) for shard in pending], strong=True)
        count = seen
        for item in items.values():
            bucket = core.decoder.bucket(item)
            count = max(count, bucket.shard.n)
            try:
                yield from reconcile(core, ref, bucket, bucket.limits if mode_only else None)
            except LimitsNotFound:
                # The callers of this bucket bring their own limits: only the mode is stored.
                yield from reconcile(core, ref, bucket, bucket.limits)
        seen = max(seen, pending[-1] + 1)
        pending = list(range(seen, count))
    core.views.refusals.pop(ref)
