"""Every write that the client makes, on two engines: accepted, and doing what the arithmetic says.

dynalite is the strict one: it refuses what DynamoDB refuses and ministack lets pass. It knows
neither transactions nor the item in a failed condition's answer, so actions of transactions are
sent to it one by one.
"""

from __future__ import annotations

import itertools
from contextlib import suppress
from dataclasses import replace

import boto3
import pytest

import engine
from headgate import Limit, RateLimitExceeded, Request, writes
from headgate.bucket import BASELINE, WCU, WCU_GRACE, WHOLE, Shard, ceiling, earned, level, share
from headgate.drivers.boto import method_name
from headgate.limit import LimitSet
from headgate.schema import Bucket, BucketRef, Decoder, bucket_item, table_definition
from headgate.shards import halves
from tests.limiters import AgreedClock, Sync, Time, create_table

NOW = BASELINE + 500 * 86_400_000 + 123
REF = BucketRef("expressions", "alice", "gpt-4")
RPM, TPM = Limit.per_minute("rpm", 60), Limit.per_hour("tpm", 5_000, burst=100)
QUOTA = Limit.custom("quota", capacity=40, refill_amount=0, refill_period=1)
SETS = {
    "one": LimitSet([RPM]),
    "two": LimitSet([RPM, TPM]),
    "one never refills": LimitSet([RPM, TPM, QUOTA]),
}


class Table:
    """One engine's table, driven request by request."""

    def __init__(self, name, url, *, strict):
        self.client = boto3.client("dynamodb", endpoint_url=url, region_name=engine.REGION)
        self.name = name
        self.strict = strict

    def send(self, call):
        params = dict(call.params)
        if self.strict:
            params.pop("ReturnValuesOnConditionCheckFailure", None)
        return getattr(self.client, method_name(call.operation))(**params)

    def put(self, bucket, ttl=None):
        self.client.put_item(TableName=self.name, Item=bucket_item(REF, bucket, ttl))

    def get(self, shard=0):
        found = self.client.get_item(TableName=self.name, Key=REF.key(shard), ConsistentRead=True)
        return found.get("Item")

    def does(self, call):
        """Whether the condition held."""
        try:
            self.send(call)
        except self.client.exceptions.ConditionalCheckFailedException:
            return False
        return True


@pytest.fixture(scope="module", params=["ministack", "dynalite"])
def table(request):
    running = request.getfixturevalue(request.param)
    found = Table("expressions", running.endpoint_url, strict=request.param == "dynalite")
    definition = table_definition("expressions")
    if found.strict:
        del definition["StreamSpecification"]
    found.client.create_table(**definition)
    found.client.get_waiter("table_exists").wait(TableName="expressions", WaiterConfig={"Delay": 0})
    yield found
    found.client.delete_table(TableName="expressions")
    found.client.close()


HOLDS = {"empty": 0, "some": 30_000, "full": None, "over": 100_000_000, "in debt": -20_000}


def bucket_of(limits, holds, shard=WHOLE):
    """A bucket whose limits hold these amounts."""
    tk = tuple(
        ceiling(rate, shard, NOW)
        if HOLDS[hold] is None
        else HOLDS[hold] // shard.n - earned(rate, shard, NOW)
        for rate, hold in zip(limits.rates, holds, strict=True)
    )
    return replace(Bucket.full(limits, NOW, shard=shard), tk=tk)


def cases(names=SETS):
    """Limits, what they hold and what is asked of them: those that vary, the rest holds some."""
    for name in names:
        count = len(SETS[name].names)
        varied = 1 if count == 3 else count
        for holds in itertools.product(HOLDS, repeat=varied):
            padded = (*holds, *["some"] * (count - varied))
            for asked in itertools.product([0, 5_000], repeat=count):
                if any(asked):
                    yield name, padded, asked


def check(table, bucket, amounts, call, *, passes):
    table.put(bucket)
    assert table.does(call) is passes
    after = Decoder().bucket(table.get(bucket.shard.i))
    assert after.limits == bucket.limits
    if not passes:
        assert after == bucket
        return
    expected = bucket.drawn(amounts, NOW)
    assert after.tc == expected.tc
    for i in range(len(amounts)):
        # Within the slack, a balance over the cap is not cut: as good as cut, for 100 ms.
        over = level(after.balance(i), NOW) - level(expected.balance(i), NOW)
        assert 0 <= over <= writes.slack(bucket.limits.rates[i], bucket.shard)
    assert after.wcu_tc == bucket.wcu_tc + 1_000


@pytest.mark.parametrize("shard", [WHOLE, Shard(1, 2)], ids=["whole", "shard"])
@pytest.mark.parametrize("force", [False, True], ids=["asked", "forced"])
def test_a_debit_does_what_the_arithmetic_says_in_every_state(table, shard, force):
    for name, holds, amounts in cases():
        bucket = bucket_of(SETS[name], holds, shard)
        passes = force or all(
            not asked or asked <= has
            for asked, has in zip(amounts, bucket.available(NOW), strict=True)
        )
        call = writes.debit(table.name, REF, bucket, amounts, NOW, force=force)
        check(table, bucket, amounts, call, passes=passes)


@pytest.mark.parametrize("shard", [WHOLE, Shard(1, 2)], ids=["whole", "shard"])
def test_a_debit_of_a_fresh_view_cuts_idle_write_capacity(table, shard):
    limits = SETS["two"]
    idle = replace(bucket_of(limits, ["some", "full"], shard), wcu_tk=0)
    amounts = (1_000, 1_000)
    call = writes.debit(table.name, REF, idle, amounts, NOW, fresh=True)
    check(table, idle, amounts, call, passes=True)
    after = Decoder().bucket(table.get(shard.i))
    assert after.wcu_tk + earned(WCU, WHOLE, NOW) == 999_000


def test_a_debit_is_refused_where_writes_are_exhausted(table):
    limits = SETS["one"]
    spent = -WCU_GRACE - earned(WCU, WHOLE, NOW)
    hot = replace(bucket_of(limits, ["some"]), wcu_tk=spent)
    check(table, hot, (1_000,), writes.debit(table.name, REF, hot, (1_000,), NOW), passes=False)


def test_a_debit_by_other_limits_or_another_count_is_refused(table):
    mine = bucket_of(SETS["one"], ["some"])
    table.put(bucket_of(SETS["two"], ["some", "some"]))
    assert not table.does(writes.debit(table.name, REF, mine, (1_000,), NOW))
    table.put(replace(mine, shard=Shard(0, 2)))
    assert not table.does(writes.debit(table.name, REF, mine, (1_000,), NOW))


def test_a_blind_debit_takes_whatever_is_there_and_the_expiry_with_it(table):
    for name, holds, amounts in cases(["one", "one never refills"]):
        bucket = bucket_of(SETS[name], holds)
        table.put(bucket, ttl=1_900_000_000)
        assert table.does(writes.debit_blind(table.name, REF, bucket, amounts, NOW))
        item = table.get()
        after = Decoder().bucket(item)
        assert after.tk == tuple(t - a for t, a in zip(bucket.tk, amounts, strict=True))
        assert after.tc == amounts
        assert "ttl" not in item


def test_a_credit_gives_back_and_takes_out_of_the_count(table):
    for name, holds, amounts in cases(["one", "one never refills"]):
        bucket = bucket_of(SETS[name], holds).drawn(amounts, NOW)
        table.put(bucket, ttl=1_900_000_000)
        call = writes.credit(table.name, REF, bucket, amounts, NOW)
        assert not call.repeatable
        assert table.does(call)
        item = table.get()
        after = Decoder().bucket(item)
        assert after.tk == tuple(t + a for t, a in zip(bucket.tk, amounts, strict=True))
        assert set(after.tc) == {0}
        assert item["ttl"] == {"N": "1900000000"}


def test_a_bucket_is_created_once(table):
    bucket = bucket_of(SETS["two"], ["some", "full"])
    table.client.delete_item(TableName=table.name, Key=REF.key(0))
    call = writes.create(table.name, REF, bucket, NOW)
    assert table.does(call)
    assert Decoder().bucket(table.get()) == bucket
    assert not table.does(call)


@pytest.mark.parametrize("shard", [WHOLE, Shard(1, 2)], ids=["whole", "shard"])
def test_a_bucket_comes_in_line_from_any_limits_to_any_others(table, shard):
    others = [*SETS.values(), LimitSet([QUOTA]), LimitSet([Limit.per_day("rpm", 7), TPM])]
    for before, after in itertools.permutations(others, 2):
        for hold in HOLDS:
            bucket = bucket_of(before, [hold] * len(before.names), shard)
            table.put(bucket)
            assert table.does(writes.relimit(table.name, REF, bucket, after, NOW))
            found = Decoder().bucket(table.get(shard.i))
            assert found.limits == after
            for i, name in enumerate(after.names):
                was = before.positions.get(name)
                held = level(found.balance(i), NOW)
                if was is None:
                    assert held == share(after.rates[i].cp, shard)
                    continue
                expected = min(level(bucket.balance(was), NOW), share(before.rates[was].cp, shard))
                assert 0 <= held - expected <= writes.slack(before.rates[was], shard)


@pytest.mark.parametrize("hold", HOLDS)
def test_the_halves_of_a_split_are_written_as_they_are_computed(table, hold):
    for give, source in itertools.product([True, False], [WHOLE, Shard(1, 2)]):
        bucket = bucket_of(SETS["two"], [hold, "some"], source)
        lower, upper = halves(bucket, NOW, give=give)
        table.put(bucket, ttl=1_900_000_000)
        table.client.delete_item(TableName=table.name, Key=REF.key(upper.shard.i))
        for action in (
            writes.hand_over(table.name, REF, bucket, lower, NOW),
            writes.put_shard(table.name, REF, upper),
        ):
            ((kind, params),) = action.items()
            assert table.does(writes.Call(f"{kind}Item", params))
        found = Decoder().bucket(table.get(source.i))
        assert (found.shard, found.tk) == (lower.shard, lower.tk)
        assert Decoder().bucket(table.get(upper.shard.i)) == upper
        assert "ttl" not in table.get(source.i)


LONG = [LimitSet([Limit.per_day(f"{c}{i:02}{'x' * 29}", 9) for i in range(16)]) for c in "ab"]


def test_the_longest_expressions_are_within_what_dynamodb_takes(table):
    bucket = Bucket.full(LONG[0], NOW)
    amounts = (1_000,) * 16
    calls = [
        writes.debit(table.name, REF, bucket, amounts, NOW),
        writes.debit(table.name, REF, bucket, amounts, NOW, force=True),
        writes.credit(table.name, REF, bucket, amounts, NOW),
        writes.relimit(table.name, REF, bucket, LONG[1], NOW),
    ]
    for call in calls:
        table.put(bucket)
        assert table.does(call)
        for name in ("ConditionExpression", "UpdateExpression"):
            assert len(call.params[name].encode()) <= 4_096, name


def test_everything_a_client_sends_in_a_busy_life_is_accepted(ministack, dynalite):
    """Whatever a limiter sends to ministack is shown to dynalite as well."""
    create_table("busy-life", ministack.endpoint_url)
    strict = Table("busy-life", dynalite.endpoint_url, strict=True)
    definition = table_definition("busy-life")
    del definition["StreamSpecification"]
    strict.client.create_table(**definition)
    strict.client.get_waiter("table_exists").wait(TableName="busy-life", WaiterConfig={"Delay": 0})
    shown = set()

    def show(call, send):
        for operation, params in _single(call):
            shown.add(operation)
            # It holds no items, so conditions fail; what must not fail is the validation.
            with suppress(strict.client.exceptions.ConditionalCheckFailedException):
                strict.send(writes.Call(operation, params))
        return send(call)

    time = Time()
    limiter = Sync.made(
        "busy-life",
        endpoint_url=ministack.endpoint_url,
        clock=AgreedClock(time),
        limits=SETS["two"].limits,
    )
    limiter.wire = show
    live(limiter, time)
    limiter.close()
    strict.client.delete_table(TableName="busy-life")
    strict.client.close()
    assert shown >= {"UpdateItem", "PutItem", "DeleteItem", "Query", "BatchGetItem", "GetItem"}


def live(limiter, time):
    """A bit of everything."""
    limiter.create_entity("org", name="Organisation", metadata={"plan": "gold"})
    limiter.create_entity("alice", parent_id="org", cascade=True)
    limiter.set_limits(SETS["two"].limits)
    limiter.set_limits(SETS["two"].limits, entity_id="alice")
    with limiter.acquire("alice", "gpt-4", {"rpm": 1, "tpm": 10}) as lease:
        lease.adjust(tpm=5)
        lease.adjust(tpm=500)
        lease.release(rpm=1)
    with limiter.acquire("alice", "later", {"rpm": 2, "tpm": 10}) as lease:
        ticket = lease.ticket()
    limiter.release(limiter.adjust(ticket, {"rpm": 1, "tpm": -5}).ticket)
    time.advance(3600)
    for _ in range(3):
        with limiter.acquire("bob", "gpt-4", {"rpm": 20}):
            pass
    with pytest.raises(RateLimitExceeded), limiter.acquire("bob", "gpt-4", {"rpm": 20}):
        pass
    with limiter.acquire_all([Request("alice", "a", {"rpm": 1}), Request("bob", "b", {"rpm": 1})]):
        pass
    limiter.set_limits([RPM, QUOTA], entity_id="alice", resource="gpt-4")
    limiter.check("alice", "gpt-4", {"rpm": 1})
    limiter.update_entity("alice", cascade=False)
    for where in ({}, {"entity_id": "alice"}, {"resource": "gpt-4"}):
        limiter.list_limits(**where)
        limiter.delete_limits(**where)
    limiter.list_children("org")
    limiter.delete_entity("alice")


def _single(call):
    """A call as single operations: dynalite knows no transactions."""
    if call.operation not in ("TransactWriteItems", "TransactGetItems"):
        yield call.operation, call.params
        return
    for action in call.params["TransactItems"]:
        for kind, params in action.items():
            if kind != "ConditionCheck":
                yield f"{kind}Item", params
