"""The scenarios of one contender: prepared, then run some times between two marks.

Runs in the contender's environment: standard library only.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from contenders import Shape, names
from marks import mark

BIG: Shape = (10**9, 10**9, 60)
SMALL: Shape = (10, 10, 1)
OTHER = "embeddings"
SLOW = {"refill_due", "idle"}  # a time has to pass before each
MOST = 100  # draws from a small bucket, before it is clear that nothing stops them


class Scenario:
    """Takes the time of each acquire, and notes when how much of a small bucket was drawn."""

    def __init__(self, one: Any, name: str, limits: int, times: int) -> None:
        self.one, self.name, self.times = one, name, times
        self.each = dict.fromkeys(names(limits), 1)
        self.limits = limits
        self.seconds: list[float] = []
        self.draws: dict[str, list[tuple[float, int]]] = {}
        self.longest = 0.0

    def run(self) -> dict[str, Any]:
        kind = self.name
        small = kind in SLOW or kind == "rejection"
        self.one.configure([SMALL if small else BIG] * self.limits)
        if kind == "two_resources":
            self.one.configure([BIG] * self.limits, OTHER)
        getattr(self, f"_{kind}")()
        mark("after")
        found: dict[str, Any] = {"seconds": self.seconds}
        if small:
            found |= {"draws": self.draws, "shape": SMALL, "longest": self.longest}
        return found

    def _take(self, who: str, times: int = 1, amount: int = 1, **options: Any) -> None:
        consume = dict.fromkeys(self.each, amount)
        for _ in range(times):
            began = time.perf_counter()
            with self.one.acquire(who, consume, **options):
                pass
            ended = time.perf_counter()
            self.seconds.append(ended - began)
            self.longest = max(self.longest, ended - began)
            self.draws.setdefault(who, []).append((ended, amount))

    def _measured(self, work: Callable[[], None]) -> None:
        self.seconds.clear()
        mark("measured")
        work()

    def _warm(self) -> None:
        self._take("alice", 5)
        self._measured(lambda: self._take("alice", self.times))

    def _refill_due(self) -> None:
        self._between_pauses(1.2, 8)

    def _idle(self) -> None:
        self._between_pauses(2.5, 10)
        mark("burst")
        # Nearly full, then idle: what is stored and what has accrued must not add up.
        measured = list(self.seconds)
        self._take("bob")
        time.sleep(2.5)
        self._drain("bob")
        self.seconds = measured

    def _drain(self, who: str) -> None:
        with suppress(self.one.exceeded):
            self._take(who, MOST)

    def _between_pauses(self, pause: float, amount: int) -> None:
        """All is drawn, some time passes, and what has accrued is asked for."""
        self._take("alice")
        seconds: list[float] = []
        for _ in range(self.times):
            mark("drained")
            self._drain("alice")
            time.sleep(pause)
            self._measured(lambda: self._take("alice", amount=amount))
            seconds += self.seconds
        self.seconds = seconds

    def _first(self) -> None:
        self._take("somebody", 2)
        mark("measured")
        self.seconds.clear()
        for number in range(self.times):
            self._take(f"new-{number}")

    def _cascade(self) -> None:
        self.one.entity("parent")
        self.one.entity("child", "parent")
        self._take("child", 5)
        self._measured(lambda: self._take("child", self.times))

    def _two_resources(self) -> None:
        self._take("alice", 5, also=OTHER)
        self._measured(lambda: self._take("alice", self.times, also=OTHER))

    def _rejection(self) -> None:
        self._drain("alice")
        # More than can accrue meanwhile: the first rejection is learnt, the others are counted.
        self._rejected()
        self._measured(lambda: [self._rejected() for _ in range(self.times)] and None)

    def _rejected(self) -> None:
        began = time.perf_counter()
        with suppress(self.one.exceeded):
            self._take("alice", amount=10)
            return
        self.seconds.append(time.perf_counter() - began)

    def _adjust(self) -> None:
        def once() -> None:
            for _ in range(self.times):
                began = time.perf_counter()
                with self.one.acquire("alice", self.each) as lease:
                    lease.adjust(limit0=5)
                self.seconds.append(time.perf_counter() - began)

        self._take("alice", 5)
        self._measured(once)
