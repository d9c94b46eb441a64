"""P6: a client that has the bucket to itself pays one write for an acquire, whatever the pace."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest

from headgate import admin
from headgate.effects import Pause
from headgate.errors import RateLimitExceeded
from headgate.lease import Request, Wanted, admit
from headgate.schema import BucketRef
from tests.simulation.scenario import NS, RESOURCE, limits
from tests.simulation.watch import held
from tests.simulation.world import World


@pytest.mark.parametrize("seed", range(60))
def test_a_warm_acquire_is_one_request_and_a_known_rejection_none(seed):
    rng = random.Random(seed)
    world = World(seed)
    # The configuration outlives the test: reading it anew is a matter of another test.
    client = world.client("only", config_ttl=10**8, rejection_memory=10**6)
    stored = limits(rng)
    pace = rng.choice([1, 50, 1_000, 60_000])
    costs = []

    def life():
        yield from admin.set_limits(client.core, stored, resource=RESOURCE)
        for turn in range(60):
            yield Pause(rng.expovariate(1 / pace) / 1000)
            consume = {limit.name: rng.randint(1, limit.capacity) for limit in stored}
            before = client.calls
            view = client.core.views.get(BucketRef(NS, "e", RESOURCE))
            enough = view is not None and all(
                consume[name] * 1000 <= holds
                for name, holds in held([view.bucket], client.core.now()).items()
            )
            try:
                yield from admit(client.core, Wanted((Request("e", RESOURCE, consume),)))
                # What was short when it was sent and no more when the answer came takes two.
                if turn and enough:
                    costs.append(("admitted", client.calls - before))
            except RateLimitExceeded as error:
                costs.append(("remembered" if error.remembered else "new", client.calls - before))

    world.start(client, life())
    world.run()
    assert set(costs) <= {("admitted", 1), ("new", 1), ("remembered", 0)}, costs


def test_the_configuration_is_read_beside_a_write_once_a_minute():
    world = World(1)
    client = world.client("only")
    batches = []
    send = world._send
    world._send = lambda c, s, calls: (
        batches.append([x.operation for x in calls]),
        send(c, s, calls),
    )

    def life():
        yield from admin.set_limits(client.core, limits(random.Random(3)), resource=RESOURCE)
        name = limits(random.Random(3))[0].name
        for _ in range(4):
            with suppress(RateLimitExceeded):
                yield from admit(client.core, Wanted((Request("e", RESOURCE, {name: 1}),)))
            batches.append("then")
            yield Pause(61)

    world.start(client, life())
    world.run()
    later = batches[batches.index("then") + 1 :]
    assert later[0] == ["UpdateItem", "BatchGetItem"]
    assert [batch for batch in later if batch != "then"] == [["UpdateItem", "BatchGetItem"]] * 3
