"""Changed defaults reach the buckets that follow them, and no others."""

from __future__ import annotations

import pytest

from aggregator import propagate
from aggregator.propagate import JOB, Unfinished
from headgate import Limit, shards
from headgate.effects import Throttled
from headgate.errors import RateLimiterUnavailable
from headgate.schema import BucketRef, Decoder
from tests.stream.local import NS, Local, registry

HIGH, LOW = Limit.per_minute("rpm", 600), Limit.per_minute("rpm", 6)
OTHER = Limit.per_minute("rpm", 77)


@pytest.fixture
def local():
    return Local()


@pytest.fixture
def client(local):
    return local.client()


def use(client, *names, resource="gpt-4"):
    for name in names:
        with client.acquire(name, resource, {"rpm": 1}):
            pass


def limits(local):
    """The capacity of each bucket, by entity and resource; of each shard, if they differ."""
    decoder, found = Decoder(), {}
    for pk, item in sorted(local.buckets().items()):
        _, entity, resource, _ = pk.split("#")
        capacity = decoder.bucket(item).limits.limits[0].capacity
        found.setdefault((entity, resource), set()).add(capacity)
    return {where: next(iter(c)) if len(c) == 1 else c for where, c in found.items()}


def test_lowering_a_resources_default_600_to_6_a_minute_reaches_a_busy_bucket(local, client):
    client.set_limits([HIGH], resource="gpt-4")
    use(client, "alice", "bob")
    local.deliver()
    local.client().set_limits([LOW], resource="gpt-4")
    assert local.deliver() == {}
    assert limits(local) == {("alice", "gpt-4"): 6, ("bob", "gpt-4"): 6}


def test_entities_with_limits_of_their_own_are_left_alone(local, client):
    client.set_limits([HIGH], resource="gpt-4")
    client.set_limits([OTHER], entity_id="vip", resource="gpt-4")
    client.set_limits([OTHER], entity_id="friend")
    use(client, "alice", "vip", "friend")
    client.set_limits([LOW], resource="gpt-4")
    before = {pk: dict(item) for pk, item in local.buckets().items()}
    local.deliver()
    assert limits(local) == {
        ("alice", "gpt-4"): 6,
        ("vip", "gpt-4"): 77,
        ("friend", "gpt-4"): 77,
    }
    after = local.buckets()
    assert [pk for pk in before if after[pk] != before[pk]] == [
        BucketRef(NS, "alice", "gpt-4").pk(0)
    ]


def test_other_resources_and_namespaces_are_left_alone(local, client):
    client.set_limits([HIGH])
    use(client, "alice")
    use(client, "alice", resource="search")
    elsewhere = local.client()
    elsewhere.limiter._core.ns = "elsewhere_1"
    elsewhere.set_limits([HIGH])
    use(elsewhere, "alice")
    local.deliver()
    client.set_limits([LOW], resource="gpt-4")
    local.deliver()
    assert limits(local) == {("alice", "gpt-4"): {6, 600}, ("alice", "search"): 600}


def test_the_systems_default_reaches_every_resource_that_has_none_of_its_own(local, client):
    client.set_limits([HIGH])
    client.set_limits([OTHER], resource="search")
    use(client, "alice", "bob")
    use(client, "alice", resource="search")
    use(client, "bob", resource="embed")
    local.deliver()
    client.set_limits([LOW])
    local.deliver()
    assert limits(local) == {
        ("alice", "gpt-4"): 6,
        ("alice", "search"): 77,
        ("bob", "embed"): 6,
        ("bob", "gpt-4"): 6,
    }


def test_a_deleted_default_gives_way_to_the_next_level(local, client):
    client.set_limits([HIGH])
    client.set_limits([LOW], resource="gpt-4")
    use(client, "alice")
    local.deliver()
    client.delete_limits(resource="gpt-4")
    assert local.deliver() == {}
    assert limits(local) == {("alice", "gpt-4"): 600}


def test_where_no_level_has_limits_any_more_buckets_stay_as_they_are(local, client):
    client.set_limits([HIGH], resource="gpt-4")
    use(client, "alice")
    client.delete_limits(resource="gpt-4")
    assert local.deliver() == {}
    assert limits(local) == {("alice", "gpt-4"): 600}


def test_buckets_whose_callers_bring_the_limits_are_left_alone(local, client):
    """Taken out and put back by the next call, their limits would be full again."""
    client.set_limits([HIGH])
    with client.acquire("job-7", "import", {"rows": 900}, limits=[Limit.per_hour("rows", 1_000)]):
        pass
    before = {pk: dict(item) for pk, item in local.buckets().items()}
    client.set_limits([LOW])
    client.set_limits([LOW], resource="import")
    assert local.deliver() == {}
    assert local.buckets() == before


def test_the_first_limits_of_a_resource_reach_the_buckets_that_followed_the_system(local, client):
    client.set_limits([HIGH])
    use(client, "alice")
    use(client, "alice", resource="search")
    client.set_limits([LOW], resource="gpt-4")
    assert local.deliver() == {}
    assert limits(local) == {("alice", "gpt-4"): 6, ("alice", "search"): 600}


def test_all_shards_of_a_bucket_follow(local, client):
    client.set_limits([HIGH], resource="gpt-4")
    use(client, "alice")
    ref, core = BucketRef(NS, "alice", "gpt-4"), client.limiter._core
    (bucket,) = local.run(shards.read_all(core, ref))
    local.run(shards.split(core, ref, bucket))
    client.set_limits([LOW], resource="gpt-4")
    local.deliver()
    assert len(local.buckets()) == 2
    assert limits(local) == {("alice", "gpt-4"): 6}


def test_a_change_of_the_policy_alone_touches_no_bucket(local, client):
    client.set_limits([HIGH])
    use(client, "alice")
    local.deliver()
    client.set_limits([HIGH], on_unavailable="allow")
    local.run.sent.clear()
    assert local.deliver() == {}
    assert local.run.sent == {}


def modes(local):
    decoder = Decoder()
    return {
        pk.split("#")[1]: decoder.bucket(item).limits.mode for pk, item in local.buckets().items()
    }


def test_a_switch_that_its_caller_could_not_finish_reaches_every_bucket(local, client):
    """Those with limits of their own too, whose limits stay."""
    client.set_limits([HIGH], resource="gpt-4")
    client.set_limits([OTHER], entity_id="vip", resource="gpt-4")
    use(client, "alice", "vip")
    own = [Limit.per_hour("rows", 1_000)]
    with client.acquire("job-7", "gpt-4", {"rows": 900}, limits=own):
        pass
    before = {pk: dict(item) for pk, item in local.buckets().items()}
    local.deliver()
    client.set_mode("disabled", resource="gpt-4")
    for pk, item in before.items():  # as if the caller had died at once
        local.engine._put((pk, "#STATE"), item)
    assert local.deliver() == {}
    assert modes(local) == {"alice": "disabled", "vip": "disabled", "job-7": "disabled"}
    assert limits(local) == {
        ("alice", "gpt-4"): 600,
        ("vip", "gpt-4"): 77,
        ("job-7", "gpt-4"): 1_000,
    }


def test_limits_that_change_while_a_resource_is_disabled_reach_its_buckets(local, client):
    client.set_limits([HIGH], resource="gpt-4")
    use(client, "alice")
    client.set_mode("disabled", resource="gpt-4")
    local.deliver()
    client.set_limits([LOW], resource="gpt-4")
    assert local.deliver() == {}
    assert limits(local) == {("alice", "gpt-4"): 6}
    assert modes(local) == {"alice": "disabled"}


# ---------------------------------------------------------------- many buckets


MANY = 250  # more than two pages


@pytest.fixture
def many(local, client):
    client.set_limits([HIGH], resource="gpt-4")
    use(client, *(f"user-{number:03}" for number in range(MANY)))
    local.deliver()
    client.set_limits([LOW], resource="gpt-4")
    (record,) = local.records()
    return record


def lowered(local):
    return sum(capacity == 6 for capacity in limits(local).values())


def test_all_pages_are_gone_through(local, many):
    assert local.deliver(records=[many]) == {}
    assert lowered(local) == MANY


def test_out_of_time_the_record_fails_and_goes_on_where_it_was(local, many):
    progress = []
    while True:
        local.run.sent.clear()
        failed = local.deliver(records=[many], time_left=lambda: False)
        progress.append(lowered(local))
        if not failed:
            break
        assert [type(error) for error in failed.values()] == [Unfinished]
        local.aggregator = local.new_aggregator()
    assert progress == [100, 200, MANY]


def test_a_finished_change_that_comes_again_does_nothing(local, many):
    local.deliver(records=[many])
    local.run.sent.clear()
    assert local.deliver(records=[many]) == {}
    assert local.run.sent == {"BatchGetItem": 1}


def test_throttled_it_fails_and_goes_on_where_it_was(local, many):
    local.deliver(records=[many], time_left=lambda: False)
    send = local.engine.send
    local.engine.send = lambda call: (
        Throttled("busy", of_key=False) if "#STATE" in str(call.params.get("Key")) else send(call)
    )
    failed = local.deliver(records=[many])
    assert [type(error) for error in failed.values()] == [RateLimiterUnavailable]
    local.engine.send = send
    assert local.deliver(records=[many]) == {}
    assert lowered(local) == MANY


def test_a_later_change_takes_the_place_of_an_unfinished_one(local, client, many):
    local.deliver(records=[many], time_left=lambda: False)
    client.set_limits([OTHER], resource="gpt-4")
    (later,) = [r for r in local.records() if r["dynamodb"]["Keys"]["SK"]["S"] == "#CONFIG"]
    assert lowered(local) == 100
    assert local.deliver(records=[later]) == {}
    assert set(limits(local).values()) == {77}
    local.run.sent.clear()
    assert local.deliver(records=[many]) == {}
    assert local.run.sent == {"BatchGetItem": 1}
    assert set(limits(local).values()) == {77}


def test_a_change_that_lambda_gave_up_on_is_finished_by_the_sweep(local, many):
    local.deliver(records=[many], time_left=lambda: False)
    local.aggregator = local.new_aggregator()
    assert local.aggregator.sweep(lambda: True).failed == {}
    assert lowered(local) == MANY
    assert local.run(propagate.unfinished(local.aggregator._core)) == []


def test_what_is_remembered_of_a_finished_change_expires(local, many):
    local.deliver(records=[many])
    (job,) = registry(local, JOB)
    assert int(job["ttl"]["N"]) > local.time() // 1000 + 86_400


def test_two_changes_in_one_batch_end_with_the_second(local, client, many):
    client.set_limits([OTHER], resource="gpt-4")
    client.set_limits([HIGH], resource="gpt-4")
    before = {pk: dict(item) for pk, item in local.buckets().items()}
    assert local.deliver(records=[many, *local.records()]) == {}
    assert local.buckets() == before
