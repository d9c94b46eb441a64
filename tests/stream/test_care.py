"""Care for shards: split before it is late, finish what was begun, merge when it is quiet."""

from __future__ import annotations

import pytest

from aggregator.care import SHARDED
from headgate import Limit, RateLimiterUnavailable, shards
from headgate.bucket import MAX_SHARDS
from headgate.effects import Throttled
from headgate.schema import STATE, BucketRef
from tests.stream.local import NS, Local, registry

REF = BucketRef(NS, "alice", "gpt-4")
LIMIT = Limit.per_second("rps", 100_000)


@pytest.fixture
def local():
    return Local()


@pytest.fixture
def client(local):
    return local.client(limits=[LIMIT])


def take(client, times=1):
    for _ in range(times):
        with client.acquire("alice", "gpt-4", {"rps": 1}):
            pass


def write(local, rate, seconds, shard=0):
    """So many writes a second to a shard, as the stream shows them: now and then a record."""
    place = REF.pk(shard), STATE
    for _ in range(seconds):
        local.time.advance(1)
        item = dict(local.engine.items[place])
        item["b_wcu_tc"] = {"N": str(int(item["b_wcu_tc"]["N"]) + 1000 * rate)}
        local.engine._put(place, item)


def counts(local):
    """The shard count that each shard states."""
    return {
        int(pk.rpartition("#")[2]): int(item["shard_count"]["N"])
        for pk, item in sorted(local.buckets().items())
    }


def split_in_two(local, client):
    core = client.limiter._core
    (bucket,) = local.run(shards.read_all(core, REF))
    local.run(shards.split(core, REF, bucket))


# ---------------------------------------------------------------- splits


def test_a_shard_at_80_percent_of_what_a_key_takes_is_split(local, client):
    take(client)
    local.deliver()
    write(local, 850, 6)
    assert local.deliver() == {}
    assert counts(local) == {0: 2, 1: 2}


def test_a_shard_under_80_percent_is_left_alone(local, client):
    take(client)
    local.deliver()
    for _ in range(5):
        write(local, 750, 6)
        local.deliver()
    assert counts(local) == {0: 1}


def test_the_rate_is_seen_across_batches(local, client):
    take(client)
    for _ in range(7):
        write(local, 900, 1)
        local.deliver()
    assert counts(local) == {0: 2, 1: 2}


def test_a_batch_that_was_stuck_splits_nothing_now(local, client):
    take(client)
    local.deliver()
    write(local, 900, 10)
    local.time.advance(600)
    local.deliver()
    assert counts(local) == {0: 1}


def test_a_replayed_batch_does_not_split_again(local, client):
    take(client)
    local.deliver()
    write(local, 900, 6)
    records = local.records()
    for _ in range(3):
        local.aggregator = local.new_aggregator()
        write_seen = records[:1] + records  # a new process needs to see two moments
        assert local.deliver(records=write_seen) == {}
    assert counts(local) == {0: 2, 1: 2}


def test_there_are_never_more_than_64_shards(local, client):
    take(client)
    place = REF.pk(0), STATE
    item = dict(local.engine.items[place])
    item["shard_count"] = {"N": str(MAX_SHARDS)}
    local.engine._put(place, item)
    local.records()
    write(local, 900, 6)
    local.deliver()
    assert set(counts(local).values()) == {MAX_SHARDS}


def test_shards_that_lag_behind_are_split_too(local, client):
    take(client)
    split_in_two(local, client)
    core = client.limiter._core
    local.deliver()
    # Shard 0 goes to four; shard 1 has not heard of it.
    bucket = local.run(shards.read_all(core, REF))[0]
    local.run(core.call(shards.split_request(core, REF, bucket, core.now())))
    assert counts(local) == {0: 4, 1: 2, 2: 4}
    assert local.deliver() == {}
    assert counts(local) == {0: 4, 1: 4, 2: 4, 3: 4}


def test_a_split_that_is_throttled_comes_again_with_its_record(local, client):
    take(client)
    local.deliver()
    write(local, 900, 6)
    records = local.records()
    send = local.engine.send
    local.engine.send = lambda call: (
        Throttled("busy", of_key=True) if call.operation == "BatchGetItem" else send(call)
    )
    (failed,) = local.deliver(records=records)
    assert failed in {int(record["dynamodb"]["SequenceNumber"]) for record in records}
    assert counts(local) == {0: 1}


# ---------------------------------------------------------------- merges


def sweep(local, minutes=5):
    local.time.advance(minutes * 60)
    report = local.aggregator.sweep(lambda: True)
    assert report.failed == {}
    return report.counts.get("Merges", 0)


@pytest.fixture
def sharded(local, client):
    """A bucket of four shards that the aggregator knows of."""
    take(client)
    split_in_two(local, client)
    core = client.limiter._core
    for bucket in local.run(shards.read_all(core, REF)):
        local.run(shards.split(core, REF, bucket))
    assert counts(local) == {0: 4, 1: 4, 2: 4, 3: 4}
    local.deliver()
    return local


def test_a_sharded_bucket_is_on_the_list_once(sharded):
    (marker,) = registry(sharded, SHARDED)
    assert marker["bucket"]["S"] == REF.pk(0)
    sharded.aggregator = sharded.new_aggregator()
    write(sharded, 1, 2)
    sharded.deliver()
    assert len(registry(sharded, SHARDED)) == 1


def test_shards_are_merged_after_ten_quiet_minutes_and_leave_the_list(sharded):
    merges = [sweep(sharded) for _ in range(4)]
    assert merges == [0, 0, 2, 0]
    assert counts(sharded) == {0: 1}
    assert registry(sharded, SHARDED) == []


def test_a_busy_shard_starts_the_quiet_time_anew(sharded):
    sweep(sharded)
    sweep(sharded)
    write(sharded, 400, 300, shard=2)
    assert sweep(sharded, minutes=0) == 0
    assert [sweep(sharded), sweep(sharded)] == [0, 2]


def test_no_more_shards_are_merged_than_the_rate_allows(sharded):
    merges = []
    for _ in range(4):
        for shard in range(4):
            # What is written to a shard that has gone, its lower half takes.
            now = shard if shard in counts(sharded) else shard - 2
            write(sharded, 250 * 4, 75, shard=now)
        merges.append(sweep(sharded, minutes=0))
    # 250 a second on each of four is 500 on each of two: under what splits, over what is quiet.
    assert merges == [0, 0, 1, 0]
    assert counts(sharded) == {0: 2, 1: 2}


def test_a_bucket_that_splits_again_is_not_quiet(sharded, client):
    sweep(sharded)
    sweep(sharded)
    core = client.limiter._core
    for bucket in sharded.run(shards.read_all(core, REF)):
        sharded.run(shards.split(core, REF, bucket))
    assert len(counts(sharded)) == 8
    assert sweep(sharded) == 0
    assert len(counts(sharded)) == 8


def test_a_merge_that_a_write_gets_in_the_way_of_goes_on_with_the_next_sweep(sharded):
    sweep(sharded)
    sweep(sharded)

    def meddle(call):
        if call.operation == "TransactWriteItems":
            place = REF.pk(1), STATE
            item = dict(sharded.engine.items[place])
            item["b_rps_tk"] = {"N": str(int(item["b_rps_tk"]["N"]) - 1000)}
            sharded.engine._put(place, item)

    sharded.run.before = meddle
    assert sweep(sharded) == 0
    assert 1 in counts(sharded)
    sharded.run.before = lambda call: None
    assert sweep(sharded) >= 1
    assert counts(sharded) == {0: 1}


def test_two_sweeps_at_once_do_no_harm(sharded):
    sweep(sharded)
    sweep(sharded)
    sharded.time.advance(300)
    other = sharded.new_aggregator()
    markers = []

    def meddle(call):
        if call.operation == "TransactGetItems" and not markers:
            markers.append(call)
            other.sweep(lambda: True)

    sharded.run.before = meddle
    assert sharded.aggregator.sweep(lambda: True).failed == {}
    assert counts(sharded) == {0: 1}


def test_a_bucket_that_has_gone_leaves_the_list(sharded):
    for pk in list(sharded.buckets()):
        sharded.engine._put((pk, STATE), None)
    sweep(sharded)
    assert registry(sharded, SHARDED) == []


def test_one_bucket_that_fails_does_not_keep_the_others_waiting(sharded, client):
    bob = BucketRef(NS, "bob", "gpt-4")
    with client.acquire("bob", "gpt-4", {"rps": 1}):
        pass
    core = client.limiter._core
    (bucket,) = sharded.run(shards.read_all(core, bob))
    sharded.run(shards.split(core, bob, bucket))
    sharded.deliver()
    send = sharded.engine.send
    sharded.engine.send = lambda call: (
        Throttled("busy", of_key=True)
        if call.operation == "TransactGetItems" and "alice" in str(call.params)
        else send(call)
    )
    for _ in range(3):
        sharded.time.advance(300)
        report = sharded.aggregator.sweep(lambda: True)
        assert [type(error) for error in report.failed.values()] == [RateLimiterUnavailable]
    assert {pk for pk in sharded.buckets() if "bob" in pk} == {bob.pk(0)}
    assert len(registry(sharded, SHARDED)) == 1


def test_a_sweep_stops_when_its_time_is_up_and_begins_with_the_oldest(local):
    clients = local.client(limits=[LIMIT])
    for name in ("a", "b", "c"):
        ref = BucketRef(NS, name, "gpt-4")
        with clients.acquire(name, "gpt-4", {"rps": 1}):
            pass
        core = clients.limiter._core
        (bucket,) = local.run(shards.read_all(core, ref))
        local.run(shards.split(core, ref, bucket))
    local.deliver()

    def looked_at():
        """A sweep that has time for one bucket."""
        times = iter([True, False])
        local.time.advance(60)
        local.aggregator.sweep(lambda: next(times))
        return [m["SK"]["S"] for m in registry(local, SHARDED) if "seen_at" in m]

    seen = [looked_at() for _ in range(3)]
    assert [len(names) for names in seen] == [1, 2, 3]


def test_usage_stays_exact_through_splits_and_merges_by_the_aggregator(sharded, client):
    before = sharded.snapshots()
    total = sum(limits["rps"] for key, limits in before.items() if key[2] == "hourly")
    for _ in range(4):
        take(client, 10)
        total += 10
        sharded.deliver()
        sweep(sharded)
    sharded.deliver()
    found = sum(v["rps"] for key, v in sharded.snapshots().items() if key[2] == "hourly")
    assert found == total
