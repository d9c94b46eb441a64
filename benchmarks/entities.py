"""Many entities in one table: does an acquire cost more when there are more?

On the engine to 100,000 entities, whose buckets are written as the client would have written them.
The engine need not be as indifferent to the size of a table as DynamoDB is, so each acquire is
measured in turns with a bare UpdateItem and a bare GetItem by key, over the same connection. Beyond
that by the meter: requests name an item by its key, so all that can grow is the key.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import boto3

import engine
from benchmarks.lab import Lab, latency
from benchmarks.meter import Change, Meter, item_size
from benchmarks.post import Post
from benchmarks.recorder import recording
from headgate import Limit, SyncRateLimiter
from headgate.bucket import Milliseconds
from headgate.effects import Call
from headgate.limit import LimitSet
from headgate.schema import (
    Bucket,
    BucketRef,
    EntityId,
    NamespaceId,
    Resource,
    bucket_item,
    table_definition,
)

SIZES = (1, 10, 1_000, 100_000)
METERED = (1, 10, 1_000, 100_000, 1_000_000)
NS, RESOURCE = NamespaceId("benchmarks1"), Resource("gpt-4")
LIMITS = [Limit.per_minute("rpm", 10**9), Limit.per_minute("tpm", 10**9)]
CONSUME = {"rpm": 1, "tpm": 1_000}
AT_ONCE = 25  # what BatchWriteItem takes
IDLE = 3_600_000  # milliseconds since the seeded buckets were last drawn from
ROUND = 50  # entities that one limiter acquires for


def ref(number: int) -> BucketRef:
    """The bucket of an entity; ids grow with their number, as counted ones do."""
    return BucketRef(NS, EntityId(f"tenant-{number}"), RESOURCE)


def item(number: int, now: int) -> dict[str, Any]:
    """Its item, as the client made it an hour ago."""
    bucket = Bucket.full(LimitSet(LIMITS), Milliseconds(now - IDLE))
    return bucket_item(ref(number), bucket, (now + 10 * IDLE) // 1000)


class Scale:
    """One table that grows."""

    def __init__(self, lab: Lab) -> None:
        self.lab, self.name = lab, lab.table()
        self.post = Post(lab.url)
        self.rng = random.Random(1)
        self.seeded = 0
        client = boto3.client("dynamodb", endpoint_url=lab.url, region_name=engine.REGION)
        client.create_table(**table_definition(self.name))
        client.close()
        with self.limiter(lab.url) as limiter:
            limiter.set_limits(LIMITS, resource=RESOURCE)

    def limiter(self, url: str) -> SyncRateLimiter:
        """A new one, which has seen no bucket."""
        options: dict[str, Any] = {"region": engine.REGION, "endpoint_url": url}
        return SyncRateLimiter(
            self.name, namespace_id=NS, read_timeout=30, principal="bench", **options
        )

    def grow(self, count: int) -> None:
        """To so many entities."""
        now = time.time_ns() // 1_000_000
        for start in range(self.seeded, count, AT_ONCE):
            puts = [
                {"PutRequest": {"Item": item(number, now)}}
                for number in range(start, min(count, start + AT_ONCE))
            ]
            self.post.ask("BatchWriteItem", {"RequestItems": {self.name: puts}})
        self.seeded = count

    def row(self, samples: int) -> dict[str, Any]:
        """Cost and latency at the size that it has."""
        made: dict[str, Any] = {"entities": self.seeded}
        meter = self.lab.meter(self.name)
        with recording(self.lab.url) as recorder:
            self._acquires(recorder.url, samples // 4, recorder.begin)
        for kind in ("cold", "warm"):
            records = recorder.chapter(kind)
            bill = meter.session(records).per(samples // 4)
            made |= {f"{kind}_{name}": value for name, value in bill.items()}
        for kind, seconds in self._acquires(self.lab.url, samples, lambda _: None).items():
            made |= {f"{kind}_{name}": value for name, value in latency(seconds).items()}
        for kind in ("cold", "warm"):
            made[f"{kind}_of_update"] = made[f"{kind}_p50_ms"] / made["update_p50_ms"]
        return made

    def _acquires(self, url: str, samples: int, begin: Any) -> dict[str, list[float]]:
        found: dict[str, list[float]] = {name: [] for name in ("cold", "warm", "update", "get")}
        while len(found["cold"]) < samples:
            some = min(self.seeded, ROUND, samples - len(found["cold"]))
            chosen = self.rng.sample(range(self.seeded), some)
            with self.limiter(url) as limiter:
                begin("aside")
                # The process's first request reads the configuration, whatever comes after.
                limiter.check("nobody", RESOURCE, CONSUME)
                for number in chosen:
                    self._turn(limiter, number, found, "cold", begin)
                for number in chosen:
                    self._turn(limiter, number, found, "warm", begin)
        return found

    def _turn(
        self,
        limiter: SyncRateLimiter,
        number: int,
        found: Mapping[str, list[float]],
        kind: str,
        begin: Any,
    ) -> None:
        begin(kind)
        began = time.perf_counter()
        with limiter.acquire(ref(number).entity_id, RESOURCE, CONSUME):
            pass
        found[kind].append(time.perf_counter() - began)
        begin("bare")
        other = self.rng.randrange(self.seeded)
        for name, call in bare(self.name, other).items():
            began = time.perf_counter()
            limiter._driver._send(call)  # noqa: SLF001 - the same way, without the limiter
            found[name].append(time.perf_counter() - began)


def bare(table: str, number: int) -> dict[str, Call]:
    """The least that one can ask of an item by its key."""
    key = ref(number).key(0)
    count = {"UpdateExpression": "ADD bare :one", "ExpressionAttributeValues": {":one": {"N": "1"}}}
    return {
        "update": Call("UpdateItem", {"TableName": table, "Key": key, **count}),
        "get": Call("GetItem", {"TableName": table, "Key": key}),
    }


def table(lab: Lab) -> list[dict[str, Any]]:
    """A row for each number of entities on the engine."""
    scale, rows = Scale(lab), []
    try:
        for size in SIZES[:3] if lab.quick else SIZES:
            scale.grow(size)
            rows.append(scale.row(80 if lab.quick else 300))
    finally:
        scale.post.close()
    return rows


def metered(sizes: Iterable[int] = METERED) -> list[dict[str, Any]]:
    """The bill of the entity with the longest id of so many."""
    meter, now = Meter(table_definition("table")), time.time_ns() // 1_000_000
    return [_metered(meter, size, now) for size in sizes]


def _metered(meter: Meter, size: int, now: int) -> dict[str, Any]:
    before = item(size - 1, now)
    drawn = Bucket.full(LimitSet(LIMITS), Milliseconds(now)).drawn(_amounts(), Milliseconds(now))
    after = bucket_item(ref(size - 1), drawn, now // 1000)
    bill = meter.write(Change(before, after))
    return {"entities": size, "item_bytes": item_size(after), "write_units": bill.writes}


def _amounts() -> Sequence[Any]:
    return [amount * 1_000 for amount in CONSUME.values()]
