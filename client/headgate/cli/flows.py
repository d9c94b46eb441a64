"""Reads that only the command makes, and the limiter that has them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from headgate.bucket import LimitStatus
from headgate.core import Core
from headgate.effects import Flow
from headgate.limit import Mode
from headgate.methods import sync
from headgate.namespaces import opened
from headgate.provision import OperationCosts, Provisioner, Record
from headgate.reads import batch_get, query
from headgate.records import LimitsConfig, read_entity, read_limits_config
from headgate.schema import (
    CONFIG,
    META,
    Bucket,
    BucketRef,
    checked_entity,
    checked_resource,
    key,
    parse_bucket_pk,
    pk_entity,
    pk_resource,
)
from headgate.status import statuses


@dataclass(frozen=True, slots=True)
class BucketState:
    """All shards of one bucket, and what was ever written to and drawn from them."""

    entity_id: str
    resource: str
    shards: int
    mode: Mode
    limits: tuple[LimitStatus, ...]
    drawn: dict[str, int]
    writes: int

    @property
    def utilization(self) -> float:
        """How much of its scarcest limit is drawn."""
        return max((1 - s.available / s.capacity for s in self.limits), default=0.0)


def entity_buckets(core: Core, entity_id: str) -> Flow[list[BucketState]]:
    """Where the buckets of an entity stand."""
    who = checked_entity(entity_id)
    ns = yield from opened(core)
    condition = "GSI3PK = :p AND begins_with(GSI3SK, :s)"
    items = yield from query(core, condition, pk_entity(ns, who), "BUCKET#", index="GSI3")
    return (yield from _states(core, [item["PK"]["S"] for item in items]))


def resource_buckets(core: Core, resource: str) -> Flow[list[BucketState]]:
    """Where the buckets of a resource stand, those that are stored."""
    what = checked_resource(resource)
    ns = yield from opened(core)
    condition = "GSI2PK = :p AND begins_with(GSI2SK, :s)"
    items = yield from query(core, condition, pk_resource(ns, what), "BUCKET#", index="GSI2")
    return (yield from _states(core, [item["PK"]["S"] for item in items]))


def _states(core: Core, pks: list[str]) -> Flow[list[BucketState]]:
    found = yield from batch_get(core, [key(pk, "#STATE") for pk in pks])
    by_ref: dict[BucketRef, list[Bucket]] = defaultdict(list)
    for (pk, _), item in sorted(found.items()):
        by_ref[parse_bucket_pk(pk)[0]].append(core.decoder.bucket(item))
    now = core.now()
    return [
        BucketState(
            ref.entity_id,
            ref.resource,
            len(buckets),
            buckets[0].limits.mode,
            statuses(sorted(buckets, key=lambda b: b.shard.i), {}, now),
            {
                name: sum(b.tc[b.limits.positions[name]] for b in buckets) // 1000
                for name in buckets[0].limits.names
            },
            sum(b.wcu_tc for b in buckets) // 1000,
        )
        for ref, buckets in sorted(by_ref.items())
    ]


def everything(core: Core) -> Flow[list[Record]]:
    """All entities, limits and costs of the namespace."""
    ns = yield from opened(core)
    places: list[tuple[str, str]] = []
    for prefix in (f"{ns}/ENTITY#", f"{ns}/RESOURCE#", f"{ns}/SYSTEM#"):
        condition = "GSI4PK = :p AND begins_with(GSI4SK, :s)"
        items = yield from query(core, condition, ns, prefix, index="GSI4")
        places += [(item["PK"]["S"], item["SK"]["S"]) for item in items]
    wanted = [place for place in places if place[1] == META or place[1].startswith(CONFIG)]
    found = yield from batch_get(core, [key(*place) for place in wanted], strong=True)
    records: list[Record] = []
    for (_, sk), item in sorted(found.items()):
        if sk == META:
            records.append(read_entity(item))
        else:
            records += _split(read_limits_config(item))
    return records


def _split(config: LimitsConfig) -> Iterator[Record]:
    if config.limits or config.on_unavailable:
        yield config
    if config.costs and config.resource is not None and config.entity_id is None:
        yield OperationCosts(config.resource, config.costs)


class Operator(Provisioner):
    """The command's limiter."""

    entity_buckets = sync(entity_buckets)
    resource_buckets = sync(resource_buckets)
    everything = sync(everything)
