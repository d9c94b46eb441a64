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
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import contenders
from contenders import RESOURCE, names
from crowd import crowd
from marks import mark
from scenario import BIG, Scenario

EACH = dict.fromkeys(names(2), 1)


def scenario(one: Any, *, name: str, limits: int, times: int) -> dict[str, Any]:
    """Requests and latencies of one kind of acquire."""
    one.create()
    return Scenario(one, name, limits, times).run()


def record(one: Any) -> dict[str, Any]:
    """Warm acquires of all that the replay is to answer."""
    one.create()
    one.configure([BIG] * 2)
    one.entity("parent")
    one.entity("child", "parent")
    for _ in range(4):
        for who in ("alice", "child", "parent"):
            with one.acquire(who, EACH):
                pass
    return {}


def aggregate(one: Any, *, acquires: int) -> dict[str, Any]:
    """The stream's records of some acquires, given to the aggregator in batches of 100."""
    import boto3  # noqa: PLC0415

    one.create()
    one.configure([BIG] * 2)
    for _ in range(acquires):
        with one.acquire("alice", EACH):
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


def cpu(one: Any, *, times: int, replies: str) -> dict[str, Any]:
    """CPU of an acquire, in microseconds: over sockets, and with an answer from `replies` that
    takes none; blocking and on an event loop.
    """
    answers = json.loads(Path(replies).read_text())
    answer = json.dumps(next(b for k, b in answers.items() if _warm(k))).encode()

    def turn(count: int) -> float:
        gc.collect()
        began = time.process_time()
        for _ in range(count):
            with one.acquire("alice", EACH):
                pass
        return (time.process_time() - began) / count * 1e6

    async def on_a_loop() -> tuple[float, float]:
        limiter = one.asynchronous()

        async def turn(count: int) -> float:
            gc.collect()
            began = time.process_time()
            for _ in range(count):
                async with limiter.acquire("alice", RESOURCE, EACH):
                    pass
            return (time.process_time() - began) / count * 1e6

        await turn(50)
        over_sockets = await turn(times)
        await one.stub_asynchronous(limiter, answer)
        await turn(50)
        stubbed = await turn(times)
        await contenders.closed(limiter)
        return over_sockets, stubbed

    turn(50)
    found = {"sync": turn(times)}
    one.stub(answer)
    turn(50)
    found["stub_sync"] = turn(times)
    found["async"], found["stub_async"] = asyncio.run(on_a_loop())
    return found


def _warm(key: str) -> bool:
    return key.startswith("UpdateItem ") and "BUCKET#alice#" in key


def memory(one: Any, *, entities: int) -> dict[str, Any]:
    """Bytes that a process keeps of an entity that it has acquired for, first acquire and all."""
    one.create()
    one.configure([BIG] * 2)

    def some(first: int, count: int) -> None:
        for number in range(first, first + count):
            with one.acquire(f"entity-{number:029d}", EACH):
                pass
        gc.collect()

    some(0, 100)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    some(100, entities)
    return {"bytes": (tracemalloc.get_traced_memory()[0] - before) / entities}


def throughput(
    one: Any, *, tasks: int, threads: int, entity: str, seconds: float
) -> dict[str, Any]:
    """Acquires in a second, by so many tasks of one process, or else threads."""
    if threads:
        with one.acquire(entity, EACH):
            pass
        end = time.perf_counter() + seconds

        def loop(_: int) -> int:
            done = 0
            while time.perf_counter() < end:
                with one.acquire(entity, EACH):
                    done += 1
            return done

        began = time.perf_counter()
        with ThreadPoolExecutor(threads) as pool:
            count = sum(pool.map(loop, range(threads)))
        return {"rate": count / (time.perf_counter() - began)}

    async def on_a_loop() -> float:
        limiter = one.asynchronous()
        async with limiter.acquire(entity, RESOURCE, EACH):
            pass
        end = time.perf_counter() + seconds

        async def loop() -> int:
            done = 0
            while time.perf_counter() < end:
                async with limiter.acquire(entity, RESOURCE, EACH):
                    done += 1
            return done

        began = time.perf_counter()
        count = sum(await asyncio.gather(*(loop() for _ in range(tasks))))
        rate = count / (time.perf_counter() - began)
        await contenders.closed(limiter)
        return rate

    return {"rate": asyncio.run(on_a_loop())}


TASKS = {
    task.__name__: task for task in (scenario, record, aggregate, cpu, memory, throughput, crowd)
}


def main() -> None:
    contender, task, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    one = contenders.KINDS[contender](os.environ["BENCH_TABLE"])  # type: ignore[abstract]
    try:
        found = TASKS[task](one, **options)
    except Exception as error:  # noqa: BLE001 - the table says how it failed
        found = {"failed": f"{type(error).__name__}: {error}"[:300]}
    print(json.dumps(found), flush=True)
    # Some contenders leave threads behind that would not end.
    os._exit(0)


if __name__ == "__main__":
    main()
