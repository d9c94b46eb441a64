"""One bucket whose rate grows, in virtual time: how its shards carry it.

Many clients run the real core over the simulator's engine, each of whose keys takes what a
partition of DynamoDB takes. Acquires arrive at random (Poisson) whether earlier ones were answered
or not. The bucket begins unsharded: the first seconds, in which it splits, are counted apart.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from typing import Any

from benchmarks import bound
from benchmarks.meter import Meter
from benchmarks.partitions import Partitioned
from headgate import admin
from headgate.effects import Pause
from headgate.errors import RateLimitExceeded
from headgate.lease import Request, Wanted, admit
from headgate.limit import Limit
from headgate.schema import Bucket, Decoder, table_definition
from tests.simulation.watch import held
from tests.simulation.world import Faults, World

RATES = (10, 100, 1_000, 10_000)
LOADS = (95, 150)
CLIENTS = 50
LATENCY = 10  # milliseconds, at most, each way
RESOURCE = "api"
LIMIT = "rps"
EACH = 20  # acquires a second of one task of a client


@dataclass(slots=True)
class Phase:
    """What happened in one part of the run."""

    acquires: int = 0
    admitted: int = 0
    rejected: int = 0
    remembered: int = 0  # of the rejected: no request was sent
    contended: int = 0  # of the rejected: the key was too hot, whatever it held
    false: int = 0  # of the rejected: all shards together held enough all the while
    held: float = 0.0  # what all shards held, summed over the rejections
    requests: int = 0
    write_units: float = 0.0
    read_units: float = 0.0
    throttled: int = 0


@dataclass(slots=True)
class Run:
    """One bucket under one load."""

    rate: int
    load: int
    ramp: Phase = field(default_factory=Phase)
    steady: Phase = field(default_factory=Phase)
    draws: list[bound.Draw] = field(default_factory=list)
    longest: float = 0.0  # seconds that a request took to its effect
    shards: int = 1


class Table:
    """What the simulator's table shows to an observer who sees all of it at once."""

    def __init__(self, world: World, run: Run) -> None:
        self._world, self._run = world, run
        self._decoder = Decoder()
        self._decoded: dict[Any, tuple[Any, Bucket]] = {}
        world.watchers.append(self)

    def changed(self, now: int, place: Any, old: Any, new: Any, _: Any) -> None:
        """A draw is what `tc` grew by, at the moment that it took effect."""
        if place[1] == "#STATE" and new:
            drawn = _counted(new) - (_counted(old) if old else 0)
            if drawn > 0:
                self._run.draws.append((now / 1000, drawn / 1000))

    def confirmed(self, *_: Any) -> None:
        """A repetition: there are none here."""

    credit_lost = confirmed

    def holds(self) -> int:
        """Millitokens of all shards together."""
        buckets = []
        for place, item in self._world.engine.items.items():
            if place[1] == "#STATE":
                seen = self._decoded.get(place)
                if seen is None or seen[0] is not item:
                    seen = self._decoded[place] = item, self._decoder.bucket(item)
                buckets.append(seen[1])
        return held(buckets, self._world.now).get(LIMIT, 0)

    def shards(self) -> int:
        """How many the bucket has come to."""
        return sum(sk == "#STATE" for _, sk in self._world.engine.items)


def _counted(item: Any) -> int:
    return int(item[f"b_{LIMIT}_tc"]["N"])


class Crowd:
    """The clients of one run."""

    def __init__(self, rate: int, load: int, ramp: float, seconds: float, seed: int) -> None:
        self.world = World(seed, Faults(latency=LATENCY))
        self.engine = Partitioned(
            self.world.engine, Meter(table_definition("table")), lambda: self.world.now
        )
        self.world.engine = self.engine
        self.run = Run(rate, load)
        self.table = Table(self.world, self.run)
        self.turn = self.end = 0
        self.ramp, self.seconds = ramp, seconds
        self.seed = seed

    def go(self) -> Run:
        """From a bucket that is not there to the end."""
        rate = self.run.rate
        limits = [Limit.custom(LIMIT, capacity=rate, refill_amount=rate, refill_period=1)]
        first = self.world.client("set-up", principal="benchmarks")
        self.world.start(first, admin.set_limits(first.core, limits, resource=RESOURCE))
        self.world.run()
        self.turn = self.world.now + int(self.ramp * 1000)
        self.end = self.turn + int(self.seconds * 1000)
        offered = rate * self.run.load / 100
        tasks = max(1, round(offered / EACH / CLIENTS))
        for number in range(CLIENTS):
            # Configuration is read beside a write once a minute; here it would only add noise.
            client = self.world.client(f"client {number}", config_ttl=10**6)
            for task in range(tasks):
                rng = random.Random(f"{self.seed} {number} {task}")
                self.world.start(client, self._life(client, rng, offered / CLIENTS / tasks))
        self._mark(self.turn, self.run.ramp)
        self._mark(self.end, self.run.steady)
        self.world.run(most=100_000_000)
        self.run.shards = self.table.shards()
        self.run.longest = self.world.oldest / 1000
        return self.run

    def _mark(self, when: int, phase: Phase) -> None:
        """At that time, what the engine counted is the phase's, less what was another's."""
        watching = self.world.client("observer")

        def look() -> Iterator[Any]:
            yield Pause((when - self.world.now) / 1000)
            bill, ramp = self.engine.bill, self.run.ramp
            before = ramp if phase is not ramp else Phase()
            phase.requests = sum(client.calls for client in self.world.clients) - before.requests
            phase.write_units = bill.writes - before.write_units
            phase.read_units = bill.reads - before.read_units
            phase.throttled = self.engine.throttled - before.throttled

        self.world.start(watching, look())

    def _life(self, client: Any, rng: random.Random, pace: float) -> Iterator[Any]:
        due = float(self.world.now)
        while True:
            due += rng.expovariate(pace) * 1000
            if due >= self.end:
                return
            if due > self.world.now:
                yield Pause((due - self.world.now) / 1000)
            yield from self._acquire(client)

    def _acquire(self, client: Any) -> Iterator[Any]:
        since = self.world.now
        phase = self.run.ramp if since < self.turn else self.run.steady
        phase.acquires += 1
        try:
            yield from admit(client.core, Wanted((Request("e", RESOURCE, {LIMIT: 1}),)))
        except RateLimitExceeded as error:
            phase.rejected += 1
            phase.remembered += error.remembered
            phase.contended += error.contended
            holds = self.table.holds()
            phase.held += max(0, holds) / 1000
            # Only the refill adds: with so much left, there was enough at every moment of it.
            phase.false += holds - self.run.rate * (self.world.now - since) >= 1000
        else:
            phase.admitted += 1


def run(rate: int, load: int, ramp: float, seconds: float) -> dict[str, Any]:
    """One row of the table."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)  # thousands of splits, each worth a line elsewhere
    try:
        done = Crowd(rate, load, ramp, seconds, seed=1).go()
    finally:
        logging.disable(before)
    judged = bound.verdict(done.draws, rate, rate, done.longest)
    assert judged is not None, "somebody was admitted"  # noqa: S101
    return {
        "rate": rate,
        "load": load,
        "shards": done.shards,
        "admitted": judged.admitted,
        "bound": judged.bound,
        "excess": judged.excess,
        "allowance": judged.allowance,
        "ramp": asdict(done.ramp),
        "steady": asdict(done.steady),
    }


def table(*, quick: bool) -> list[dict[str, Any]]:
    """All rates and loads. Time is virtual, so that two at once do not disturb each other."""
    plans = [
        (rate, load, *_spans(rate, quick=quick))
        for rate in reversed(RATES[:3] if quick else RATES)  # the longest first
        for load in reversed(LOADS)
    ]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        rows = list(pool.map(run, *zip(*plans, strict=True)))
    return rows[::-1]


def _spans(rate: int, *, quick: bool) -> tuple[float, float]:
    """Seconds to get going, in which each client has come some times, and seconds that count."""
    most = 10 if quick else 60
    ramp = min(most, max(2.0 if quick else 5.0, 300 / rate))
    return ramp, min(most, max(1.0 if quick else 2.0, 2_000 / rate))
