"""Shards on a real engine, under real processes: exact at any count, none of it out of reach."""

from __future__ import annotations

import multiprocessing
import uuid
from concurrent.futures import ProcessPoolExecutor, as_completed

import boto3
import pytest

from headgate import Limit, RateLimitExceeded, SyncRateLimiter, shards
from headgate.schema import BucketRef, table_definition

CAPACITY = 20_000
PIECE = 5
PROCESSES = 8
PATIENT = {"read_timeout": 20.0, "connect_timeout": 5.0}
NS = "shards-test"  # 11 characters, as ids have


@pytest.fixture
def table(ministack):
    name = f"table-{uuid.uuid4().hex}"
    client = boto3.client("dynamodb", endpoint_url=ministack.endpoint_url)
    client.create_table(**table_definition(name))
    yield {"table": name, "endpoint_url": ministack.endpoint_url, "namespace_id": NS, **PATIENT}
    client.delete_table(TableName=name)
    client.close()


def ref(entity="hot", resource="api"):
    return BucketRef(NS, entity, resource)


def split_to(limiter, count, entity="hot"):
    """Splits all shards until there are so many."""
    core = limiter._core

    def flow():
        while True:
            buckets = yield from shards.read_all(core, ref(entity))
            behind = [bucket for bucket in buckets if bucket.shard.n < count]
            if not behind:
                return len(buckets)
            for bucket in behind:
                yield from shards.split(core, ref(entity), bucket)

    return limiter._driver.run(flow())


def merge_to_one(limiter):
    """Merges three times, which is enough for eight."""
    for _ in range(3):
        assert limiter._driver.run(shards.merge(limiter._core, ref()))
    return limiter._driver.run(shards.read_all(limiter._core, ref()))


def take_until_rejected(options, amount):
    """What one process gets of the bucket: runs elsewhere."""
    taken = 0
    with SyncRateLimiter(**options, rejection_memory=0) as limiter:
        while True:
            try:
                with limiter.acquire("hot", "api", {"tokens": amount}):
                    taken += amount
            except RateLimitExceeded as error:
                if error.contended:
                    continue
                return taken


@pytest.mark.timeout(240)
def test_eight_processes_get_all_of_it_and_no_more_while_it_splits(table):
    """PEER: capacity 20,000 under load, shards created full: 35,788 admitted."""
    with SyncRateLimiter(**table) as limiter:
        limit = Limit.custom("tokens", capacity=CAPACITY, refill_amount=1, refill_period=86_400)
        limiter.set_limits([limit], resource="api")
        with limiter.acquire("hot", "api", {"tokens": PIECE}):
            pass
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(PROCESSES, mp_context=spawn) as pool:
            running = [pool.submit(take_until_rejected, table, PIECE) for _ in range(PROCESSES)]
            for count in (2, 4, 8):
                split_to(limiter, count)
            taken = [future.result() for future in as_completed(running)]
        total = sum(taken) + PIECE
        assert limiter._core.views.count(ref()) == 8
        assert 0.99 * CAPACITY <= total <= CAPACITY
        assert sum(1 for part in taken if part) > 1, "one process did it all"


def test_a_request_of_the_full_capacity_succeeds_on_eight_shards(table):
    """PEER: a request larger than capacity / shards is rejected for ever."""
    with SyncRateLimiter(**table) as limiter:
        limiter.set_limits([Limit.per_day("tokens", 1_000)], resource="api")
        with limiter.acquire("hot", "api", {"tokens": 1}) as lease:
            lease.release()
        assert split_to(limiter, 8) == 8
        with limiter.acquire("hot", "api", {"tokens": 1_000}):
            assert limiter.available("hot", "api")["tokens"] == 0
        with pytest.raises(RateLimitExceeded) as caught:
            limiter.acquire("hot", "api", {"tokens": 1_000}).__enter__()
        assert caught.value.retry_after == pytest.approx(86_400, rel=0.01)


def test_a_small_limit_beside_a_hot_one_stays_usable_on_32_shards(table):
    """PEER: 10 // 32 is 0.3 of a token: locked out."""
    with SyncRateLimiter(**table) as limiter:
        limits = [Limit.per_day("small", 10), Limit.per_second("hot", 100_000)]
        limiter.set_limits(limits, resource="api")
        with limiter.acquire("hot", "api", {"hot": 1}):
            assert split_to(limiter, 32) == 32
        for _ in range(10):
            with limiter.acquire("hot", "api", {"small": 1, "hot": 1}):
                pass
        with pytest.raises(RateLimitExceeded) as caught:
            limiter.acquire("hot", "api", {"small": 1, "hot": 1}).__enter__()
        assert [status.name for status in caught.value.violations] == ["small"]


def test_releases_find_their_shard_after_a_merge(table):
    with SyncRateLimiter(**table) as limiter:
        limiter.set_limits([Limit.per_day("tokens", 64)], resource="api")
        with limiter.acquire("hot", "api", {"tokens": 1}) as first:
            split_to(limiter, 4)
            leases = [limiter.acquire("hot", "api", {"tokens": 8}) for _ in range(4)]
            held = [lease.__enter__() for lease in leases]
            merge_to_one(limiter)
            for lease in held:
                lease.release()
            first.release()
        assert limiter.available("hot", "api") == {"tokens": 64}


def test_a_merge_gives_one_bucket_that_holds_what_all_held(table):
    with SyncRateLimiter(**table) as limiter:
        limiter.set_limits([Limit.per_day("tokens", 1_000)], resource="api")
        with limiter.acquire("hot", "api", {"tokens": 123}):
            split_to(limiter, 8)
        buckets = merge_to_one(limiter)
        assert [bucket.shard for bucket in buckets] == [(0, 1)]
        assert limiter.available("hot", "api") == {"tokens": 877}
        key = ref().key(0)
        client = boto3.client("dynamodb", endpoint_url=table["endpoint_url"])
        item = client.get_item(TableName=table["table"], Key=key)["Item"]
        client.close()
        full_in = 86_400 * 123 // 1_000
        assert int(item["ttl"]["N"]) >= limiter._core.now() // 1000 + full_in, (
            "whole, so it expires"
        )
