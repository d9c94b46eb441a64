"""How full the buckets of a resource are: what an operator looks at before raising a limit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headgate.bucket import LimitStatus
from headgate.core import Core
from headgate.effects import Flow
from headgate.errors import ValidationError
from headgate.limit import whole
from headgate.namespaces import opened
from headgate.reads import batch_get
from headgate.schema import Bucket, EntityId, checked_entity, checked_resource, pk_resource
from headgate.status import statuses
from headgate.usage import MAX_PAGE, query_some

_NEXT = "$"  # the character after `#`: sorts after every shard of an entity
_KEYS = 2_000  # of shards, read from the index at once


@dataclass(frozen=True, slots=True)
class BucketCapacity:
    """One entity's bucket, all of its shards together."""

    entity_id: str
    shards: int
    limits: tuple[LimitStatus, ...]


@dataclass(frozen=True, slots=True)
class LimitCapacity:
    """One limit over several buckets, in whole tokens."""

    capacity: int
    available: int
    buckets: int

    @property
    def utilization(self) -> float:
        """The part that is drawn: 0.0 when all buckets are full, over 1.0 in debt."""
        return 1 - self.available / self.capacity


@dataclass(frozen=True, slots=True)
class ResourceCapacity:
    """Some buckets of a resource in order of their entities, and the cursor that continues."""

    resource: str
    buckets: tuple[BucketCapacity, ...]
    cursor: str | None

    @property
    def limits(self) -> Mapping[str, LimitCapacity]:
        """The limits of these buckets, added up by name."""
        by_name: dict[str, list[LimitStatus]] = defaultdict(list)
        for bucket in self.buckets:
            for status in bucket.limits:
                by_name[status.name].append(status)
        return {
            name: LimitCapacity(
                sum(status.capacity for status in found),
                sum(status.available for status in found),
                len(found),
            )
            for name, found in sorted(by_name.items())
        }


def get_resource_capacity(
    core: Core, resource: str, *, limit: int = 100, cursor: str | None = None
) -> Flow[ResourceCapacity]:
    """Where the buckets of a resource stand, at most `limit` of them at once. A bucket that is
    not listed has not been used lately: it is full.
    """
    what = checked_resource(resource)
    whole("limit", limit, most=MAX_PAGE)
    after = "BUCKET#"
    if cursor is not None:
        try:
            after = f"BUCKET#{checked_entity(cursor)}{_NEXT}"
        except ValidationError:
            raise ValidationError(f"cursor is not one that this query gave: {cursor!r}") from None
    ns = yield from opened(core)
    values = {":p": pk_resource(ns, what), ":a": after, ":b": f"BUCKET{_NEXT}"}
    query = {
        "IndexName": "GSI2",
        "KeyConditionExpression": "GSI2PK = :p AND GSI2SK BETWEEN :a AND :b",
        "ExpressionAttributeValues": {name: {"S": value} for name, value in values.items()},
    }
    items, more = yield from query_some(core, query, _KEYS)
    who = [EntityId(item["GSI2SK"]["S"].split("#")[1]) for item in items]
    # The last entity of a part that goes on may have more shards than were read.
    complete = list(dict.fromkeys(who[: who.index(who[-1])] if more else who))
    page = complete[:limit]
    wanted = set(page)
    keys = [
        {"PK": item["PK"], "SK": item["SK"]}
        for item, entity in zip(items, who, strict=True)
        if entity in wanted
    ]
    stored = yield from batch_get(core, keys)
    found: dict[EntityId, list[Bucket]] = defaultdict(list)
    for item in stored.values():
        found[EntityId(item["entity_id"]["S"])].append(core.decoder.bucket(item))
    buckets = tuple(
        BucketCapacity(
            entity, len(found[entity]), statuses(_in_order(found[entity]), {}, core.now())
        )
        for entity in page
        if entity in found
    )
    going_on = more or len(complete) > len(page)
    return ResourceCapacity(what, buckets, page[-1] if going_on else None)


def _in_order(buckets: Iterable[Bucket]) -> list[Bucket]:
    return sorted(buckets, key=lambda bucket: bucket.shard.i)
