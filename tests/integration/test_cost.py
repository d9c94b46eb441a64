"""What an acquire costs: one write unit, nothing on any index, an item of less than 1 KB."""

from __future__ import annotations

import uuid

import pytest
from botocore.config import Config

from headgate import Limit
from headgate.bucket import BASELINE
from headgate.limit import LimitSet
from headgate.schema import Bucket, BucketRef, bucket_item
from tests.limiters import Sync, boto_session, create_table

YEARS = 86_400_000 * 365
INDEXES = ("GSI1", "GSI2", "GSI3", "GSI4")


def size(item):
    """DynamoDB's rules: names and text in UTF-8, a byte for two digits of a number and one more."""
    return sum(len(name.encode()) + value_size(value) for name, value in item.items())


def value_size(value):
    ((kind, content),) = value.items()
    if kind == "S":
        return len(content.encode())
    if kind == "BOOL":
        return 1
    digits = content.lstrip("-").rstrip("0") or "0"
    return (len(digits) + 1) // 2 + 1 + content.startswith("-")


def test_the_rules_of_size_are_those_of_dynamodb():
    assert size({"PK": {"S": "é"}}) == 4
    assert size({"n": {"N": "100"}}) == 1 + 2
    assert size({"n": {"N": "12345"}}) == 1 + 4
    assert size({"n": {"N": "-12345"}}) == 1 + 5
    assert size({"b": {"BOOL": True}}) == 2


def test_an_item_of_four_limits_stays_under_a_kilobyte():
    ref = BucketRef("abcdefghijk", str(uuid.UUID(int=2**128 - 1)), "x" * 32)
    assert len(ref.entity_id) == 36
    limits = LimitSet(
        [
            Limit.per_minute("rpm", 9_999),
            Limit.per_minute("tpm", 9_999_999),
            Limit.per_day("rpd", 999_999),
            Limit.per_day("tpd", 999_999_999),
        ]
    )
    for years in (2, 20):
        # With all digits in use: amounts that are no round numbers.
        now = BASELINE + years * YEARS + 123_457
        bucket = Bucket.full(limits, now, cascade=True, parent_id=ref.entity_id)
        used = bucket.drawn([1_234_567_891] * 4, now)
        spent = Bucket(
            used.shard,
            limits,
            tuple(tk - 7 for tk in used.tk),
            (9_876_543_210_987_654_321,) * 4,
            used.wcu_tk - 7,
            9_876_543_210_987,
            cascade=True,
            parent_id=ref.entity_id,
        )
        assert size(bucket_item(ref, spent, 2_345_678_901)) < 1_024


@pytest.fixture
def metered(ministack):
    """A limiter, and the capacity that each of its writes consumed."""
    table = f"table-{uuid.uuid4().hex}"
    create_table(table, ministack.endpoint_url)
    limits = [Limit.per_minute("rpm", 100), Limit.per_minute("tpm", 10_000)]
    config = Config(retries={"total_max_attempts": 1})
    client = boto_session().client("dynamodb", endpoint_url=ministack.endpoint_url, config=config)
    limiter = Sync.made(table, client=client, limits=limits)
    consumed = []

    with limiter.acquire("alice", "gpt-4", {"rpm": 1, "tpm": 10}):
        pass
    events = client.meta.events

    def ask(params, **_):
        params["ReturnConsumedCapacity"] = "INDEXES"

    def note(parsed, **_):
        consumed.append(parsed["ConsumedCapacity"])

    events.register("provide-client-params.dynamodb.UpdateItem", ask)
    events.register("after-call.dynamodb.UpdateItem", note)
    limiter.consumed = consumed
    yield limiter
    limiter.close()
    client.close()


def test_a_warm_acquire_is_one_write_unit_and_nothing_on_any_index(metered):
    with metered.sending() as sent, metered.acquire("alice", "gpt-4", {"rpm": 1, "tpm": 10}):
        pass
    assert sent == ["UpdateItem"]
    (capacity,) = metered.consumed
    assert capacity["CapacityUnits"] == 1.0
    assert capacity["Table"]["CapacityUnits"] == 1.0
    indexes = capacity.get("GlobalSecondaryIndexes", {})
    assert sum(index["CapacityUnits"] for index in indexes.values()) == 0.0


def test_adjusting_and_releasing_are_one_write_unit_each(metered):
    with metered.acquire("alice", "gpt-4", {"rpm": 1, "tpm": 10}) as lease:
        lease.adjust(tpm=5)
        lease.adjust(tpm=-5)
        lease.release()
    assert [capacity["CapacityUnits"] for capacity in metered.consumed] == [1.0] * 4


def test_the_engine_would_show_a_write_to_an_index(metered):
    client = metered.limiter._driver._client
    item = {"PK": {"S": "a"}, "SK": {"S": "b"}}
    item |= {f"{index}{part}": {"S": "c"} for index in INDEXES for part in ("PK", "SK")}
    answer = client.put_item(
        TableName=metered.limiter._core.table, Item=item, ReturnConsumedCapacity="INDEXES"
    )
    assert answer["ConsumedCapacity"]["CapacityUnits"] == 5.0
