"""Headgate and the peer behind one interface. Each runs in its own environment, so this file
needs nothing but the standard library until one of them is chosen.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import stub

RESOURCE = "gpt-4"
REGION = "us-east-1"
Shape = tuple[int, int, int]  # capacity, refill amount, refill period in seconds


def names(count: int) -> list[str]:
    """The limits' names."""
    return [f"limit{i}" for i in range(count)]


class Ours:
    """Headgate."""

    requests = 0

    def __init__(self, table: str) -> None:
        self.headgate = importlib.import_module("headgate")
        self.table = table
        self.options: dict[str, Any] = {"namespace_id": "benchmarks1", "read_timeout": 30}
        self.exceeded = self.headgate.RateLimitExceeded
        self.sync = self.headgate.SyncRateLimiter(table, **self.options, principal="bench")

    def create(self) -> None:
        import boto3  # noqa: PLC0415

        schema = importlib.import_module("headgate.schema")
        boto3.client("dynamodb").create_table(**schema.table_definition(self.table))

    def configure(self, shapes: Sequence[Shape], resource: str = RESOURCE) -> None:
        limits = [
            self.headgate.Limit.custom(
                name, capacity=capacity, refill_amount=amount, refill_period=period
            )
            for name, (capacity, amount, period) in zip(names(len(shapes)), shapes, strict=True)
        ]
        self.sync.set_limits(limits, resource=resource)

    def entity(self, name: str, parent: str | None = None) -> None:
        self.sync.create_entity(name, parent_id=parent, cascade=parent is not None)

    def acquire(self, who: str, consume: Mapping[str, int], also: str | None = None) -> Any:
        more = [self.headgate.Request(who, also, consume)] if also else ()
        return self.sync.acquire(who, RESOURCE, consume, also=more)

    def asynchronous(self) -> Any:
        return self.headgate.RateLimiter(self.table, **self.options)

    def connect(self) -> None:
        """All that an SDK does before its first request."""
        self.sync._driver._resolve()  # noqa: SLF001

    def stub(self, answer: bytes) -> None:
        """Every further request of the blocking limiter is answered with this, in the process."""
        stub.into_ours(self.sync, answer)

    async def stub_asynchronous(self, limiter: Any, answer: bytes) -> None:
        stub.into_ours(limiter, answer)

    def counted(self) -> None:
        """From now on `requests` says how many were sent."""
        send = self.sync._driver._send  # noqa: SLF001

        def counting(call: Any) -> Any:
            self.requests += 1
            return send(call)

        self.sync._driver._send = counting  # noqa: SLF001

    def aggregate(self, records: Sequence[Any]) -> None:
        import boto3  # noqa: PLC0415
        from botocore.config import Config  # noqa: PLC0415

        service = importlib.import_module("aggregator.service")
        parse = importlib.import_module("aggregator.records").parse
        once = Config(retries={"total_max_attempts": 1}, max_pool_connections=32)
        made = service.Aggregator.over_boto(
            service.Settings(table=self.table), lambda *_: boto3.client("dynamodb", config=once)
        )
        report = made.process([parse(record) for record in records], lambda: True)
        if report.failed:
            raise RuntimeError(f"the aggregator failed: {report.failed}")


class Peer:
    """zae-limiter."""

    requests = 0

    def __init__(self, table: str) -> None:
        warnings.simplefilter("ignore")
        self.zae = importlib.import_module("zae_limiter")
        self.table = table
        self.exceeded = self.zae.RateLimitExceeded
        options = {"region": REGION, "endpoint_url": os.environ["AWS_ENDPOINT_URL"]}
        repository = importlib.import_module("zae_limiter.sync_repository").SyncRepository
        self.repository = repository(table, **options, _skip_deprecation_warning=True)
        self.sync = self.zae.SyncRateLimiter(repository=self.repository)
        self._options = options

    def create(self) -> None:
        self.repository.create_table()

    def configure(self, shapes: Sequence[Shape], resource: str = RESOURCE) -> None:
        named = zip(names(len(shapes)), shapes, strict=True)
        limits = [self.zae.Limit.custom(name, *shape) for name, shape in named]
        self.repository.set_resource_defaults(resource, limits)

    def entity(self, name: str, parent: str | None = None) -> None:
        self.repository.create_entity(name, parent_id=parent, cascade=parent is not None)

    def acquire(self, who: str, consume: Mapping[str, int], also: str | None = None) -> Any:
        more = {"also": {also: dict(consume)}} if also else {}
        return self.sync.acquire(who, RESOURCE, dict(consume), **more)

    def asynchronous(self) -> Any:
        repository = importlib.import_module("zae_limiter.repository").Repository
        made = repository(self.table, **self._options, _skip_deprecation_warning=True)
        return self.zae.RateLimiter(repository=made)

    def connect(self) -> None:
        self.repository._get_client()  # noqa: SLF001

    def stub(self, answer: bytes) -> None:
        stub.into_botocore(self.repository._get_client(), answer, aio=False)  # noqa: SLF001

    async def stub_asynchronous(self, limiter: Any, answer: bytes) -> None:
        client = await limiter._repository._get_client()  # noqa: SLF001
        stub.into_botocore(client, answer, aio=True)

    def counted(self) -> None:
        def counting(**_: Any) -> None:
            self.requests += 1

        events = self.repository._get_client().meta.events  # noqa: SLF001
        events.register("before-send.dynamodb", counting)

    def aggregate(self, records: Sequence[Any]) -> None:
        # Its default windows; Headgate's are these and the monthly one.
        processor = importlib.import_module("zae_limiter_aggregator.processor")
        processor.process_stream_records(list(records), self.table, ["hourly", "daily"])


KINDS = {"headgate": Ours, "peer": Peer}


async def closed(limiter: Any) -> None:
    """Closes an asyncio limiter of either kind."""
    done = limiter.close()
    if asyncio.iscoroutine(done):
        await done
