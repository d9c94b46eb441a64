"""The aggregator as Lambda calls it, on real stream records of a real table."""

from __future__ import annotations

import json
import random
import uuid
from concurrent.futures import ThreadPoolExecutor

import boto3
import pytest
from aws_lambda_powertools.utilities.batch.exceptions import BatchProcessingError

import engine
from headgate import Limit, RateLimitExceeded, SyncRateLimiter
from headgate.clock import Clock
from headgate.schema import STATE
from headgate_cdk.processors import BUCKETS_AND_DEFAULTS
from tests.infra.filters import fires
from tests.limiters import create_table
from tests.stream.lambdas import Context

from aggregator import handler as aggregator  # isort: skip - after the environment is set


class Table:
    """A table on ministack, and what its stream holds in the shape of Lambda's events."""

    def __init__(self, url, name=None):
        self.url = url
        self.name = name or f"stream-{uuid.uuid4().hex}"
        create_table(self.name, url)
        self._dynamodb = boto3.client("dynamodb", endpoint_url=url)
        self._streams = boto3.client("dynamodbstreams", endpoint_url=url)
        self._arn = self._dynamodb.describe_table(TableName=self.name)["Table"]["LatestStreamArn"]

    def limiter(self, **options):
        return SyncRateLimiter(self.name, endpoint_url=self.url, **options)

    def records(self, **iterator):
        """What passes the construct's filter; all of it, or from a place on."""
        described = self._streams.describe_stream(StreamArn=self._arn)["StreamDescription"]
        found = []
        for shard in described["Shards"]:
            place = {"ShardIteratorType": "TRIM_HORIZON", **iterator}
            start = self._streams.get_shard_iterator(
                StreamArn=self._arn, ShardId=shard["ShardId"], **place
            )["ShardIterator"]
            while True:
                answer = self._streams.get_records(ShardIterator=start, Limit=1000)
                found += [self._as_event(record) for record in answer["Records"]]
                start = answer.get("NextShardIterator")
                if not answer["Records"] or not start:
                    break
        return [record for record in found if fires(BUCKETS_AND_DEFAULTS, record)]

    def _as_event(self, record):
        body = dict(record["dynamodb"])
        time = body["ApproximateCreationDateTime"].timestamp()
        return {
            **record,
            "eventSourceARN": self._arn,
            "dynamodb": {**body, "ApproximateCreationDateTime": time},
        }

    def close(self):
        self._dynamodb.delete_table(TableName=self.name)
        self._dynamodb.close()
        self._streams.close()


@pytest.fixture
def table(ministack, monkeypatch):
    found = Table(ministack.endpoint_url)
    for name, value in engine.environment(ministack.endpoint_url).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HEADGATE_TABLE", found.name)
    aggregator.aggregator.cache_clear()
    yield found
    aggregator.aggregator.cache_clear()
    found.close()


def deliver(records):
    return aggregator.handler({"Records": records}, Context())


def test_snapshots_of_a_concurrent_day_agree_with_what_was_acquired(table):
    limits = [Limit.per_second("rps", 10_000), Limit.per_hour("tph", 5_000)]
    with table.limiter(limits=limits) as limiter:

        def work(seed):
            rng, total = random.Random(seed), {"rps": 0, "tph": 0}
            for _ in range(30):
                wanted = {"rps": rng.randint(1, 5), "tph": rng.randint(1, 50)}
                try:
                    with limiter.acquire(f"user-{rng.randrange(3)}", "gpt-4", wanted) as lease:
                        back = rng.randint(1, wanted["tph"])
                        lease.adjust(tph=-back) if rng.random() < 0.5 else lease.release(tph=back)
                        total["rps"] += wanted["rps"]
                        total["tph"] += wanted["tph"] - back
                except RateLimitExceeded:
                    pass
            return total

        with ThreadPoolExecutor(8) as pool:
            totals = list(pool.map(work, range(8)))
        records = table.records()
        rng = random.Random(1)
        while records:  # in batches of any size, some of them twice
            size = rng.randint(1, 60)
            for _ in range(rng.randint(1, 2)):
                assert deliver(records[:size]) == {"batchItemFailures": []}
            records = records[size:]

        for window in ("hourly", "daily", "monthly"):
            summary = limiter.get_usage_summary(resource="gpt-4", window=window)
            assert summary.consumed == {
                name: sum(total[name] for total in totals) for name in ("rps", "tph")
            }


def test_one_bad_record_neither_blocks_nor_loses_the_others(table):
    with table.limiter(limits=[Limit.per_minute("rpm", 100)]) as limiter:
        for _ in range(5):
            with limiter.acquire("alice", "gpt-4", {"rpm": 1}):
                pass
        records = table.records()
        good = records[2]["dynamodb"]["NewImage"]
        records[2]["dynamodb"]["NewImage"] = {**good, "b_rpm_tc": {"N": "many"}}
        bad = records[2]["dynamodb"]["SequenceNumber"]
        assert deliver(records) == {"batchItemFailures": [{"itemIdentifier": bad}]}
        assert limiter.get_usage_summary(entity_id="alice").consumed == {"rpm": 4}

        # The failure queue tells where it is in the stream. Read again by a function that is
        # mended, it fills its gap.
        again = table.records(ShardIteratorType="AT_SEQUENCE_NUMBER", SequenceNumber=bad)
        assert again[0]["dynamodb"]["SequenceNumber"] == bad
        assert deliver(again[:1]) == {"batchItemFailures": []}
        assert limiter.get_usage_summary(entity_id="alice").consumed == {"rpm": 5}


def test_without_its_table_the_function_fails_so_that_lambda_tries_again(table, monkeypatch):
    with table.limiter(limits=[Limit.per_minute("rpm", 100)]) as limiter:
        with limiter.acquire("alice", "gpt-4", {"rpm": 1}):
            pass
        records = table.records()
        monkeypatch.setenv("HEADGATE_TABLE", "no-such-table")
        aggregator.aggregator.cache_clear()
        with pytest.raises(BatchProcessingError, match="no-such-table"):
            deliver(records)


def test_an_unreachable_table_fails_all_records(table, monkeypatch):
    limiter = table.limiter(limits=[Limit.per_minute("rpm", 100)])
    with limiter, limiter.acquire("alice", "gpt-4", {"rpm": 1}):
        pass
    records = table.records()
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    aggregator.aggregator.cache_clear()
    with pytest.raises(BatchProcessingError, match="did not answer"):
        deliver(records)


def test_a_changed_default_reaches_the_buckets_and_a_sweep_has_nothing_left_to_do(table):
    with table.limiter() as limiter:
        limiter.set_limits([Limit.per_minute("rpm", 600)], resource="gpt-4")
        for number in range(30):
            with limiter.acquire(f"user-{number}", "gpt-4", {"rpm": 1}):
                pass
    with table.limiter() as other:
        other.set_limits([Limit.per_minute("rpm", 6)], resource="gpt-4")
        assert deliver(table.records()) == {"batchItemFailures": []}
        capacity = other.get_resource_capacity("gpt-4")
        assert capacity.limits["rpm"].capacity == 30 * 6
    assert aggregator.handler({"source": "aws.events"}, Context()) == {}


def test_a_quiet_bucket_is_merged_by_the_sweep(table, monkeypatch):
    from headgate import shards
    from headgate.schema import BucketRef

    monkeypatch.setenv("HEADGATE_MERGE_AFTER_SECONDS", "600")
    with table.limiter(limits=[Limit.per_minute("rpm", 600)]) as limiter:
        with limiter.acquire("alice", "gpt-4", {"rpm": 1}):
            pass
        core = limiter._core
        ref = BucketRef(core.ns, "alice", "gpt-4")
        (bucket,) = limiter._driver.run(shards.read_all(core, ref))
        limiter._driver.run(shards.split(core, ref, bucket))
        assert deliver(table.records()) == {"batchItemFailures": []}

        clock = aggregator.aggregator()._core.clock
        merges = []
        for minutes in (0, 5, 10):
            later = Clock(lambda minutes=minutes: clock.raw() + minutes * 60_000)
            aggregator.aggregator()._core.clock = later
            merges.append(aggregator.handler({}, Context()).get("Merges"))
        assert merges == [0, 0, 1]
        assert len(limiter._driver.run(shards.read_all(core, ref))) == 1


def test_logs_and_metrics_count_and_name_nobody(table, capsys, monkeypatch):
    aggregator.logger.setLevel("DEBUG")
    try:
        limiter = table.limiter(limits=[Limit.per_minute("rpm", 100)])
        with limiter, limiter.acquire("alice@example.org", "gpt-4", {"rpm": 1}):
            pass
        deliver(table.records())
    finally:
        aggregator.logger.setLevel("CRITICAL")
    printed = capsys.readouterr().out
    assert "alice" not in printed
    counted = {}
    for line in printed.splitlines():
        counted |= {k: v for k, v in json.loads(line).items() if isinstance(v, list)}
    assert counted["Records"] == [1.0]
    assert counted["SnapshotsWritten"] == [3.0]
    assert counted["RecordsFailed"] == [0.0]
    assert counted["Admitted"] == [1.0]
    (line,) = (json.loads(x) for x in printed.splitlines() if '"Admitted"' in x)
    dimensions = line["_aws"]["CloudWatchMetrics"][0]["Dimensions"]
    assert sorted(dimensions[0]) == ["service", "table"], "as the construct's metric_admitted asks"


def test_two_functions_at_once_on_different_shards_of_a_bucket_count_both(table):
    """The records of one snapshot's sources, delivered by as many invocations as there are."""
    from headgate import shards
    from headgate.schema import BucketRef

    with table.limiter(limits=[Limit.per_second("rps", 100_000)]) as limiter:
        with limiter.acquire("alice", "gpt-4", {"rps": 1}):
            pass
        core = limiter._core
        ref = BucketRef(core.ns, "alice", "gpt-4")
        for _ in range(2):
            for bucket in limiter._driver.run(shards.read_all(core, ref)):
                limiter._driver.run(shards.split(core, ref, bucket))
        for _ in range(100):
            with limiter.acquire("alice", "gpt-4", {"rps": 2}):
                pass
        lanes = {}
        for record in table.records():
            lanes.setdefault(record["dynamodb"]["Keys"]["PK"]["S"], []).append(record)
        assert len(lanes) == 4
        service = aggregator.aggregator()

        def lane(records):
            from aggregator.records import parse

            failed = {}
            for start in range(0, len(records), 5):
                for _ in range(2):
                    batch = [parse(record) for record in records[start : start + 5]]
                    failed |= service.process(batch, lambda: True).failed
            return failed

        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(lane, lanes.values())) == [{}] * 4
        assert limiter.get_usage_summary(entity_id="alice").consumed == {"rps": 201}


def test_only_buckets_and_defaults_arrive(table):
    with table.limiter() as limiter:
        limiter.create_entity("alice")
        limiter.set_limits([Limit.per_minute("rpm", 9)], entity_id="alice", resource="gpt-4")
        with limiter.acquire("alice", "gpt-4", {"rpm": 1}):
            pass
        assert {r["dynamodb"]["Keys"]["SK"]["S"] for r in table.records()} == {STATE}
        deliver(table.records())
        assert {r["dynamodb"]["Keys"]["SK"]["S"] for r in table.records()} == {STATE}
