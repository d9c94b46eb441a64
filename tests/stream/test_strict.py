"""Whatever the aggregator and the readers send, the strict engine accepts.

dynalite knows no transactions and no item in a failed condition's answer, and refuses what
DynamoDB refuses: reserved words, unused values, overlapping paths.
"""

from __future__ import annotations

import random
from contextlib import suppress

import boto3
import pytest

import engine
from headgate import Limit, shards
from headgate.drivers.boto import method_name
from headgate.schema import BucketRef, table_definition
from tests.stream.esm import Chaos, EventSourceMapping, Mapping
from tests.stream.histories import Life
from tests.stream.local import NS, Local
from tests.stream.test_exactly_once import Aggregating, lived


@pytest.fixture
def strict(dynalite):
    client = boto3.client("dynamodb", endpoint_url=dynalite.endpoint_url, region_name=engine.REGION)
    definition = {**table_definition("table")}
    del definition["StreamSpecification"]
    client.create_table(**definition)
    client.get_waiter("table_exists").wait(TableName="table", WaiterConfig={"Delay": 0})
    seen = set()

    def send(call):
        """Accepted, or refused by its condition. The same expressions are sent once."""
        shape = str([v for k, v in sorted(call.params.items()) if k.endswith("Expression")])
        if call.operation.startswith("Transact") or shape in seen:
            return
        seen.add(shape)
        params = {k: v for k, v in call.params.items() if not k.endswith("ConditionCheckFailure")}
        with suppress(client.exceptions.ConditionalCheckFailedException):
            getattr(client, method_name(call.operation))(**params)

    yield send
    client.delete_table(TableName="table")
    client.get_waiter("table_not_exists").wait(TableName="table", WaiterConfig={"Delay": 1})
    client.close()


def test_counting_in_any_delivery(strict):
    for seed in range(5):
        life = Life(random.Random(seed))
        function = Aggregating(life, lost=0.3, poisoned=0.1)
        wire = function.wire

        def both(call, wire=wire):
            strict(call)
            return wire(call)

        source = EventSourceMapping(
            life.stream, function, Mapping(), life.rng, both, chaos=Chaos(0.1, 0.5, 0.3, 0.1)
        )
        lived(life, source, 150)
        source.drain()


def test_care_changed_defaults_and_reads(strict):
    local = Local()
    local.run.before = strict
    client = local.client()
    send = client.limiter._driver._send

    def both(call):
        strict(call)
        return send(call)

    client.limiter._driver._send = both
    client.set_limits([Limit.per_minute("rpm", 600)])
    with client.acquire("alice", "gpt-4", {"rpm": 1}):
        pass
    ref, core = BucketRef(NS, "alice", "gpt-4"), client.limiter._core
    (bucket,) = local.run(shards.read_all(core, ref))
    local.run(shards.split(core, ref, bucket))
    client.set_limits([Limit.per_minute("rpm", 60)])
    client.set_limits([Limit.per_minute("rpm", 6)], resource="gpt-4")
    assert local.deliver() == {}
    for _ in range(4):
        local.time.advance(300)
        assert local.aggregator.sweep(lambda: True).failed == {}
    for whose in ({"entity_id": "alice"}, {"resource": "gpt-4"}):
        page = client.get_usage_snapshots(**whose, limit=1)
        assert page.snapshots
        client.get_audit_events(**whose)
    client.get_usage_snapshots(entity_id="alice", resource="gpt-4")
    client.get_resource_capacity("gpt-4")
