"""Many clients of one bucket, each with a limiter and connections of its own.

Runs in the contender's environment: standard library only. Acquires arrive at random (Poisson),
each at its time or as soon as its client is free again.
"""

from __future__ import annotations

import os
import random
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from marks import mark

# Requests, and what they weigh: as users of LLMs have them. A burst is a second's worth.
RATE = 40
SHAPES = ((RATE, RATE, 1), (RATE * 1_000, RATE * 1_000, 1))
WARM_UP = 2  # acquires of each client that are not counted: it learns limits and bucket


@dataclass
class Tally:
    """What one client met with."""

    seconds: list[float] = field(default_factory=list)  # of those that sent anything
    draws: list[tuple[float, int]] = field(default_factory=list)
    acquires: int = 0
    sent: int = 0
    requests: int = 0
    rejected: int = 0
    failed: list[str] = field(default_factory=list)


class Client:
    """One limiter."""

    def __init__(self, one: Any, seed: str) -> None:
        self.one = one
        self.rng = random.Random(seed)

    def acquire(self, entity: str, tally: Tally) -> None:
        consume = {"limit0": 1, "limit1": self.rng.randint(200, 1_600)}
        before, began = self.one.requests, time.perf_counter()
        try:
            with self.one.acquire(entity, consume):
                pass
            tally.draws.append((time.perf_counter(), 1))
        except self.one.exceeded:
            tally.rejected += 1
        except Exception as error:  # noqa: BLE001 - counted: the table says how it failed
            tally.failed.append(f"{type(error).__name__}: {error}"[:200])
        tally.acquires += 1
        sent = self.one.requests - before
        if sent:
            tally.sent += 1
            tally.requests += sent
            tally.seconds.append(time.perf_counter() - began)

    def live(self, entity: str, pace: float, end: float, tally: Tally) -> None:
        due = time.perf_counter()
        while True:
            due += self.rng.expovariate(pace)
            if due >= end:
                return
            time.sleep(max(0.0, due - time.perf_counter()))
            self.acquire(entity, tally)


def cell(members: list[Client], load: int, seconds: float) -> dict[str, Any]:
    """All clients at so many per cent of the limit."""
    entity, first = f"tenant-{load}", Tally()
    mark("warm-up")
    for member in members:
        for _ in range(WARM_UP):
            member.acquire(entity, first)
    # Full again: a burst is a second's worth.
    time.sleep(1.2)
    mark(f"load-{load}")
    began = time.perf_counter()
    tallies = [Tally() for _ in members]
    pace = RATE * load / 100 / len(members)
    threads = [
        threading.Thread(target=one.live, args=(entity, pace, began + seconds, tally))
        for one, tally in zip(members, tallies, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    mark("after")
    return {
        "load": load,
        "seconds": [second for tally in tallies for second in tally.seconds],
        "began": began,
        "draws": [draw for tally in (first, *tallies) for draw in tally.draws],
        "longest": max((s for tally in (first, *tallies) for s in tally.seconds), default=0.0),
        **{
            name: sum(getattr(tally, name) for tally in tallies)
            for name in ("acquires", "sent", "requests", "rejected")
        },
        "failed": [text for tally in tallies for text in tally.failed],
    }


def crowd(one: Any, *, clients: int, loads: list[int], seconds: float) -> dict[str, Any]:
    """One cell after another, with the same clients."""
    one.create()
    one.configure(SHAPES)
    members = []
    for number in range(clients):
        made = type(one)(os.environ["BENCH_TABLE"])
        made.counted()
        members.append(Client(made, f"client {number}"))
    return {"rate": RATE, "cells": [cell(members, load, seconds) for load in loads]}
