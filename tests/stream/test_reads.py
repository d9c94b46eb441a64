"""Reading back: usage, audit events, and how full a resource's buckets are."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest

from headgate import Limit, ValidationError, shards
from headgate.audit import AuditEvent, audit_item, new_event_id
from headgate.effects import Call
from headgate.schema import BucketRef, key
from headgate.usage import WINDOWS, SnapshotRef
from tests.behaviour.backends import NAMESPACE_ID
from tests.limiters import Async

NOON = datetime(2026, 1, 15, 12, tzinfo=UTC)


def run(limiter, flow):
    if isinstance(limiter, Async):
        return limiter.run(limiter.limiter._driver.run(flow))
    return limiter.limiter._driver.run(flow)


def put(limiter, item):
    core = limiter.limiter._core
    run(limiter, core.ask(Call("PutItem", {"TableName": core.table, "Item": item})))


def snapshot(limiter, entity, resource, at, *, ns=NAMESPACE_ID, windows=WINDOWS, **milli):
    """A snapshot for each window that holds this moment."""
    for window in windows:
        ref = SnapshotRef.at(ns, entity, resource, window, at)
        counters = {f"u_{name}": {"N": str(amount)} for name, amount in milli.items()}
        item = {**ref.key, **ref.identity(), **counters, "acquires": {"N": "2"}}
        put(limiter, {**item, "ttl": {"N": str(ref.expires(90))}})


@pytest.fixture
def limiter(backend):
    return backend.limiter()


@pytest.fixture
def day(limiter):
    """Alice uses two resources every third hour of a day, bob one of them once."""
    for hour in range(0, 24, 3):
        at = NOON.replace(hour=hour, minute=10)
        snapshot(limiter, "alice", "gpt-4", at, windows=("hourly",), rpm=1000 * hour, tpm=500)
        snapshot(limiter, "alice", "search", at, windows=("hourly",), rpm=1)
    snapshot(limiter, "bob", "gpt-4", NOON, rpm=7_000)
    snapshot(limiter, "alice", "gpt-4", NOON, ns="other_tests", rpm=99_000)
    return limiter


def hours(page):
    return [(s.entity_id, s.start.hour) for s in page.snapshots]


# ---------------------------------------------------------------- usage


def test_usage_of_an_entity_and_resource_is_in_order_of_time(day):
    page = day.get_usage_snapshots(entity_id="alice", resource="gpt-4")
    assert hours(page) == [("alice", hour) for hour in range(0, 24, 3)]
    assert page.cursor is None
    noon = page.snapshots[4]
    assert (noon.start, noon.end) == (NOON, NOON + timedelta(hours=1))
    assert noon.millitokens == {"rpm": 12_000, "tpm": 500}
    assert noon.consumed == {"rpm": 12, "tpm": 0}
    assert (noon.window, noon.acquires) == ("hourly", 2)


def test_usage_of_a_resource_holds_all_entities(day):
    page = day.get_usage_snapshots(resource="gpt-4", start=NOON, end=NOON + timedelta(hours=4))
    assert hours(page) == [("alice", 12), ("bob", 12), ("alice", 15)]


def test_usage_of_an_entity_holds_all_resources(day):
    page = day.get_usage_snapshots(entity_id="alice", start=NOON, end=NOON + timedelta(hours=1))
    assert [(s.resource, s.start) for s in page.snapshots] == [("gpt-4", NOON), ("search", NOON)]


@pytest.mark.parametrize("whose", [{"entity_id": "alice"}, {"resource": "gpt-4"}])
def test_a_time_range_takes_the_windows_that_overlap_it(day, whose):
    """From any minute of an hour on, to before the end."""
    page = day.get_usage_snapshots(
        **whose, start=NOON + timedelta(minutes=59), end=NOON + timedelta(hours=3)
    )
    assert {s.start for s in page.snapshots} == {NOON}
    after = day.get_usage_snapshots(
        **whose, start=NOON + timedelta(hours=1), end=NOON + timedelta(hours=3, seconds=1)
    )
    assert {s.start for s in after.snapshots} == {NOON + timedelta(hours=3)}


def test_windows_are_kept_apart(day):
    for window, start in [
        ("hourly", NOON),
        ("daily", NOON.replace(hour=0)),
        ("monthly", NOON.replace(hour=0, day=1)),
    ]:
        page = day.get_usage_snapshots(entity_id="bob", window=window)
        assert [(s.window, s.start) for s in page.snapshots] == [(window, start)]


@pytest.mark.parametrize("limit", [1, 3, 8])
@pytest.mark.parametrize(
    "whose",
    [
        {"entity_id": "alice"},
        {"entity_id": "alice", "resource": "gpt-4"},
        {"resource": "gpt-4"},
    ],
    ids=["entity", "both", "resource"],
)
def test_pages_add_up_to_the_whole(day, whose, limit):
    whole = day.get_usage_snapshots(**whose, limit=1000).snapshots
    pages, cursor = [], None
    while True:
        page = day.get_usage_snapshots(**whose, limit=limit, cursor=cursor)
        assert len(page.snapshots) <= limit
        pages += page.snapshots
        cursor = page.cursor
        if cursor is None:
            break
    assert tuple(pages) == whole


def test_a_summary_adds_up(day):
    summary = day.get_usage_summary(resource="gpt-4", start=NOON, end=NOON + timedelta(hours=4))
    assert summary.consumed == {"rpm": 12 + 7 + 15, "tpm": 1}
    assert summary.millitokens["tpm"] == 1_000
    assert (summary.snapshots, summary.acquires) == (3, 6)
    assert (summary.first, summary.last) == (NOON, NOON + timedelta(hours=3))
    assert summary.average == {"rpm": 34 / 3, "tpm": 1 / 3}


def test_a_summary_of_nothing_is_empty(day):
    summary = day.get_usage_summary(entity_id="nobody")
    assert (summary.snapshots, summary.consumed, summary.first) == (0, {}, None)
    assert summary.average == {}


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({}, "entity_id, resource or both"),
        ({"entity_id": "a#b"}, "entity_id must be"),
        ({"entity_id": "a", "window": "weekly"}, "one of hourly, daily, monthly: 'weekly'"),
        ({"entity_id": "a", "start": datetime(2026, 1, 1)}, "with a time zone"),  # noqa: DTZ001
        ({"entity_id": "a", "end": "2026-01-01"}, "with a time zone"),
        ({"entity_id": "a", "limit": 0}, "from 1 to 1000: 0"),
        ({"entity_id": "a", "cursor": "anything"}, "cursor is not one that this query gave"),
        ({"entity_id": "a", "cursor": "#CONFIG#gpt-4"}, "cursor is not one"),
        ({"resource": "r", "cursor": "BUCKET#a#0"}, "cursor is not one"),
        (
            {"resource": "r", "cursor": "USAGE#daily#2026-01-01T00:00:00Z#a"},
            "cursor is not one",
        ),
    ],
)
def test_a_question_that_makes_no_sense_is_refused(limiter, wrong, words):
    with pytest.raises(ValidationError, match=words):
        limiter.get_usage_snapshots(**wrong)


# ---------------------------------------------------------------- audit events


@pytest.fixture
def history(limiter):
    rng = random.Random(1)
    for minute in range(6):
        at = int((NOON + timedelta(minutes=minute)).timestamp() * 1000)
        for whose in ("alice", "$SYSTEM", "$RESOURCE:gpt-4"):
            event = AuditEvent(
                new_event_id(at, rng), whose, f"change {minute}", after={"minute": minute}
            )
            put(limiter, audit_item(NAMESPACE_ID, event, ttl=None))
    return limiter


def actions(page):
    return [event.action for event in page.events]


@pytest.mark.parametrize("whose", [{"entity_id": "alice"}, {"resource": "gpt-4"}, {}])
def test_events_are_listed_the_newest_first(history, whose):
    page = history.get_audit_events(**whose)
    assert actions(page) == [f"change {minute}" for minute in (5, 4, 3, 2, 1, 0)]
    assert page.events[0].at == NOON + timedelta(minutes=5)
    assert page.events[0].after == {"minute": 5}
    assert page.cursor is None


def test_a_time_range_of_events_ends_before_its_end(history):
    page = history.get_audit_events(
        entity_id="alice", start=NOON + timedelta(minutes=2), end=NOON + timedelta(minutes=4)
    )
    assert actions(page) == ["change 3", "change 2"]


def test_pages_of_events_add_up_to_the_whole(history):
    first = history.get_audit_events(entity_id="alice", limit=4)
    second = history.get_audit_events(entity_id="alice", limit=4, cursor=first.cursor)
    assert actions(first) + actions(second) == [f"change {m}" for m in (5, 4, 3, 2, 1, 0)]
    assert second.cursor is None


def test_events_are_asked_for_by_entity_or_by_resource(limiter):
    with pytest.raises(ValidationError, match="one of them"):
        limiter.get_audit_events(entity_id="alice", resource="gpt-4")
    with pytest.raises(ValidationError, match="cursor is not one"):
        limiter.get_audit_events(entity_id="alice", start=NOON, cursor="0")


# ---------------------------------------------------------------- capacity


@pytest.fixture
def busy(backend):
    limiter = backend.limiter(limits=[Limit.per_hour("rph", 100), Limit.per_hour("tph", 1_000)])
    for number, name in enumerate(["alice", "alice b", "alice!", "bob", "carol"]):
        with limiter.acquire(name, "gpt-4", {"rph": 10 * (number + 1)}):
            pass
    with limiter.acquire("alice", "search", {"rph": 1}):
        pass
    return limiter


def test_capacity_of_a_resource_is_that_of_its_buckets_together(busy):
    capacity = busy.get_resource_capacity("gpt-4")
    assert {b.entity_id: b.limits[0].available for b in capacity.buckets} == {
        "alice": 90,
        "alice b": 80,
        "alice!": 70,
        "bob": 60,
        "carol": 50,
    }
    rph, tph = capacity.limits["rph"], capacity.limits["tph"]
    assert (rph.capacity, rph.available, rph.buckets) == (500, 350, 5)
    assert rph.utilization == pytest.approx(0.3)
    assert tph.utilization == 0.0
    assert capacity.cursor is None


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_pages_of_capacity_add_up_to_the_whole(busy, limit):
    found, cursor = [], None
    while True:
        page = busy.get_resource_capacity("gpt-4", limit=limit, cursor=cursor)
        found += [bucket.entity_id for bucket in page.buckets]
        cursor = page.cursor
        if cursor is None:
            break
    assert sorted(found) == ["alice", "alice b", "alice!", "bob", "carol"]


def test_the_shards_of_a_bucket_are_one_bucket(busy):
    core = busy.limiter._core
    ref = BucketRef(NAMESPACE_ID, "alice", "gpt-4")
    for _ in range(2):
        for bucket in run(busy, shards.read_all(core, ref)):
            run(busy, shards.split(core, ref, bucket))
    capacity = busy.get_resource_capacity("gpt-4")
    alice = next(bucket for bucket in capacity.buckets if bucket.entity_id == "alice")
    assert alice.shards == 4
    assert alice.limits[0].available == 90
    assert alice.limits[0].capacity == 100


def test_a_resource_that_nobody_used_has_no_buckets(busy):
    capacity = busy.get_resource_capacity("embed")
    assert (capacity.buckets, capacity.limits, capacity.cursor) == ((), {}, None)
    with pytest.raises(ValidationError, match="cursor is not one"):
        busy.get_resource_capacity("gpt-4", cursor="a#b")


def test_keys_of_snapshots_and_events_start_with_the_namespace(limiter):
    ref = SnapshotRef.at(NAMESPACE_ID, "alice", "gpt-4", "hourly", NOON)
    assert ref.key == key(
        f"{NAMESPACE_ID}/ENTITY#alice", "#USAGE#gpt-4#hourly#2026-01-15T12:00:00Z"
    )
    event = AuditEvent(new_event_id(0, random.Random(1)), "alice", "made")
    assert audit_item(NAMESPACE_ID, event, None)["PK"]["S"] == f"{NAMESPACE_ID}/AUDIT#alice"
