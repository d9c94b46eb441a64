"""The meter bills as AWS does."""

from __future__ import annotations

import uuid

import pytest

from benchmarks.meter import Bill, Change, Meter, Record, item_size, value_size
from headgate.schema import table_definition
from tests.limiters import boto_session

METER = Meter(table_definition("table"))
KEY = {"PK": {"S": "a"}, "SK": {"S": "b"}}
GSI2 = {"GSI2PK": {"S": "c"}, "GSI2SK": {"S": "d"}}
GSI1 = {"GSI1PK": {"S": "c"}, "GSI1SK": {"S": "d"}}


def padded(item, size):
    return item | {"pad": {"S": "x" * (size - item_size(item) - len("pad"))}}


def put(before, after, **options):
    return METER.record(Record("PutItem", {}, changes=[Change(before, after)], **options))


def test_sizes_are_those_of_dynamodb():
    assert value_size({"S": "é"}) == 2
    assert value_size({"N": "100"}) == 2
    assert value_size({"N": "12345"}) == 4
    assert value_size({"N": "-12345"}) == 5
    assert value_size({"BOOL": True}) == value_size({"NULL": True}) == 1
    assert value_size({"L": [{"S": "ab"}, {"N": "1"}]}) == 3 + 2 + 2 + 2
    assert value_size({"M": {"k": {"S": "ab"}}}) == 3 + 1 + 1 + 2
    assert value_size({"SS": ["ab", "c"]}) == 3
    assert item_size({"PK": {"S": "ab"}}) == 4


def test_a_write_costs_a_unit_for_every_started_kilobyte_of_the_larger_image():
    assert put(None, padded(KEY, 1024)).writes == 1
    assert put(None, padded(KEY, 1025)).writes == 2
    assert put(padded(KEY, 3000), KEY).writes == 3


def test_a_failed_condition_costs_as_much_as_a_write_and_nothing_on_an_index():
    item = padded(KEY | GSI2, 1500)
    assert put(item, item, ok=False).writes == 2
    assert put(None, None, ok=False).writes == 1


@pytest.mark.parametrize(
    ("before", "after", "units"),
    [
        (KEY | GSI2, KEY | GSI2 | {"n": {"N": "1"}}, 0),  # KEYS_ONLY: nothing projected changed
        (None, KEY | GSI2, 1),
        (KEY | GSI2, None, 1),
        (KEY | GSI2, KEY | GSI2 | {"GSI2SK": {"S": "e"}}, 2),
        (KEY | GSI1, KEY | GSI1 | {"n": {"N": "1"}}, 1),  # ALL: whatever changes
        (KEY | GSI1, KEY | GSI1, 0),
        (KEY, KEY | {"n": {"N": "1"}}, 0),
    ],
)
def test_an_index_costs_what_its_projection_sees_of_a_change(before, after, units):
    bill = put(before, after)
    assert sum(bill.indexes.values()) == units
    assert bill.writes == 1 + units


def test_a_transaction_costs_double_cancelled_or_not():
    changes = [Change(KEY, KEY), Change(None, KEY | GSI2)]
    assert METER.record(Record("TransactWriteItems", {}, changes=changes)).writes == 2 * 3
    assert METER.record(Record("TransactWriteItems", {}, ok=False, changes=changes)).writes == 4


def test_reads_cost_by_consistency_and_size():
    def reads(operation, params, *items):
        return METER.record(Record(operation, params, read=items)).reads

    assert reads("GetItem", {}, KEY) == 0.5
    assert reads("GetItem", {}) == 0.5
    assert reads("GetItem", {"ConsistentRead": True}, padded(KEY, 4097)) == 2
    batch = {"RequestItems": {"table": {"Keys": [KEY, KEY, KEY]}}}
    assert reads("BatchGetItem", batch, KEY, padded(KEY, 5000)) == 0.5 * (1 + 2 + 1)
    assert reads("Query", {}, *[padded(KEY, 1000)] * 4) == 0.5
    assert reads("Query", {}, *[padded(KEY, 1000)] * 5) == 1.0
    assert reads("TransactGetItems", {"TransactItems": [1, 2]}, KEY) == 4


def test_bills_add_up_and_are_priced():
    bill = METER.session(
        [
            Record("UpdateItem", {}, changes=[Change(KEY, KEY)]),
            Record("GetItem", {"ConsistentRead": True}, read=[KEY]),
        ]
    )
    assert bill == Bill(requests=2, writes=1, reads=1)
    assert bill.per(1)["dollars_per_million"] == pytest.approx(0.625 + 0.125)


IMAGES = [
    None,
    KEY,
    KEY | GSI2,
    padded(KEY | GSI2 | GSI1, 2500),
    KEY | GSI2 | {"n": {"N": "1"}},
    KEY | GSI2 | {"GSI2SK": {"S": "e"}},
    KEY | GSI1 | {"n": {"N": "1"}},
]


def test_the_engine_says_the_same_of_single_writes(ministack):
    table = f"table-{uuid.uuid4().hex}"
    client = boto_session().client("dynamodb", endpoint_url=ministack.endpoint_url)
    client.create_table(**table_definition(table))
    for before in IMAGES:
        for after in IMAGES:
            client.delete_item(TableName=table, Key=KEY)
            if before:
                client.put_item(TableName=table, Item=before)
            more = {"TableName": table, "ReturnConsumedCapacity": "INDEXES"}
            if after:
                answer = client.put_item(Item=after, **more)
            else:
                answer = client.delete_item(Key=KEY, **more)
            said = answer["ConsumedCapacity"]
            bill = put(before, after)
            indexes = said.get("GlobalSecondaryIndexes", {})
            assert said["CapacityUnits"] == bill.writes, (before, after)
            assert {n: u["CapacityUnits"] for n, u in indexes.items() if u["CapacityUnits"]} == (
                bill.indexes
            )
    client.close()
