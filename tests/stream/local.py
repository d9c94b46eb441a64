"""A table in memory with its stream, real clients on it, and the aggregator behind it."""

from __future__ import annotations

import random
from collections import Counter

from aggregator.records import parse
from aggregator.service import Aggregator, Settings
from headgate import SyncRateLimiter
from headgate.breaker import Breaker
from headgate.clock import Clock
from headgate.core import Core
from headgate.core import Settings as CoreSettings
from headgate.effects import Pause
from headgate.schema import CONFIG, STATE, NamespaceId, pk_system
from headgate.usage import WINDOWS
from tests.behaviour.backends import SimulatedDriver
from tests.limiters import AgreedClock, Sync, Time
from tests.simulation.engine import Engine
from tests.stream.esm import Stream

NS = NamespaceId("streamtests")


class Run:
    """Runs flows on the engine, and counts what they send."""

    def __init__(self, engine):
        self._engine = engine
        self.sent = Counter()
        self.before = lambda call: None  # called before each request, to meddle

    def __call__(self, flow):
        outcomes = None
        try:
            while True:
                effect = next(flow) if outcomes is None else flow.send(outcomes)
                outcomes = [] if isinstance(effect, Pause) else [self._send(c) for c in effect]
        except StopIteration as stop:
            return stop.value

    def each(self, flows):
        return [self(flow) for flow in flows]

    def _send(self, call):
        self.before(call)
        self.sent[call.operation] += 1
        return self._engine.send(call)


class Local:
    """Everything in one process, in the test's time."""

    def __init__(self, *, windows=WINDOWS, start=None):
        self.time = Time(start) if start else Time()
        self.stream = Stream(random.Random(1), self.time)
        self.engine = Engine(on_change=self._changed)
        self.delivered = 0
        self.settings = Settings(table="table", windows=windows)
        self.run = Run(self.engine)
        self.aggregator = self.new_aggregator()

    def new_aggregator(self):
        """As a new process of the function is: it remembers nothing."""
        core = Core(
            CoreSettings(table="table"),
            clock=Clock(self.time),
            breaker=Breaker(failures=10**9),
            rng=random.Random(2),
        )
        return Aggregator(self.settings, core, self.run)

    def client(self, **options):
        clock = AgreedClock(self.time)
        limiter = SyncRateLimiter("table", namespace_id=NS, clock=clock, **options)
        limiter._driver = SimulatedDriver(self.engine, self.time, clock)
        return Sync(limiter)

    def records(self):
        """What the mapping would deliver next."""
        records = self.stream.records()[self.delivered :]
        self.delivered += len(records)
        return records

    def deliver(self, *, batch_size=500, time_left=lambda: True, records=None):
        """All new records, in batches. The failures, by sequence number."""
        failed = {}
        new = self.records() if records is None else records
        for start in range(0, len(new), batch_size):
            batch = [parse(record) for record in new[start : start + batch_size]]
            failed |= self.aggregator.process(batch, time_left).failed
        return failed

    def snapshots(self):
        """What the snapshots hold: whole tokens by entity, resource, window and start."""
        return {
            (i["entity_id"]["S"], i["resource"]["S"], i["window"]["S"], i["window_start"]["S"]): {
                name[2:]: int(value["N"]) / 1000
                for name, value in sorted(i.items())
                if name.startswith("u_")
            }
            for (_, sk), i in self.engine.items.items()
            if sk.startswith("#USAGE#")
        }

    def buckets(self):
        return {pk: item for (pk, sk), item in self.engine.items.items() if sk == STATE}

    def _changed(self, place, old, new):
        # As the construct's filter has it.
        if place[1] in (STATE, CONFIG):
            self.stream.wrote(place, old, new)


def registry(local, prefix):
    """What the aggregator keeps for itself."""
    pk = pk_system("_")
    return [i for (p, s), i in local.engine.items.items() if p == pk and s.startswith(prefix)]
