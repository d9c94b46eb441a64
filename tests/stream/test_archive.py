"""Expired audit events in S3: every one, once, where Athena looks for it."""

from __future__ import annotations

import gzip
import json
import random
import re
from collections import Counter

import boto3
import pytest
from hypothesis import given
from hypothesis import strategies as st
from moto import mock_aws

from headgate.audit import AuditEvent, audit_item, new_event_id, read_event
from headgate.schema import NamespaceId
from tests.stream.esm import Chaos, EventSourceMapping, Mapping, Stream
from tests.stream.lambdas import Context

from archiver import handler as archiver  # isort: skip - after the environment is set

NS = NamespaceId("streamtests")
EVENING = 1_767_311_990_000  # 2026-01-01T23:59:50Z


class Shelf:
    """S3 as far as the archiver uses it. A write may fail before or after it took effect."""

    def __init__(self, rng):
        self.objects = {}
        self.failing = 0.0
        self._rng = rng

    def put_object(self, **given):
        fails = self._rng.random() < self.failing
        if not fails or self._rng.random() < 0.5:
            self.objects[given["Key"]] = given["Body"]
        if fails:
            raise ConnectionError("no answer")

    def lines(self):
        return [
            json.loads(line)
            for body in self.objects.values()
            for line in gzip.decompress(body).decode().splitlines()
        ]


@pytest.fixture(autouse=True)
def archive(monkeypatch):
    monkeypatch.setenv("HEADGATE_ARCHIVE_BUCKET", "archive")
    monkeypatch.setenv("HEADGATE_ARCHIVE_PREFIX", "audit/")


@pytest.fixture
def bucket(monkeypatch):
    with mock_aws():
        s3 = boto3.client("s3")
        s3.create_bucket(Bucket="archive")
        monkeypatch.setattr(archiver, "_s3", lambda: s3)
        yield s3


def event(number, rng, at=EVENING):
    return AuditEvent(
        new_event_id(at + number * 1000, rng),
        f"user-{number % 3}",
        "limits.set",
        principal="arn:aws:iam::000000000000:role/operator",
        after={"limits": [{"name": "rpm", "capacity": 10}]},
    )


def expired(events, rng):
    """Their removals in the shape that AWS sends."""
    stream = Stream(rng, lambda: EVENING + 90 * 86_400_000)
    for one in events:
        item = audit_item(NS, one, ttl=1)
        stream.wrote((item["PK"]["S"], item["SK"]["S"]), item, None, expired=True)
    return stream


def stored(s3):
    return {
        found["Key"]: gzip.decompress(
            s3.get_object(Bucket="archive", Key=found["Key"])["Body"].read()
        ).decode()
        for found in s3.list_objects_v2(Bucket="archive").get("Contents", [])
    }


def test_events_are_filed_under_the_day_on_which_they_happened(bucket):
    rng = random.Random(1)
    events = [event(number, rng) for number in range(20)]
    answer = archiver.handler({"Records": expired(events, rng).records()}, Context())
    assert answer == {"batchItemFailures": []}
    objects = stored(bucket)
    days = [re.fullmatch(r"audit/(.+)/[^/]+\.jsonl\.gz", name)[1] for name in objects]
    assert days == ["year=2026/month=01/day=01", "year=2026/month=01/day=02"]
    first, second = objects.values()
    assert (first.count("\n"), second.count("\n")) == (10, 10)


def test_a_line_holds_the_event_and_its_namespace_and_nothing_of_the_table(bucket):
    rng = random.Random(1)
    one = event(1, rng)
    archiver.handler({"Records": expired([one], rng).records()}, Context())
    ((_, text),) = stored(bucket).items()
    assert json.loads(text) == {
        "event_id": one.event_id,
        "namespace_id": NS,
        "at": one.at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "subject": one.subject,
        "action": "limits.set",
        "principal": "arn:aws:iam::000000000000:role/operator",
        "before": None,
        "after": {"limits": [{"name": "rpm", "capacity": 10}]},
    }


def test_what_nobody_foresaw_is_archived_as_it_is(bucket):
    rng = random.Random(1)
    item = {
        "PK": {"S": f"{NS}/AUDIT#user-1"},
        "SK": {"S": "#AUDIT#no time at all"},
        "before": {"S": "not json"},
        "count": {"N": "3"},
        "share": {"N": "0.25"},
        "tags": {"SS": ["b", "a"]},
        "raw": {"B": "AP8="},
        "nested": {"M": {"list": {"L": [{"NULL": True}, {"BOOL": False}]}}},
    }
    stream = Stream(rng, lambda: EVENING)
    stream.wrote((item["PK"]["S"], item["SK"]["S"]), item, None, expired=True)
    assert archiver.handler({"Records": stream.records()}, Context()) == {"batchItemFailures": []}
    ((name, text),) = stored(bucket).items()
    assert name.startswith("audit/year=2026/month=01/day=01/")
    line = json.loads(text)
    assert (line["before"], line["count"], line["share"]) == ("not json", 3, "0.25")
    assert (line["tags"], line["raw"]) == (["a", "b"], "AP8=")
    assert line["nested"] == {"list": [None, False]}


def test_a_record_without_an_event_is_reported_and_only_what_is_before_it_is_written(bucket):
    rng = random.Random(1)
    records = expired([event(number, rng) for number in range(5)], rng).records()
    del records[2]["dynamodb"]["OldImage"]
    answer = archiver.handler({"Records": records}, Context())
    bad = records[2]["dynamodb"]["SequenceNumber"]
    assert answer == {"batchItemFailures": [{"itemIdentifier": bad}]}
    ((_, text),) = stored(bucket).items()
    assert text.count("\n") == 2


def test_a_failure_to_write_fails_the_batch(monkeypatch):
    rng = random.Random(1)
    shelf = Shelf(rng)
    shelf.failing = 1.0
    monkeypatch.setattr(archiver, "_s3", lambda: shelf)
    records = expired([event(1, rng)], rng).records()
    with pytest.raises(ConnectionError):
        archiver.handler({"Records": records}, Context())


@given(
    seed=st.integers(0, 2**32),
    batch_size=st.integers(1, 20),
    bisect=st.booleans(),
    retries=st.integers(0, 3),
    failing=st.floats(0, 0.6),
    events=st.integers(1, 40),
)
def test_a_retry_overwrites_and_never_duplicates(
    seed, batch_size, bisect, retries, failing, events
):
    rng = random.Random(seed)
    shelf = Shelf(rng)
    made = [event(number, rng) for number in range(events)]

    def function(records):
        yield ()
        return archiver.handler({"Records": records}, Context())

    source = EventSourceMapping(
        expired(made, rng),
        function,
        Mapping(batch_size=batch_size, bisect=bisect, retries=retries),
        rng,
        wire=None,
        chaos=Chaos(timeouts=0.1),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(archiver, "_s3", lambda: shelf)
        shelf.failing = failing
        source.drain()
        shelf.failing = 0.0
        source.chaos = Chaos()
        for message in list(source.failures):
            source.redrive(message)
        source.drain()
    assert Counter(line["event_id"] for line in shelf.lines()) == Counter(
        one.event_id for one in made
    )


def test_an_event_is_read_from_its_item_as_it_was_written():
    one = event(1, random.Random(1))
    assert read_event(audit_item(NS, one, ttl=5)) == one
