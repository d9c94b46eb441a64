"""What clients do all day, drawn from a seed."""

from __future__ import annotations

import random

from headgate import admin, entities, operate, shards
from headgate.bucket import MAX_SHARDS
from headgate.core import Core
from headgate.effects import Pause
from headgate.errors import HeadgateError, RateLimitExceeded
from headgate.lease import Request, Wanted, admit
from headgate.limit import Limit
from headgate.schema import BucketRef, EntityId, NamespaceId, Resource
from tests.simulation.tickets import Tickets
from tests.simulation.watch import Broken, Watcher
from tests.simulation.world import Client, Faults, World

NS = NamespaceId("namespace-x")
RESOURCE = "api"
NAMES = ("a", "b", "c")

KINDS = (
    "plain",
    "faulty",
    "skewed",
    "wild",
    "changing",
    "sharded",
    "cascade",
    "operated",
    "tickets",
    "everything",
)


def faults_of(kind: str, rng: random.Random) -> Faults:
    """How this kind of day treats its clients."""
    faults = Faults(latency=rng.choice([3, 20, 150]))
    if kind in ("faulty", "operated", "tickets", "everything"):
        faults.lost, faults.repeated = rng.choice([0.02, 0.1]), rng.choice([0.0, 0.05])
        faults.crash = rng.choice([0.0, 0.01])
        faults.throttled, faults.conflicted = rng.choice([0.0, 0.03]), rng.choice([0.0, 0.03])
    if kind in ("skewed", "everything"):
        faults.skew = rng.choice([20, 200, 900])
    if kind == "wild":
        faults.wild = True
    return faults


def limits(rng: random.Random) -> list[Limit]:
    """A bucket's limits: fast and slow ones side by side, some that never refill."""
    made = []
    for name in NAMES[: rng.randint(1, 3)]:
        capacity = rng.choice([1, 3, 10, 40, 200])
        amount = rng.choice([0, 1, 1, 7, 50, capacity])
        period = rng.choice([1, 1, 10, 60, 3600])
        made.append(
            Limit.custom(name, capacity=capacity, refill_amount=amount, refill_period=period)
        )
    return made


class Day:
    """One seed: a world, its clients and what they are up to."""

    def __init__(self, seed: int, kind: str | None = None) -> None:
        rng = random.Random(f"day {seed}")
        drawn = rng.choice(KINDS)
        self.kind = kind or drawn
        self.world = World(seed, faults_of(self.kind, rng))
        self.rng = self.world.rng
        self.watch = Watcher(self.world)
        self.ids = [f"e{i}" for i in range(self.rng.randint(1, 3))]
        self.current = limits(self.rng)
        self.stats = {"admitted": 0, "rejected": 0, "contended": 0, "unavailable": 0, "calls": 0}
        self.stats |= {"settled": 0, "replayed": 0, "spent": 0}
        self.tickets = Tickets(self)
        self.count = 1 if self.kind == "plain" and seed % 2 else self.rng.randint(2, 6)
        self.operations = self.rng.randint(8, 25)
        # How a day's clients think: in milliseconds, or with long silences.
        self.pace = self.rng.choice([30, 400, 4_000, 90_000, 4_000_000])

    def run(self) -> dict[str, int]:
        setup = self.world.client("setup")
        faults, self.world.faults = self.world.faults, Faults()
        self.world.start(setup, self._set_up(setup.core))
        self.world.run()
        self.world.faults = faults
        for number in range(self.count):
            client = self.world.client(f"client {number}")
            client.holds = []
            self.world.start(client, self._life(client), self.rng.randint(0, self.pace))
        self.world.run()
        if self.tickets.attempts:
            self.world.faults = Faults()
            closer = self.world.client("closer")
            self.world.start(closer, self.tickets.close(closer))
            self.world.run()
        self.watch_at_rest()
        return self.stats

    def watch_at_rest(self) -> None:
        for client in self.world.clients:
            if not client.crashed:
                self.watch.check_ledger(client)
        self.tickets.check()

    # ------------------------------------------------------------ scripts

    def _set_up(self, core: Core):
        yield from admin.set_limits(core, self.current, resource=RESOURCE)
        if self.kind in ("cascade", "everything") or (
            self.kind == "tickets" and self.rng.random() < 0.5
        ):
            yield from entities.create_entity(core, "top")
            yield from entities.create_entity(
                core, "middle", parent_id="top", cascade=self.rng.random() < 0.7
            )
            for name in self.ids:
                yield from entities.create_entity(
                    core, name, parent_id=self.rng.choice(["middle", "top"]), cascade=True
                )

    def _life(self, client: Client):
        for _ in range(self.operations):
            yield Pause(self.rng.expovariate(1 / self.pace) / 1000)
            self.world.engine.expire(self.world.now)
            client.since = self.world.now
            calls = client.calls
            action = self._choose()
            client.operation = action.__name__
            try:
                yield from action(client)
            except RateLimitExceeded as error:
                self._rejected(client, error)
            except HeadgateError:
                self.stats["unavailable"] += 1
            client.operation = "idle"
            self.stats["calls"] += client.calls - calls
            self._settle(client)

    def _choose(self):
        weighted = [(self.acquire, 12), (self.look, 1)]
        if self.kind in ("changing", "everything"):
            weighted += [(self.change_limits, 2)]
        if self.kind in ("sharded", "everything"):
            weighted += [(self.split, 3), (self.merge, 1)]
        if self.kind in ("cascade", "everything"):
            weighted += [(self.acquire_several, 3), (self.move, 1)]
        if self.kind == "operated":
            weighted += [(self.reset, 1), (self.top_up, 1), (self.split, 1), (self.merge, 1)]
        if self.kind == "tickets":
            weighted += [(self.acquire_several, 3), (self.settle, 12), (self.split, 1)]
            weighted += [(self.merge, 1)]
        if self.kind == "everything":
            weighted += [(self.settle, 4)]
        actions, weights = zip(*weighted, strict=True)
        return self.rng.choices(actions, weights)[0]

    def _consume(self) -> dict[str, int]:
        chosen = [limit for limit in self.current if self.rng.random() < 0.8] or self.current[:1]
        return {
            limit.name: self.rng.choice([1, 1, 2, max(1, limit.capacity // 2), limit.capacity])
            for limit in chosen
        }

    def acquire(self, client: Client):
        amounts = self._consume()
        # Now and then a number: so much of every limit, whatever these are by then.
        every = self.rng.choice(list(amounts.values()))
        consume = every if self.rng.random() < 0.1 else amounts
        request = Request(self.rng.choice(self.ids), RESOURCE, consume)
        yield from self._hold(client, (request,))

    def acquire_several(self, client: Client):
        requests = tuple(
            Request(name, RESOURCE, self._consume())
            for name in self.rng.sample(self.ids, self.rng.randint(1, len(self.ids)))
        )
        yield from self._hold(client, requests)

    def _hold(self, client: Client, requests: tuple[Request, ...]):
        wait = self.rng.choice([None, None, None, 0.5, 30])
        client.wanted = requests
        before = client.calls
        try:
            hold = yield from admit(client.core, Wanted(requests, wait))
        finally:
            if wait is None and self.kind in ("plain", "skewed", "wild"):
                self.watch.check_cost(client, client.calls - before)
        self.stats["admitted"] += 1
        if self.kind != "everything":  # where limits change, two draws may go by different ones
            self.watch.check_parents(client, hold)
        client.holds.append(hold)
        self._settle(client)
        if self.rng.random() < 0.5:
            yield Pause(self.rng.expovariate(1 / self.pace) / 1000)
        held = hold.consumed()
        endings = ["keep", "keep", "rollback", "release", "adjust", "consume"]
        if self.kind in ("tickets", "everything"):
            endings += ["ticket"] * (6 if self.kind == "tickets" else 2)
        ending = self.rng.choice(endings)
        client.operation = ending
        client.since = self.world.now
        if ending == "ticket":
            self.tickets.issue(hold)
        elif ending == "rollback":
            yield from hold.rollback()
        elif ending == "release" and held:
            part = {name: self.rng.randint(1, amount) for name, amount in held.items() if amount}
            yield from hold.release(**part)
        elif ending == "adjust" and held:
            by = {name: self.rng.randint(-amount, 3 * amount + 5) for name, amount in held.items()}
            yield from hold.adjust(**by)
        elif ending == "consume":
            name = self.rng.choice(sorted(held) or [self.current[0].name])
            client.wanted = requests
            yield from hold.consume(**{name: self.rng.randint(1, 5)})

    def look(self, client: Client):
        from headgate import checks

        yield from checks.check(
            client.core, self.rng.choice(self.ids), RESOURCE, {self.current[0].name: 1}
        )

    def change_limits(self, client: Client):
        fresh = limits(self.rng)
        keep = {limit.name for limit in fresh}
        self.current = [limit for limit in fresh if limit.name in keep]
        who = self.rng.choice([None, None, *self.ids])
        if who is None or self.rng.random() < 0.7:
            yield from admin.set_limits(
                client.core,
                fresh,
                entity_id=who,
                resource=RESOURCE if who is None or self.rng.random() < 0.5 else None,
            )
        else:
            yield from admin.delete_limits(client.core, entity_id=who, resource=RESOURCE)

    def split(self, client: Client):
        ref = BucketRef(NS, EntityId(self.rng.choice(self.ids)), Resource(RESOURCE))
        for _ in range(self.rng.randint(1, 3)):
            count = client.core.views.count(ref)
            view = client.core.views.get(ref, self.rng.randrange(count))
            if view is not None and view.bucket.shard.n < min(MAX_SHARDS, 16):
                yield from shards.split(client.core, ref, view.bucket)

    def merge(self, client: Client):
        ref = BucketRef(NS, EntityId(self.rng.choice(self.ids)), Resource(RESOURCE))
        yield from shards.merge(client.core, ref)

    def settle(self, client: Client):
        yield from self.tickets.settle(client)

    def reset(self, client: Client):
        yield from operate.reset(client.core, self.rng.choice(self.ids), RESOURCE)

    def top_up(self, client: Client):
        limit = self.rng.choice(self.current)
        amount = self.rng.choice([1, limit.capacity, 3 * limit.capacity])
        key = self.rng.choice([None, "once"])
        yield from operate.top_up(
            client.core,
            self.rng.choice(self.ids),
            RESOURCE,
            {limit.name: amount},
            idempotency_key=key,
        )

    def move(self, client: Client):
        yield from entities.update_entity(
            client.core,
            self.rng.choice(self.ids),
            parent_id=self.rng.choice(["middle", "top"]),
            cascade=self.rng.random() < 0.8,
        )

    # ------------------------------------------------------------ checks

    def _rejected(self, client: Client, error: RateLimitExceeded) -> None:
        self.stats["contended" if error.contended else "rejected"] += 1
        self.watch.check_rejection(client, error, {}, client.since)

    def _settle(self, client: Client) -> None:
        known: dict[tuple[BucketRef, str], int] = {}
        for hold in client.holds:
            for grant in hold.grants:
                for name, amount in grant.amounts.items():
                    key = grant.ref, name
                    known[key] = known.get(key, 0) + amount
        client.known = known
        self.watch.check_ledger(client)


def run(seed: int, kind: str | None = None) -> dict[str, int]:
    """One day. A broken promise names the seed that replays it."""
    day = Day(seed, kind)
    try:
        return {**day.run(), "debits": day.watch.debits}
    except Broken as broken:
        raise Broken(f"seed {seed} ({day.kind}): {broken}") from None
