"""What the closest system does when something fails. Each test is one of its scenarios."""

from __future__ import annotations

import asyncio
import logging
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from headgate import (
    Limit,
    RateLimiter,
    RateLimiterUnavailable,
    RateLimitExceeded,
    SyncRateLimiter,
)
from tests.limiters import Async, Sync
from tests.servers import THROTTLE, Do, black_hole, nobody, serving

RPM = [Limit.per_hour("rpm", 1_000)]


def take(limiter, amount=1, entity="alice", **options):
    with limiter.acquire(entity, "gpt-4", {"rpm": amount}, **options) as lease:
        return lease


@pytest.fixture
def before(ministack):
    """A server before the engine, which passes everything on until it is told otherwise."""
    with serving(lambda *_: Do.FORWARD, before=ministack.endpoint_url) as server:
        yield server


def test_throttled_by_dynamodb_with_policy_allow(make, before):
    limiter = make(
        endpoint_url=before.url, limits=[Limit.per_hour("rpm", 5)], on_unavailable="allow"
    )
    take(limiter)
    before.answer = lambda *_: THROTTLE
    for _ in range(20):
        with pytest.raises(RateLimitExceeded) as caught:
            take(limiter, on_unavailable="allow")
        assert caught.value.contended
    before.answer = lambda *_: Do.FORWARD
    assert limiter.available("alice", "gpt-4") == {"rpm": 4}


@pytest.mark.parametrize("kind", [Sync, Async])
def test_refund_whose_answer_was_lost_is_not_repeated(make, before, kind):
    limiter = make(kind, endpoint_url=before.url, limits=[Limit.per_hour("rpm", 100)])
    with limiter.acquire("alice", "gpt-4", {"rpm": 50}) as lease:
        take(limiter, 20)
        answers = [Do.LOSE]
        before.answer = lambda *_: answers.pop() if answers else Do.FORWARD
        sent = len(before.seen)
        assert lease.release(rpm=10) is False
        assert len(before.seen) == sent + 1
    assert limiter.available("alice", "gpt-4") == {"rpm": 40}


@pytest.mark.parametrize("kind", [Sync, Async])
def test_table_unreachable(make, kind):
    with black_hole() as silent:
        for url in (nobody(), silent):
            limiter = make(kind, endpoint_url=url, read_timeout=0.02)
            for count in range(1, 6):
                with pytest.raises(RateLimiterUnavailable):
                    take(limiter)
                assert len(limiter.calls) == 2 * count
            # From here on the breaker decides, and nothing is sent.
            for _ in range(10):
                assert take(limiter, on_unavailable="allow").degraded
            assert len(limiter.calls) == 10


@pytest.mark.parametrize("kind", [SyncRateLimiter, RateLimiter])
def test_the_default_timeouts_add_up_to_two_seconds(kind):
    plain = kind("table")
    assert plain._core.settings.attempts * sum(plain._timeouts.values()) <= 2.0


async def test_cancelled_task(ministack, table):
    """Cancelled inside the lease, and in the request that takes."""
    arrived, answer = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    hold = False

    def held(operation, _body):
        if hold and operation == "UpdateItem":
            loop.call_soon_threadsafe(arrived.set)
            answer.wait(60)
        return Do.FORWARD

    with serving(held, before=ministack.endpoint_url) as server:
        async with RateLimiter(
            table, endpoint_url=server.url, limits=RPM, read_timeout=60
        ) as limiter:

            async def left():
                return (await limiter.available("alice", "gpt-4"))["rpm"]

            entered = asyncio.Event()

            async def work():
                async with limiter.acquire("alice", "gpt-4", {"rpm": 100}) as lease:
                    await lease.adjust(rpm=50)
                    entered.set()
                    await asyncio.Event().wait()

            task = asyncio.create_task(work())
            await entered.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await left() == 1_000

            hold = True
            task = asyncio.create_task(work())
            await arrived.wait()
            task.cancel()
            answer.set()
            with pytest.raises(asyncio.CancelledError):
                await task
            hold = False
            assert await left() == 1_000


def test_entity_caches_are_bounded(make):
    limiter = make(limits=RPM, max_cached=50)
    for number in range(120):
        take(limiter, entity=f"user-{number}")
    core = limiter.limiter._core
    assert len(core.views) <= 50
    assert len(core.views.refusals) <= 50
    assert limiter.cache_stats().size <= 100
    assert len(core.decoder._sets) == 1


class Crowd:
    """Lets nobody through until so many stand there at once."""

    def __init__(self, size):
        self.barrier = threading.Barrier(size)
        self.through = False

    def __call__(self, _operation, _body):
        if not self.through:
            self.barrier.wait(60)
            self.through = True
        return Do.FORWARD


def test_100_concurrent_async_acquires(make, before):
    """All of them are on their way at once: it takes as many connections."""
    limiter = make(Async, endpoint_url=before.url, limits=RPM, read_timeout=60)
    take(limiter)
    before.answer = Crowd(100)

    async def one():
        async with limiter.limiter.acquire("alice", "gpt-4", {"rpm": 1}):
            pass

    async def all_at_once():
        await asyncio.gather(*(one() for _ in range(100)))

    limiter.run(all_at_once())
    assert limiter.available("alice", "gpt-4") == {"rpm": 899}


def test_100_concurrent_acquires_of_threads(make, before):
    limiter = make(endpoint_url=before.url, limits=RPM, read_timeout=60)
    take(limiter)
    before.answer = Crowd(100)
    with ThreadPoolExecutor(100) as pool:
        list(pool.map(lambda _: take(limiter), range(100)))
    assert limiter.available("alice", "gpt-4") == {"rpm": 899}


@pytest.mark.parametrize("kind", [Sync, Async])
def test_no_log_line_on_the_hot_path(make, caplog, capfd, kind):
    limiter = make(kind, limits=[Limit.per_hour("rpm", 20)])
    caplog.set_level(logging.DEBUG, logger="headgate")
    capfd.readouterr()
    for _ in range(10):
        with limiter.acquire("alice", "gpt-4", {"rpm": 1}) as lease:
            lease.adjust(rpm=1)
    for _ in range(3):
        with pytest.raises(RateLimitExceeded):
            take(limiter)
    lease.release()
    with pytest.raises(KeyError), limiter.acquire("alice", "gpt-4", {"rpm": 1}):
        raise KeyError
    limiter.check("alice", "gpt-4", {"rpm": 1})
    assert [record for record in caplog.records if record.name.startswith("headgate")] == []
    assert capfd.readouterr() == ("", "")
