"""Looking without touching: would it pass, what is left, when would it pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headgate import config, shards
from headgate.bucket import LimitStatus, Millitokens
from headgate.core import Core
from headgate.effects import Flow
from headgate.headers import rate_limit_headers
from headgate.limit import as_amounts
from headgate.namespaces import opened
from headgate.schema import Bucket, BucketRef, checked_entity, checked_resource
from headgate.status import retry_after, statuses


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What an acquire would have been told. `retry_after` is 0.0 if it would pass now and None
    if it never will.
    """

    allowed: bool
    limits: tuple[LimitStatus, ...]
    retry_after: float | None

    def headers(self) -> dict[str, str]:
        """The HTTP headers that say so."""
        return rate_limit_headers(
            self.limits, retry_after=self.retry_after, rejected=not self.allowed
        )


def check(
    core: Core, entity_id: str, resource: str, consume: Mapping[str, int]
) -> Flow[CheckResult]:
    """The dry run of an acquire of this entity's own bucket: reads, and writes nothing."""
    amounts = as_amounts("consume", consume)
    limits = yield from _standing(core, entity_id, resource, amounts)
    allowed = not any(status.short for status in limits)
    return CheckResult(allowed, limits, retry_after(limits))


def available(core: Core, entity_id: str, resource: str) -> Flow[dict[str, int]]:
    """The whole tokens that each limit holds now; negative in debt."""
    limits = yield from _standing(core, entity_id, resource, {})
    return {status.name: status.available for status in limits}


def time_until_available(
    core: Core, entity_id: str, resource: str, consume: Mapping[str, int]
) -> Flow[float | None]:
    """Seconds until these amounts could be acquired if nobody else came: None for never."""
    result = yield from check(core, entity_id, resource, consume)
    return result.retry_after


def _standing(
    core: Core, entity_id: str, resource: str, amounts: Mapping[str, Millitokens]
) -> Flow[tuple[LimitStatus, ...]]:
    who, what = checked_entity(entity_id), checked_resource(resource)
    ns = yield from opened(core)
    ref = BucketRef(ns, who, what)
    buckets = yield from shards.read_all(core, ref)
    if not buckets:
        limits = (yield from config.resolve(core, ref)).limits
        buckets = (Bucket.full(limits, core.now()),)
    buckets[0].limits.amounts(amounts)
    return statuses(buckets, amounts, core.now())
