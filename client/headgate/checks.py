"""Looking without touching: would it pass, what is left, when would it pass."""

from __future__ import annotations

from dataclasses import dataclass

from headgate import config, costs, shards
from headgate.bucket import LimitStatus, Millitokens
from headgate.core import Core
from headgate.costs import Consume
from headgate.effects import Flow
from headgate.headers import rate_limit_headers
from headgate.limit import Mode
from headgate.namespaces import opened
from headgate.schema import Bucket, BucketRef, checked_entity, checked_resource
from headgate.status import retry_after, statuses


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What an acquire would have been told. `retry_after` is 0.0 if it would pass now and None
    if it never will. In the mode "disabled" nothing passes, in "bypass" everything does.
    """

    allowed: bool
    limits: tuple[LimitStatus, ...]
    retry_after: float | None
    mode: Mode = "normal"

    def headers(self) -> dict[str, str]:
        """The HTTP headers that say so."""
        return rate_limit_headers(
            self.limits, retry_after=self.retry_after, rejected=not self.allowed
        )


@dataclass(frozen=True, slots=True)
class _Standing:
    limits: tuple[LimitStatus, ...]
    mode: Mode


def check(core: Core, entity_id: str, resource: str, consume: Consume) -> Flow[CheckResult]:
    """The dry run of an acquire of this entity's own bucket: reads, and writes nothing."""
    costs.checked_consume(consume)
    seen = yield from _standing(core, entity_id, resource, consume)
    short = any(status.short for status in seen.limits)
    if seen.mode == "disabled":
        return CheckResult(allowed=False, limits=seen.limits, retry_after=None, mode=seen.mode)
    if seen.mode == "bypass":
        return CheckResult(allowed=True, limits=seen.limits, retry_after=0.0, mode=seen.mode)
    return CheckResult(not short, seen.limits, retry_after(seen.limits))


def available(core: Core, entity_id: str, resource: str) -> Flow[dict[str, int]]:
    """The whole tokens that each limit holds now; negative in debt."""
    seen = yield from _standing(core, entity_id, resource, None)
    return {status.name: status.available for status in seen.limits}


def time_until_available(
    core: Core, entity_id: str, resource: str, consume: Consume
) -> Flow[float | None]:
    """Seconds until these amounts could be acquired if nobody else came: None for never."""
    result = yield from check(core, entity_id, resource, consume)
    return result.retry_after


def _standing(
    core: Core, entity_id: str, resource: str, consume: Consume | None
) -> Flow[_Standing]:
    who, what = checked_entity(entity_id), checked_resource(resource)
    ns = yield from opened(core)
    ref = BucketRef(ns, who, what)
    amounts: dict[str, Millitokens] = {}
    if consume is not None:
        amounts = yield from costs.amounts(core, ref, consume)
    buckets = yield from shards.read_all(core, ref)
    stored = config.known(core, ref, core.now())
    mode = stored.limits.mode if stored else None
    if not buckets:
        limits = (yield from config.resolve(core, ref)).limits
        buckets = (Bucket.full(limits, core.now()),)
        mode = limits.mode
    buckets[0].limits.amounts(amounts)
    seen = statuses(buckets, amounts, core.now())
    return _Standing(seen, mode or buckets[0].limits.mode)
