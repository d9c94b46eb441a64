"""Many clients, one table, virtual time: a whole afternoon of concurrency from one seed.

Each client runs the real core. Its requests travel with random latency, get lost before or
after they took effect, are repeated; its clock is wrong; it crashes inside a lease. The
watcher sees every change at the moment it happens and holds it against the promises.
"""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field
from email.utils import formatdate

from headgate.breaker import Breaker
from headgate.clock import Clock
from headgate.core import Core, Settings
from headgate.effects import Answer, Conflicted, Pause, Throttled, Unreachable
from tests.simulation.engine import Engine

START = 1_767_225_600_000  # 2026-01-01, in milliseconds
TIMEOUT = 1_000


@dataclass
class Faults:
    """How badly this world treats its clients."""

    lost: float = 0.0  # before or after it took effect
    repeated: float = 0.0
    throttled: float = 0.0
    conflicted: float = 0.0
    crash: float = 0.0
    latency: int = 20  # milliseconds, at most
    skew: int = 0  # milliseconds, at most, either way
    wild: bool = False  # one clock is an hour off


@dataclass
class Client:
    """A process with its own clock and its own memory."""

    name: str
    core: Core
    skew: int
    operation: str = "idle"
    since: int = 0
    calls: int = 0
    crashed: bool = False
    known: dict = field(default_factory=dict)  # what it believes it holds: (ref, limit) -> amount
    unsure: dict = field(default_factory=dict)  # what it cannot know
    drawn: dict = field(default_factory=dict)  # what the table says it drew


class World:
    """Runs clients' scripts to their end."""

    def __init__(self, seed, faults=None):
        self.seed = seed
        self.rng = random.Random(seed)
        self.faults = faults or Faults()
        self.now = START
        self.events = []
        self.count = 0
        self.clients = []
        self.engine = Engine(on_change=self._changed)
        self.actor = None
        self.watchers = []
        self.clock_error = 0
        self.oldest = 0  # the longest that a request was under way when it took effect
        self.made = {}
        self.graveyard = []  # crashed scripts: a dead process runs no clean-up
        self.steps = 0

    def client(self, name, **settings):
        """A new process."""
        skew = self.rng.randint(-self.faults.skew, self.faults.skew)
        if self.faults.wild and not self.clients:
            skew += self.rng.choice([-1, 1]) * 3_600_000
        seed = self.rng.getrandbits(64)
        core = Core(
            Settings(table="table", namespace_id="namespace-x", **settings),
            clock=Clock(lambda: self.now + skew),
            breaker=Breaker(),
            rng=random.Random(seed),
        )
        made = Client(name, core, skew)
        self.clients.append(made)
        return made

    def start(self, client, script, delay=0):
        """Runs a script (a flow) as this client."""
        self._at(self.now + delay, lambda: self._step(client, script, None))

    def run(self, most=1_000_000):
        """Until nothing is left to do."""
        while self.events:
            self.now, _, action = heapq.heappop(self.events)
            action()
            self.steps += 1
            assert self.steps < most, "the world does not come to rest"

    def _at(self, when, action):
        self.count += 1
        heapq.heappush(self.events, (when, self.count, action))

    def _step(self, client, script, outcomes):
        if client.crashed:
            self.graveyard.append(script)
            return
        try:
            effect = next(script) if outcomes is None else script.send(outcomes)
        except StopIteration:
            return
        if isinstance(effect, Pause):
            wait = max(1, int(effect.seconds * 1000))
            self._at(self.now + wait, lambda: self._step(client, script, []))
            return
        if client.core.clock.checked:
            self.clock_error = max(self.clock_error, abs(client.core.now() - self.now))
        if client.operation != "idle" and self.rng.random() < self.faults.crash:
            client.crashed = True
        self._send(client, script, effect)

    def _send(self, client, script, calls):
        answers = [None] * len(calls)
        for call in calls:
            self.made.setdefault(id(call), (self.now, call))
        client.calls += len(calls)
        sent = client.core.clock.raw()
        operation = client.operation

        def arrive(position, outcome, dated):
            answers[position] = outcome
            if dated is not None and not client.crashed:
                client.core.clock.observe(dated, sent, client.core.clock.raw())
            if all(answer is not None for answer in answers):
                self._step(client, script, tuple(answers))

        for position, call in enumerate(calls):
            self._travel(client, operation, call, lambda o, d, p=position: arrive(p, o, d))

    def _travel(self, client, operation, call, arrive):
        there, back = (self.rng.randint(1, self.faults.latency) for _ in range(2))
        fate = self.rng.random()
        lost_before = fate < self.faults.lost / 2
        lost_after = not lost_before and fate < self.faults.lost
        twice = not lost_before and call.repeatable and self.rng.random() < self.faults.repeated

        def serve(answers):
            outcome = self._serve(client, operation, call, answered=answers)
            if not answers:
                return
            date = formatdate(self.now / 1000, usegmt=True)
            self._at(self.now + back, lambda: arrive(outcome, date))

        def give_up():
            arrive(Unreachable("no answer"), None)

        if twice:
            self._at(self.now + self.rng.randint(1, self.faults.latency), lambda: serve(False))
        if lost_before:
            if not call.repeatable:
                self._never_applied(client, call)
            self._at(self.now + TIMEOUT, give_up)
        elif lost_after:
            self._at(self.now + there, lambda: serve(False))
            self._at(self.now + TIMEOUT, give_up)
        else:
            self._at(self.now + there, lambda: serve(True))

    def _serve(self, client, operation, call, *, answered):
        if call.operation.startswith(("Update", "Put", "TransactWrite")):
            fate = self.rng.random()
            if fate < self.faults.throttled:
                if not answered and not call.repeatable:
                    self._never_applied(client, call)
                return Throttled("TableWriteKeyRangeThroughputExceeded", of_key=True)
            if fate < self.faults.throttled + self.faults.conflicted:
                if not answered and not call.repeatable:
                    self._never_applied(client, call)
                return Conflicted()
        self.oldest = max(self.oldest, self.now - self.made[id(call)][0])
        self.actor = (client, operation, call, answered)
        try:
            outcome = self.engine.send(call)
        finally:
            self.actor = None
        if answered and "ClientRequestToken" in call.params and isinstance(outcome, Answer):
            for watcher in self.watchers:
                watcher.confirmed(client, call)
        if not answered and not call.repeatable and type(outcome).__name__ != "Answer":
            self._never_applied(client, call)
        return outcome

    def _never_applied(self, client, call):
        """A credit that did not happen, and whose sender must count it as done."""
        for watcher in self.watchers:
            watcher.credit_lost(client, call)

    def _changed(self, place, old, new):
        for watcher in self.watchers:
            watcher.changed(self.now, place, old, new, self.actor)
