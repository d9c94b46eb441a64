"""Usage snapshots of real clients: what is counted, where it is filed, what it costs."""

from __future__ import annotations

import pytest

from aggregator.records import BadRecord, parse
from headgate import Limit
from headgate.limit import RESERVED_NAMES
from headgate.schema import BucketRef, table_definition
from headgate.usage import read_snapshot
from tests.stream.local import NS, Local

RPM, TPM = Limit.per_minute("rpm", 1_000), Limit.per_minute("tpm", 100_000)
AT_11_53 = 1_767_268_380_000  # 2026-01-01T11:53:00Z
HOUR, DAY, MONTH = "2026-01-01T11:00:00Z", "2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"


@pytest.fixture
def local():
    return Local(start=AT_11_53)


def used(local, window="hourly"):
    return {start: limits for (_, _, w, start), limits in local.snapshots().items() if w == window}


def test_first_acquire_of_a_bucket_reaches_usage(local):
    with local.client(limits=[RPM]).acquire("alice", "gpt-4", {"rpm": 3}):
        pass
    assert local.deliver() == {}
    assert local.snapshots() == {
        ("alice", "gpt-4", "hourly", HOUR): {"rpm": 3},
        ("alice", "gpt-4", "daily", DAY): {"rpm": 3},
        ("alice", "gpt-4", "monthly", MONTH): {"rpm": 3},
    }


def test_event_at_11_53_on_a_quiet_bucket_is_filed_under_11_00(local):
    client = local.client(limits=[Limit.per_day("rpd", 1_000)])
    with client.acquire("alice", "gpt-4", {"rpd": 1}):
        pass
    local.time.advance(2 * 3600)
    with client.acquire("alice", "gpt-4", {"rpd": 5}):
        pass
    local.deliver()
    assert used(local) == {HOUR: {"rpd": 1}, "2026-01-01T13:00:00Z": {"rpd": 5}}
    assert used(local, "daily") == {DAY: {"rpd": 6}}


def test_redelivered_stream_batch_counts_once(local):
    with local.client(limits=[RPM]).acquire("alice", "gpt-4", {"rpm": 40}):
        pass
    records = local.records()
    reports = [local.aggregator.process(list(map(parse, records)), lambda: True) for _ in range(3)]
    assert used(local) == {HOUR: {"rpm": 40}}
    assert [report.counts["SnapshotsWritten"] for report in reports] == [3, 0, 0]
    assert [report.counts["SnapshotsReplayed"] for report in reports] == [0, 3, 3]


def test_100_acquires_2_limits_2_windows_are_2_updates():
    local = Local(windows=("hourly", "daily"), start=AT_11_53)
    client = local.client(limits=[RPM, TPM])
    for _ in range(100):
        with client.acquire("alice", "gpt-4", {"rpm": 1, "tpm": 100}):
            pass
    local.deliver()
    assert local.run.sent == {"UpdateItem": 2}
    assert used(local) == {HOUR: {"rpm": 100, "tpm": 10_000}}


def test_what_is_given_back_or_adjusted_is_taken_off_and_added(local):
    client = local.client(limits=[RPM, TPM])
    with client.acquire("alice", "gpt-4", {"rpm": 1, "tpm": 500}) as lease:
        lease.adjust(tpm=150)
        lease.adjust(tpm=-50)
        lease.consume(rpm=2)
        lease.release(rpm=1)
    with pytest.raises(KeyError), client.acquire("alice", "gpt-4", {"rpm": 7}):
        raise KeyError
    local.deliver()
    assert used(local) == {HOUR: {"rpm": 2, "tpm": 600}}


def test_a_return_in_the_next_hour_is_that_hours(local):
    with local.client(limits=[RPM]).acquire("alice", "gpt-4", {"rpm": 10}) as lease:
        local.time.advance(3600)
        lease.release(rpm=4)
    local.deliver()
    assert used(local) == {HOUR: {"rpm": 10}, "2026-01-01T12:00:00Z": {"rpm": -4}}
    assert used(local, "daily") == {DAY: {"rpm": 6}}


def test_acquires_count_the_writes_that_drew(local):
    client = local.client(limits=[RPM])
    for _ in range(5):
        with client.acquire("alice", "gpt-4", {"rpm": 2}) as lease:
            lease.release(rpm=1)
    local.deliver(batch_size=3)
    (hourly,) = [
        read_snapshot(item)
        for (_, sk), item in local.engine.items.items()
        if sk.startswith("#USAGE#gpt-4#hourly")
    ]
    assert hourly.acquires == 5
    assert hourly.consumed == {"rpm": 5}


def test_wcu_never_shows(local):
    with local.client(limits=[RPM]).acquire("alice", "gpt-4", {"rpm": 1}):
        pass
    local.deliver()
    for (_, sk), item in local.engine.items.items():
        if sk.startswith("#USAGE#"):
            assert not [name for name in item if "wcu" in name]


def test_a_limit_named_like_an_attribute_is_refused_or_counted_right(local):
    with local.client(limits=[RPM]).acquire("alice", "gpt-4", {"rpm": 1}):
        pass
    local.deliver()
    attributes = {
        name
        for (_, sk), item in local.engine.items.items()
        if sk.startswith("#USAGE#")
        for name in item
    }
    assert {"window", "ttl", "resource", "entity_id", "acquires"} <= attributes
    allowed = sorted(name for name in attributes if name.lower() not in RESERVED_NAMES)
    for name in allowed:
        limit = Limit.per_minute(name, 100)
        with local.client(limits=[limit]).acquire(f"user of {name}", "gpt-4", {name: 7}):
            pass
    local.deliver()
    snapshots = local.snapshots()
    for name in allowed:
        assert snapshots[f"user of {name}", "gpt-4", "hourly", HOUR] == {name: 7}


def test_a_snapshot_expires_so_long_after_its_window(local):
    with local.client(limits=[RPM]).acquire("alice", "gpt-4", {"rpm": 1}):
        pass
    local.deliver()
    expiries = {
        item["window"]["S"]: int(item["ttl"]["N"])
        for (_, sk), item in local.engine.items.items()
        if sk.startswith("#USAGE#")
    }
    noon, midnight, february = 1_767_268_800, 1_767_312_000, 1_769_904_000
    days = 90 * 86_400
    assert expiries == {
        "hourly": noon + days,
        "daily": midnight + days,
        "monthly": february + days,
    }


def test_a_limit_that_is_removed_is_no_usage_and_one_that_comes_back_starts_anew(local):
    client = local.client()
    client.set_limits([RPM, TPM], entity_id="alice", resource="gpt-4")
    with client.acquire("alice", "gpt-4", {"rpm": 1, "tpm": 100}):
        pass
    client.set_limits([RPM], entity_id="alice", resource="gpt-4")
    client.set_limits([RPM, TPM], entity_id="alice", resource="gpt-4")
    with client.acquire("alice", "gpt-4", {"rpm": 1, "tpm": 10}):
        pass
    assert local.deliver(batch_size=1) == {}
    assert used(local) == {HOUR: {"rpm": 2, "tpm": 110}}


def test_shards_of_a_bucket_count_in_one_snapshot_and_a_split_or_merge_is_no_usage(local):
    client = local.client(limits=[Limit.per_minute("rpm", 100_000)])
    ref = BucketRef(NS, "alice", "gpt-4")
    total = 0
    for count in (1, 2, 4, 2, 1):
        change_shards(local, client, ref, count)
        for _ in range(20):
            with client.acquire("alice", "gpt-4", {"rpm": 3}):
                total += 3
        assert local.deliver(batch_size=7) == {}
    assert used(local) == {HOUR: {"rpm": total}}


def change_shards(local, client, ref, count):
    """Splits or merges until there are so many."""
    from headgate import shards

    core = client.limiter._core
    while True:
        buckets = local.run(shards.read_all(core, ref))
        if not buckets or len(buckets) == count:
            return
        if len(buckets) < count:
            for bucket in buckets:
                local.run(shards.split(core, ref, bucket))
        else:
            local.run(shards.merge(core, ref))


def test_an_expired_bucket_and_its_successor_count_in_one_snapshot(local):
    client = local.client(limits=[Limit.per_second("rps", 10)])
    with client.acquire("alice", "gpt-4", {"rps": 4}):
        pass
    local.deliver()
    local.time.advance(2 * 3600)
    assert local.engine.expire(local.time())
    with client.acquire("alice", "gpt-4", {"rps": 4}):
        pass
    with client.acquire("alice", "gpt-4", {"rps": 1}):
        pass
    for record in local.records():
        assert local.deliver(records=[record]) == {}
    assert used(local, "daily") == {DAY: {"rps": 9}}


def test_10_000_records_of_50_buckets_are_one_write_for_a_bucket_window_and_batch():
    local = Local(start=AT_11_53)
    client = local.client(limits=[Limit.per_second("rps", 100_000)])
    for number in range(10_000):
        with client.acquire(f"user-{number % 50}", "gpt-4", {"rps": 1}):
            pass
    records = local.records()
    assert len(records) == 10_000
    for start in range(0, len(records), 500):
        local.run.sent.clear()
        assert local.deliver(records=records[start : start + 500]) == {}
        assert local.run.sent == {"UpdateItem": 50 * 3}
    assert all(limits == {"rps": 200} for limits in local.snapshots().values())


def test_a_record_that_cannot_be_understood_says_what_is_wrong(local):
    with local.client(limits=[RPM]).acquire("alice", "gpt-4", {"rpm": 1}):
        pass
    (good,) = local.records()
    image = good["dynamodb"]["NewImage"]
    for bad, words in [
        ({**good, "dynamodb": {**good["dynamodb"], "NewImage": None}}, "lacks an image"),
        ({**good, "dynamodb": {}}, "unreadable"),
        (
            {
                **good,
                "dynamodb": {
                    **good["dynamodb"],
                    "NewImage": {**image, "b_rpm_tc": {"S": "many"}},
                },
            },
            "unreadable",
        ),
        (
            {
                **good,
                "dynamodb": {
                    **good["dynamodb"],
                    "Keys": {"PK": {"S": "x/ENTITY#y"}, "SK": {"S": "#META"}},
                },
            },
            "neither of a bucket nor of limits",
        ),
    ]:
        with pytest.raises(BadRecord, match=words):
            parse(bad)


def test_a_snapshot_of_a_bucket_of_four_limits_stays_under_a_kilobyte(local):
    limits = [Limit.per_minute(name, 10**9) for name in ("rpm", "tpm", "input_tokens", "usd")]
    entity, resource = "0123456789abcdef0123456789abcdef0123", "r" * 32
    client = local.client(limits=limits)
    for _ in range(2):
        with client.acquire(entity, resource, {limit.name: 10**8 for limit in limits}):
            pass
    local.deliver()
    for (_, sk), item in local.engine.items.items():
        if sk.startswith("#USAGE#"):
            assert size(item) < 1_024


def size(item):
    """As DynamoDB counts: names and strings in UTF-8, numbers about one byte for two digits."""
    total = 0
    for name, typed in item.items():
        ((kind, value),) = typed.items()
        total += len(name.encode())
        total += len(value.encode()) if kind == "S" else len(str(value)) // 2 + 2
    return total


def test_index_keys_of_snapshots_are_those_that_the_table_indexes(local):
    with local.client(limits=[RPM]).acquire("alice", "gpt-4", {"rpm": 1}):
        pass
    local.deliver()
    keys = {d["AttributeName"] for d in table_definition("any")["AttributeDefinitions"]}
    for (_, sk), item in local.engine.items.items():
        if sk.startswith("#USAGE#"):
            assert {"GSI2PK", "GSI2SK", "GSI4PK", "GSI4SK"} == set(item) & (keys - {"PK", "SK"})
