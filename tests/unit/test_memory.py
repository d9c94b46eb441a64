"""A process that has seen 100,000 entities stays small: what it remembers of one, and of how
many, is bounded."""

from __future__ import annotations

import tracemalloc

from headgate.bucket import BASELINE
from headgate.core import Core, Settings
from headgate.effects import Answer
from headgate.lease import Request, Wanted, admit
from headgate.limit import Limit
from tests.simulation.engine import Engine

MEGABYTE = 1_000_000
LIMITS = [Limit.per_minute("rpm", 100), Limit.per_minute("tpm", 10_000)]


def run(flow, engine):
    """Drives a flow over an engine that forgets what it stored."""
    outcomes = None
    while True:
        try:
            calls = next(flow) if outcomes is None else flow.send(outcomes)
        except StopIteration as stop:
            return stop.value
        outcomes = [engine.send(call) for call in calls]


class Forgetful(Engine):
    """Keeps nothing, so that only the client's memory is measured."""

    def send(self, call):
        outcome = super().send(call)
        self.items.clear()
        return outcome if call.operation != "BatchGetItem" else Answer(dict(outcome.body))


def test_memory_for_100_000_entities_stays_under_60_megabytes():
    most = Settings(table="table").max_cached
    part = 25
    settings = Settings(
        table="table", namespace_id="namespace-x", limits=LIMITS, max_cached=most // part
    )
    core = Core(settings)
    core.clock._since = BASELINE
    engine = Forgetful()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for number in range(100_000 // part):
        request = Request(f"entity-{number:029d}", "api", {"rpm": 1, "tpm": 10})
        run(admit(core, Wanted((request,))), engine)
    used = (tracemalloc.get_traced_memory()[0] - before) * part
    tracemalloc.stop()
    assert len(core.views) == most // part, "the oldest gave way"
    assert used < 60 * MEGABYTE, f"{used / MEGABYTE:.1f} MB"
