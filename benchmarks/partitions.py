"""DynamoDB's limit on one partition, around the simulator's engine.

The engine itself is atomic and takes whatever comes. Here each partition key has a partition to
itself, the best that adaptive capacity can do for a hot key: in any second it takes 1,000 write
units and 3,000 read units, as the meter counts them, and refuses the rest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from benchmarks.meter import Bill, Change, Meter, Record
from benchmarks.touched import Place, place, read, written
from headgate.effects import Answer, Call, Outcome, Throttled
from tests.simulation.engine import Engine

WRITES_A_SECOND, READS_A_SECOND = 1_000, 3_000
SECOND = 1_000  # milliseconds


class Second:
    """The units of the last second."""

    def __init__(self, most: float) -> None:
        self.most = most
        self.used = 0.0
        self._spent: deque[tuple[int, float]] = deque()

    def room(self, now: int) -> bool:
        """Whether there is any left. The request that exceeds it is still taken."""
        while self._spent and self._spent[0][0] <= now - SECOND:
            self.used -= self._spent.popleft()[1]
        return self.used < self.most

    def spend(self, units: float, now: int) -> None:
        """Takes note."""
        self.used += units
        self._spent.append((now, units))


class Partitioned:
    """An engine whose keys have a limit. Bills what it serves; a refusal is free."""

    def __init__(self, engine: Engine, meter: Meter, now: Callable[[], int]) -> None:
        self.engine = engine
        self.bill = Bill()
        self.throttled = 0
        self._meter = meter
        self._now = now
        self._writes: dict[str, Second] = {}
        self._reads: dict[str, Second] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    def send(self, call: Call) -> Outcome:
        """The engine's outcome, or a refusal for a key that is too hot."""
        now = self._now()
        writes = [place(key) for _, key in written(call.operation, call.params)]
        reads = [place(key) for _, key in read(call.operation, call.params)]
        for pk, _ in writes:
            if not _of(self._writes, pk, WRITES_A_SECOND).room(now):
                return self._refuse("TableWriteKeyRangeThroughputExceeded")
        for pk, _ in reads:
            if not _of(self._reads, pk, READS_A_SECOND).room(now):
                return self._refuse("TableReadKeyRangeThroughputExceeded")
        before = [self.engine.items.get(one) for one in writes]
        outcome: Outcome = self.engine.send(call)
        if writes:
            after = [self.engine.items.get(one) for one in writes]
            self._wrote(call, outcome, writes, list(map(Change, before, after)))
        if reads:
            self._read(call, reads)
        return outcome

    def _refuse(self, reason: str) -> Throttled:
        self.throttled += 1
        return Throttled(reason, of_key=True)

    def _wrote(
        self, call: Call, outcome: Outcome, places: list[Place], changes: list[Change]
    ) -> None:
        self.bill.requests += 1
        done = isinstance(outcome, Answer)
        for (pk, _), change in zip(places, changes, strict=True):
            bill = self._meter.record(Record(call.operation, call.params, done, [change]))
            # An index has partitions of its own.
            self._writes[pk].spend(bill.writes - sum(bill.indexes.values()), self._now())
            self.bill.writes += bill.writes

    def _read(self, call: Call, places: list[Place]) -> None:
        items = [self.engine.items[one] for one in places if one in self.engine.items]
        bill = self._meter.record(Record(call.operation, call.params, read=items))
        self.bill += bill
        for pk, _ in places:
            self._reads[pk].spend(bill.reads / len(places), self._now())


def _of(seconds: dict[str, Second], pk: str, most: float) -> Second:
    found = seconds.get(pk)
    if found is None:
        found = seconds[pk] = Second(most)
    return found
