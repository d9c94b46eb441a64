"""One measurement of one contender in a process of its own.

python worker.py headgate TASK '{"option": ...}'

Runs in the contender's environment: standard library only. The last line that it prints is JSON.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import contenders
from contenders import RESOURCE, Shape, names

BIG: Shape = (10**9, 10**9, 60)
SMALL: Shape = (10, 10, 1)
OTHER = "embeddings"


def mark(name: str) -> None:
    """Begins a chapter at the recorder."""
    request = urllib.request.Request(  # noqa: S310
        os.environ["AWS_ENDPOINT_URL"], b"{}", {"X-Amz-Target": f"Mark.{name}"}
    )
    urllib.request.urlopen(request).close()  # noqa: S310


class Scenario:
    """Prepares, then acquires some times between two marks."""

    def __init__(self, one: Any, name: str, limits: int, times: int) -> None:
        self.one, self.name, self.times = one, name, times
        self.each = dict.fromkeys(names(limits), 1)
        self.limits = limits
        self.seconds: list[float] = []

    def run(self) -> dict[str, Any]:
        kind = self.name
        shape = SMALL if kind in ("refill_due", "idle", "rejection") else BIG
        self.one.configure(self.limits, shape)
        if kind == "two_resources":
            self.one.configure(self.limits, BIG, OTHER)
        getattr(self, f"_{kind}")()
        mark("after")
        return {"seconds": self.seconds}

    def _take(self, who: str, times: int = 1, amount: int = 1, **options: Any) -> None:
        consume = dict.fromkeys(self.each, amount)
        for _ in range(times):
            began = time.perf_counter()
            with self.one.acquire(who, consume, **options):
                pass
            self.seconds.append(time.perf_counter() - began)

    def _measured(self, work: Callable[[], None]) -> None:
        self.seconds.clear()
        mark("measured")
        work()

    def _warm(self) -> None:
        self._take("alice", 5)
        self._measured(lambda: self._take("alice", self.times))

    def _refill_due(self) -> None:
        self._between_pauses(1.2, 8)

    def _idle(self) -> None:
        self._between_pauses(2.5, 10)

    def _between_pauses(self, pause: float, amount: int) -> None:
        """All is drawn, some time passes, and what has accrued is asked for."""
        self._take("alice")
        seconds: list[float] = []
        for _ in range(max(1, self.times // 10)):
            mark("drained")
            with suppress(self.one.exceeded):
                while True:
                    self._take("alice")
            time.sleep(pause)
            self._measured(lambda: self._take("alice", amount=amount))
            seconds += self.seconds
        self.seconds = seconds

    def _first(self) -> None:
        self._take("somebody", 2)
        mark("measured")
        self.seconds.clear()
        for number in range(self.times):
            self._take(f"new-{number}")

    def _cascade(self) -> None:
        self.one.entity("parent")
        self.one.entity("child", "parent")
        self._take("child", 5)
        self._measured(lambda: self._take("child", self.times))

    def _two_resources(self) -> None:
        self._take("alice", 5, also=OTHER)
        self._measured(lambda: self._take("alice", self.times, also=OTHER))

    def _rejection(self) -> None:
        with suppress(self.one.exceeded):
            while True:
                self._take("alice")
        # More than can accrue meanwhile: the first rejection is learnt, the others are counted.
        self._rejected()
        self._measured(lambda: [self._rejected() for _ in range(self.times)] and None)

    def _rejected(self) -> None:
        began = time.perf_counter()
        try:
            with self.one.acquire("alice", dict.fromkeys(self.each, 10)):
                pass
        except self.one.exceeded:
            self.seconds.append(time.perf_counter() - began)

    def _adjust(self) -> None:
        def once() -> None:
            for _ in range(self.times):
                began = time.perf_counter()
                with self.one.acquire("alice", self.each) as lease:
                    lease.adjust(limit0=5)
                self.seconds.append(time.perf_counter() - began)

        self._take("alice", 5)
        self._measured(once)


def scenario(one: Any, *, name: str, limits: int, times: int) -> dict[str, Any]:
    one.create()
    return Scenario(one, name, limits, times).run()


def record(one: Any) -> dict[str, Any]:
    """Warm acquires of all that the replay is to answer."""
    one.create()
    one.configure(2, BIG)
    one.entity("parent")
    one.entity("child", "parent")
    each = dict.fromkeys(names(2), 1)
    for _ in range(4):
        for who in ("alice", "child", "parent"):
            with one.acquire(who, each):
                pass
    return {}


def aggregate(one: Any, *, acquires: int) -> dict[str, Any]:
    """The stream's records of some acquires, given to the aggregator in batches of 100."""
    import boto3  # noqa: PLC0415

    one.create()
    one.configure(2, BIG)
    for _ in range(acquires):
        with one.acquire("alice", dict.fromkeys(names(2), 1)):
            pass
    arn = boto3.client("dynamodb").describe_table(TableName=one.table)["Table"]["LatestStreamArn"]
    streams = boto3.client("dynamodbstreams")
    found: list[Any] = []
    for shard in streams.describe_stream(StreamArn=arn)["StreamDescription"]["Shards"]:
        iterator = streams.get_shard_iterator(
            StreamArn=arn, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
        )["ShardIterator"]
        while iterator:
            page = streams.get_records(ShardIterator=iterator)
            found += page["Records"]
            iterator = page.get("NextShardIterator") if page["Records"] else None
    buckets = [r for r in found if "BUCKET#" in r["dynamodb"]["Keys"]["PK"]["S"]]
    for change in buckets:
        moment = change["dynamodb"].get("ApproximateCreationDateTime")
        if hasattr(moment, "timestamp"):
            change["dynamodb"]["ApproximateCreationDateTime"] = moment.timestamp()
    mark("measured")
    for start in range(0, len(buckets), 100):
        one.aggregate(buckets[start : start + 100])
    mark("after")
    return {"records": len(buckets)}


def cpu(one: Any, *, times: int) -> dict[str, Any]:
    """CPU of an acquire, in microseconds: sync, then async, over sockets."""
    each = dict.fromkeys(names(2), 1)

    def turn(count: int) -> float:
        gc.collect()
        began = time.process_time()
        for _ in range(count):
            with one.acquire("alice", each):
                pass
        return (time.process_time() - began) / count * 1e6

    turn(50)
    blocking = turn(times)

    async def on_a_loop() -> float:
        limiter = one.asynchronous()

        async def some(count: int) -> float:
            gc.collect()
            began = time.process_time()
            for _ in range(count):
                async with limiter.acquire("alice", RESOURCE, each):
                    pass
            return (time.process_time() - began) / count * 1e6

        await some(50)
        spent = await some(times)
        await contenders.closed(limiter)
        return spent

    return {"sync": blocking, "async": asyncio.run(on_a_loop())}


def throughput(
    one: Any, *, tasks: int, threads: int, entity: str, seconds: float
) -> dict[str, Any]:
    """Acquires in a second, by so many tasks of one process, or else threads."""
    each = dict.fromkeys(names(2), 1)
    if threads:
        with one.acquire(entity, each):
            pass
        end = time.perf_counter() + seconds

        def loop(_: int) -> int:
            done = 0
            while time.perf_counter() < end:
                with one.acquire(entity, each):
                    done += 1
            return done

        began = time.perf_counter()
        with ThreadPoolExecutor(threads) as pool:
            count = sum(pool.map(loop, range(threads)))
        return {"rate": count / (time.perf_counter() - began)}

    async def on_a_loop() -> float:
        limiter = one.asynchronous()
        async with limiter.acquire(entity, RESOURCE, each):
            pass
        end = time.perf_counter() + seconds

        async def loop() -> int:
            done = 0
            while time.perf_counter() < end:
                async with limiter.acquire(entity, RESOURCE, each):
                    done += 1
            return done

        began = time.perf_counter()
        count = sum(await asyncio.gather(*(loop() for _ in range(tasks))))
        rate = count / (time.perf_counter() - began)
        await contenders.closed(limiter)
        return rate

    return {"rate": asyncio.run(on_a_loop())}


def main() -> None:
    contender, task, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    one = contenders.KINDS[contender](os.environ["BENCH_TABLE"])  # type: ignore[abstract]
    try:
        found = globals()[task](one, **options)
    except Exception as error:  # noqa: BLE001 - the table says how it failed
        found = {"failed": f"{type(error).__name__}: {error}"[:300]}
    print(json.dumps(found), flush=True)
    # Some contenders leave threads behind that would not end.
    os._exit(0)


if __name__ == "__main__":
    main()
