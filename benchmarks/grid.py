"""Many clients of one bucket, in virtual time: how many requests an acquire takes.

The clients run the real core over the simulator's engine. Their acquires arrive at random
(Poisson), each travels for some milliseconds either way. Requests are counted for the acquires
that sent any: a remembered rejection sends none and is left out, so that it cannot flatter.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from headgate import admin
from headgate.effects import Pause
from headgate.errors import RateLimitExceeded
from headgate.lease import Request, Wanted, admit
from headgate.limit import Limit
from tests.simulation.world import Faults, World

CLIENTS = (1, 8, 50)
LOADS = (30, 60, 95, 150)
RESOURCE = "api"
LATENCY = 10  # milliseconds, at most, each way
WARM_UP = 3  # acquires of each client that are not counted: it learns limits and bucket


@dataclass(slots=True)
class Cell:
    """What one combination came to."""

    clients: int
    load: int
    acquires: int = 0
    admitted: int = 0
    requests: int = 0

    @property
    def per_acquire(self) -> float:
        """Requests of an acquire that sent any."""
        return self.requests / max(1, self.acquires)


def limits() -> list[Limit]:
    """A limit on requests and one on what they weigh: as users of LLMs have them."""
    return [
        Limit.per_minute("rpm", 1_200, burst=200),
        Limit.per_minute("tpm", 1_200_000, burst=200_000),
    ]


def cell(clients: int, load: int, acquires: int, seed: int = 1) -> Cell:
    """One combination: `load` is in per cent of what the limit lets through."""
    world = World(seed, Faults(latency=LATENCY))
    found = Cell(clients, load)
    stored = limits()
    per_second = stored[0].refill_amount / 60 * load / 100
    pace = clients / per_second  # seconds between two acquires of one client
    turns = max(WARM_UP + 2, acquires // clients)

    def set_up(client: Any) -> Iterator[Any]:
        yield from admin.set_limits(client.core, stored, resource=RESOURCE)

    def life(client: Any, rng: random.Random) -> Iterator[Any]:
        for turn in range(WARM_UP + turns):
            yield Pause(rng.expovariate(1 / pace))
            consume = {"rpm": 1, "tpm": rng.randint(200, 1_800)}
            before, sent = client.calls, True
            try:
                yield from admit(client.core, Wanted((Request("e", RESOURCE, consume),)))
                found.admitted += 1
            except RateLimitExceeded as error:
                sent = not error.remembered
            if turn >= WARM_UP and sent:
                found.acquires += 1
                found.requests += client.calls - before

    first = world.client("set-up", principal="benchmarks")
    world.start(first, set_up(first))
    world.run()
    for number in range(clients):
        # Configuration is read beside a write once a minute; here it would only add noise.
        client = world.client(f"client {number}", config_ttl=10**6)
        world.start(client, life(client, random.Random(f"{seed} {number}")))
    world.run(most=10_000_000)
    return found


def grid(acquires: int, seeds: int = 1) -> list[Cell]:
    """All combinations."""
    cells = []
    for clients, load in product(CLIENTS, LOADS):
        total = Cell(clients, load)
        for seed in range(1, seeds + 1):
            one = cell(clients, load, acquires, seed)
            total.acquires += one.acquires
            total.admitted += one.admitted
            total.requests += one.requests
        cells.append(total)
    return cells


def mean(cells: list[Cell]) -> float:
    """Every combination counts the same."""
    return sum(one.per_acquire for one in cells) / len(cells)
