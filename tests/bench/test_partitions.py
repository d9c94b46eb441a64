"""The simulated partitions refuse what DynamoDB's would."""

from __future__ import annotations

import pytest

from benchmarks import rates
from benchmarks.meter import Meter
from benchmarks.partitions import READS_A_SECOND, WRITES_A_SECOND, Partitioned, Second
from benchmarks.touched import place, read, written
from headgate.effects import Answer, Call, ConditionFailed, Throttled
from headgate.schema import key, table_definition
from tests.simulation.engine import Engine

METER = Meter(table_definition("table"))


class Clock:
    now = 0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def partitioned(clock):
    return Partitioned(Engine(), METER, clock)


def update(pk="a", **more):
    params = {
        "TableName": "table",
        "Key": key(pk, "b"),
        "UpdateExpression": "ADD n :one",
        "ExpressionAttributeValues": {":one": {"N": "1"}},
    }
    return Call("UpdateItem", params | more)


def get(pk="a", **more):
    return Call("GetItem", {"TableName": "table", "Key": key(pk, "b"), **more})


def test_a_second_has_room_until_it_is_used_up_and_again_when_it_has_passed():
    second = Second(2)
    for now in (0, 500):
        assert second.room(now)
        second.spend(1, now)
    assert not second.room(999)
    assert second.room(1_000)
    second.spend(1, 1_000)
    assert not second.room(1_499)
    assert second.room(1_500)


def test_a_key_takes_a_thousand_writes_a_second_and_no_more(partitioned, clock):
    outcomes = [partitioned.send(update()) for _ in range(WRITES_A_SECOND + 5)]
    assert sum(isinstance(one, Answer) for one in outcomes) == WRITES_A_SECOND
    refused = outcomes[-1]
    assert isinstance(refused, Throttled)
    assert refused.of_key
    assert partitioned.throttled == 5
    assert partitioned.bill.writes == WRITES_A_SECOND
    assert isinstance(partitioned.send(update("another")), Answer)
    clock.now = 1_000
    assert isinstance(partitioned.send(update()), Answer)


def test_a_failed_condition_heats_a_key_as_a_write_does(partitioned):
    partitioned.send(update())
    missed = update(ConditionExpression="n > :one")
    assert isinstance(partitioned.send(missed), ConditionFailed)
    assert partitioned.bill.writes == 2


def test_a_transaction_counts_double_on_each_of_its_keys(partitioned):
    actions = [{"Update": dict(update(pk).params)} for pk in "ab"]
    partitioned.send(Call("TransactWriteItems", {"TransactItems": actions}))
    assert partitioned.bill.writes == 4
    assert partitioned.bill.requests == 1


def test_reads_have_a_limit_of_their_own(partitioned):
    partitioned.send(update())
    outcomes = [partitioned.send(get(ConsistentRead=True)) for _ in range(READS_A_SECOND + 1)]
    assert isinstance(outcomes[-2], Answer)
    assert isinstance(outcomes[-1], Throttled)
    assert partitioned.bill.reads == READS_A_SECOND
    assert isinstance(partitioned.send(update()), Answer)


def test_requests_name_what_they_read_and_write():
    a, b = key("a", "x"), key("b", "y")
    batch = {"RequestItems": {"table": {"Keys": [a, b]}}}
    assert [place(k) for _, k in read("BatchGetItem", batch)] == [("a", "x"), ("b", "y")]
    both = {"TransactItems": [{"Get": {"TableName": "table", "Key": a}}]}
    assert list(read("TransactGetItems", both)) == [("table", a)]
    put = {"TableName": "table", "Item": a | {"more": {"S": "z"}}}
    assert list(written("PutItem", put)) == [("table", a)]
    assert list(read("UpdateItem", {"TableName": "table", "Key": a})) == []
    some = {"RequestItems": {"table": [{"PutRequest": {"Item": b}}]}}
    assert list(written("BatchWriteItem", some)) == [("table", b)]


def test_a_bucket_within_its_rate_admits_all_and_a_busier_one_stays_within_its_bound():
    calm = rates.run(20, 50, ramp=5.0, seconds=5.0)
    assert calm["steady"]["admitted"] == calm["steady"]["acquires"]
    assert calm["shards"] == 1
    busy = rates.run(20, 200, ramp=5.0, seconds=5.0)
    assert busy["steady"]["rejected"]
    assert busy["excess"] <= busy["allowance"]
    assert busy["steady"]["false"] == 0


def test_a_bucket_is_split_as_often_as_its_rate_needs():
    assert rates.run(1_000, 95, ramp=3.0, seconds=1.0)["shards"] == 2


def test_many_who_are_after_each_token_do_not_ask_over_and_over():
    busy = rates.run(100, 150, ramp=3.0, seconds=10.0)
    assert busy["steady"]["rejected"]
    assert busy["steady"]["requests"] < 1.7 * busy["steady"]["acquires"]
    assert busy["steady"]["false"] == 0
    # What there was has been given out all the same.
    assert busy["admitted"] > 0.98 * busy["bound"]
