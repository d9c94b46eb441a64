"""Real processes, threads and tasks on one bucket: exactly what it holds is admitted."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from headgate import Limit, RateLimiter, RateLimitExceeded, SyncRateLimiter
from tests.limiters import create_table

CAPACITY = 200
# One token a day: nothing that matters comes back while the test runs.
SLOW = [Limit.custom("rpm", capacity=CAPACITY, refill_amount=1, refill_period=86_400)]
OPTIONS = {"namespace_id": "concurrency", "limits": SLOW, "read_timeout": 30}

WORKER = f"""
import sys
from headgate import Limit, RateLimitExceeded, SyncRateLimiter

table, url = sys.argv[1:]
limits = [Limit.custom("rpm", capacity={CAPACITY}, refill_amount=1, refill_period=86_400)]
limiter = SyncRateLimiter(
    table, endpoint_url=url, namespace_id="concurrency", limits=limits, read_timeout=30
)
limiter.resolve_limits("warm", "up")
print("ready", flush=True)
sys.stdin.readline()
admitted = 0
while True:
    try:
        with limiter.acquire("alice", "gpt-4", {{"rpm": 1}}):
            admitted += 1
    except RateLimitExceeded as error:
        if not error.contended:
            break
print(admitted, flush=True)
"""


@pytest.fixture
def table(ministack):
    name = f"table-{uuid.uuid4().hex}"
    create_table(name, ministack.endpoint_url)
    return name


def count(acquire):
    """How many of these acquires pass until the bucket is empty."""
    admitted = 0
    while True:
        try:
            acquire()
        except RateLimitExceeded as error:
            if not error.contended:
                return admitted
        else:
            admitted += 1


def test_eight_processes_are_admitted_exactly_the_capacity(ministack, table):
    command = [sys.executable, "-c", WORKER, table, ministack.endpoint_url]
    workers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(8)
    ]
    try:
        assert {worker.stdout.readline() for worker in workers} == {"ready\n"}
        for worker in workers:
            worker.stdin.write("go\n")
            worker.stdin.flush()
        admitted = [int(worker.communicate(timeout=120)[0]) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()
    assert [worker.returncode for worker in workers] == [0] * 8
    assert sum(admitted) == CAPACITY


def test_eight_threads_of_one_client_are_admitted_exactly_the_capacity(ministack, table):
    start = threading.Barrier(8)
    with SyncRateLimiter(table, endpoint_url=ministack.endpoint_url, **OPTIONS) as limiter:

        def acquire():
            with limiter.acquire("alice", "gpt-4", {"rpm": 1}):
                pass

        def work(_):
            start.wait()
            return count(acquire)

        with ThreadPoolExecutor(8) as pool:
            admitted = list(pool.map(work, range(8)))
        assert sum(admitted) == CAPACITY
        assert limiter.available("alice", "gpt-4") == {"rpm": 0}


async def test_a_hundred_tasks_are_admitted_exactly_the_capacity(ministack, table):
    async with RateLimiter(table, endpoint_url=ministack.endpoint_url, **OPTIONS) as limiter:

        async def work():
            admitted = 0
            while True:
                try:
                    async with limiter.acquire("alice", "gpt-4", {"rpm": 1}):
                        admitted += 1
                except RateLimitExceeded as error:
                    if not error.contended:
                        return admitted

        admitted = await asyncio.gather(*(work() for _ in range(100)))
        assert sum(admitted) == CAPACITY
        assert await limiter.available("alice", "gpt-4") == {"rpm": 0}


async def test_tasks_that_fail_or_are_cancelled_give_everything_back(ministack, table):
    async with RateLimiter(table, endpoint_url=ministack.endpoint_url, **OPTIONS) as limiter:
        held = asyncio.Semaphore(0)

        async def hold(number):
            async with limiter.acquire("alice", "gpt-4", {"rpm": 2}):
                held.release()
                if number % 2:
                    raise ValueError(number)
                await asyncio.Event().wait()

        tasks = [asyncio.create_task(hold(number)) for number in range(20)]
        for _ in tasks:
            await held.acquire()
        for task in tasks[::2]:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(result) for result in results} == {ValueError, asyncio.CancelledError}
        assert await limiter.available("alice", "gpt-4") == {"rpm": CAPACITY}


def test_threads_that_release_what_they_took_leave_the_bucket_full(ministack, table):
    with SyncRateLimiter(table, endpoint_url=ministack.endpoint_url, **OPTIONS) as limiter:

        def borrow(_):
            for _ in range(5):
                with limiter.acquire("alice", "gpt-4", {"rpm": 3}, max_wait=60) as lease:
                    lease.adjust(rpm=2)
                    lease.release(rpm=1)
                    lease.release()

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(borrow, range(8)))
        assert limiter.available("alice", "gpt-4") == {"rpm": CAPACITY}
