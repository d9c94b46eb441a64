"""Deployed: what functions acquire appears in snapshots, and what expires appears in S3."""

from __future__ import annotations

import gzip
import json
import random
from concurrent.futures import ThreadPoolExecutor

import pytest

import deploy
from headgate import Limit, SyncRateLimiter
from headgate.audit import AuditEvent, audit_item, new_event_id
from tests.stream.esm import Stream

DEMO = deploy.ROOT / "examples/demo_stack.py"


@pytest.fixture(scope="module")
def demo(account):
    outputs = deploy.deploy(account, DEMO)["Demo"]
    yield outputs
    deploy.destroy(account, DEMO)


def function(aws, name):
    (found,) = [
        f
        for f in aws("lambda").list_functions()["Functions"]
        if f"Demo-Limiter{name}" in f["FunctionName"]
    ]
    return found


def invoke(aws, name, event):
    answer = aws("lambda").invoke(FunctionName=name, Payload=json.dumps(event))
    body = json.loads(answer["Payload"].read())
    assert "FunctionError" not in answer, body
    return body


def counted(limiter, total, **which):
    """The usage once it has come to the total. The test's timeout ends the waiting."""
    while True:
        summary = limiter.get_usage_summary(**which)
        if summary.consumed.get("requests", 0) >= total:
            return summary


@pytest.mark.timeout(120)
def test_what_a_deployed_function_acquired_is_what_the_snapshots_say(account, aws, demo):
    users = ["user-1", "user-2", "user-3"]
    with ThreadPoolExecutor(3) as pool:
        answers = list(pool.map(lambda u: invoke(aws, demo["Caller"], {"user": u}), users * 2))
    total = sum(answer["admitted"] for answer in answers)
    assert total > 0
    with SyncRateLimiter(demo["Table"], endpoint_url=account, read_timeout=10) as limiter:
        for window in ("hourly", "daily", "monthly"):
            summary = counted(limiter, total, resource="api", window=window)
            assert summary.consumed == {"requests": total}
        for number, user in enumerate(users):
            own = sum(answer["admitted"] for answer in answers[number::3])
            assert counted(limiter, own, entity_id=user).consumed == {"requests": own}


@pytest.mark.timeout(120)
def test_a_changed_default_reaches_a_bucket_that_nobody_uses(account, aws, demo):
    with SyncRateLimiter(demo["Table"], endpoint_url=account, read_timeout=10) as limiter:
        limiter.set_limits([Limit.per_minute("requests", 60)], resource="quiet")
        with limiter.acquire("somebody", "quiet", {"requests": 1}):
            pass
        limiter.set_limits([Limit.per_minute("requests", 6)], resource="quiet")
        while limiter.get_resource_capacity("quiet").limits["requests"].capacity != 6:
            pass


def test_an_audit_event_that_expires_reaches_the_archive_and_reads_back(aws, demo):
    """In the shape that time to live gives it, which the emulator does not."""
    rng = random.Random(1)
    event = AuditEvent(
        new_event_id(1_767_268_380_000, rng), "user-1", "limits.set", after={"rpm": 10}
    )
    item = audit_item("0123456789a", event, ttl=1)
    stream = Stream(rng, lambda: 1_775_000_000_000)
    stream.wrote((item["PK"]["S"], item["SK"]["S"]), item, None, expired=True)
    archiver = function(aws, "Archiver")
    for _ in range(2):
        answer = invoke(aws, archiver["FunctionName"], {"Records": stream.records()})
        assert answer == {"batchItemFailures": []}
    bucket = archiver["Environment"]["Variables"]["HEADGATE_ARCHIVE_BUCKET"]
    (found,) = aws("s3").list_objects_v2(Bucket=bucket)["Contents"]
    assert found["Key"].startswith("audit/year=2026/month=01/day=01/")
    body = aws("s3").get_object(Bucket=bucket, Key=found["Key"])["Body"].read()
    (line,) = map(json.loads, gzip.decompress(body).decode().splitlines())
    assert line["event_id"] == event.event_id
    assert line["after"] == {"rpm": 10}
    for version in aws("s3").list_object_versions(Bucket=bucket).get("Versions", []):
        aws("s3").delete_object(Bucket=bucket, Key=version["Key"], VersionId=version["VersionId"])


def test_the_sweep_runs_as_the_schedule_calls_it(aws, demo):
    aggregator = function(aws, "Aggregator")
    answer = invoke(aws, aggregator["FunctionName"], {"source": "aws.events", "detail": {}})
    assert answer.get("Merges", 0) == 0
