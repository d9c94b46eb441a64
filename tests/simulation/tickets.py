"""Tickets in the simulator: drawn by one client, settled by any, and again, and at once."""

from __future__ import annotations

from headgate import settle
from headgate.effects import Pause
from headgate.errors import HeadgateError, TicketExpired, TicketSpent
from headgate.held import held
from tests.simulation.watch import Broken

WEEK = 604_800


class Tickets:
    """All tickets of a day, and all that was tried with them."""

    def __init__(self, day):
        self.day = day
        self.world, self.rng, self.watch = day.world, day.rng, day.watch
        self.pool = {}
        self.plans = []
        self.attempts = []

    def issue(self, hold):
        """What a lease holds is from now on settled by ticket."""
        ticket = hold.ticket(self.rng.choice([1, 60, WEEK, WEEK, WEEK]))
        self.pool[ticket.id] = ticket
        self.plans.append((ticket, *self._change(ticket)))

    def settle(self, client):
        """Some change of some ticket: a new one, or one that was tried before."""
        if not self.pool:
            return
        client.operation = "adjust"
        if self.rng.random() < 0.6:
            # Of what is planned or was tried: others are perhaps trying it at this moment.
            recent = (self.plans + self.attempts)[-self.rng.randint(1, 8) :]
            ticket, kind, amounts = self.rng.choice(recent)
        else:
            ticket = self.rng.choice([*self.pool.values()][-self.rng.randint(1, 12) :])
            kind, amounts = self._change(ticket)
        yield from self._attempt(client, ticket, kind, amounts)
        if self.rng.random() < 0.2:
            yield Pause(self.rng.expovariate(1 / self.day.pace) / 1000)
            yield from self._attempt(client, ticket, kind, amounts)

    def close(self, client):
        """At the end of the day, everything that was ever tried is tried once more: whatever its
        fate was, now it is known.
        """
        client.operation = "adjust"
        every = {_meaning(attempt): attempt for attempt in self.attempts}
        for ticket, kind, amounts in every.values():
            try:
                yield from self._attempt(client, ticket, kind, amounts)
            except HeadgateError:
                continue

    def check(self):
        """What the table did for each ticket is what its settlers were told."""
        for ticket_id in self.watch.moves:
            ticket = self.pool[ticket_id]
            known = ticket_id in self.watch.successors
            if not known and self.world.now < ticket.expires * 1000:
                raise Broken(f"P2: the ticket {ticket_id} was changed, and nobody can know how")
            if known:
                self.watch.check_ticket(ticket_id)

    def _change(self, ticket):
        holds = {}
        for part in ticket.parts:
            for name, amount in held(ticket.grants, part.ref).items():
                holds[name] = min(holds.get(name, amount), amount)
        holds = {name: amount // 1000 for name, amount in holds.items()}
        if not holds or self.rng.random() < 0.25:
            return ("release", None) if holds else ("adjust", {self.day.current[0].name: 3})
        if self.rng.random() < 0.3:
            return "release", {name: self.rng.randint(1, most) for name, most in holds.items()}
        by = {name: self.rng.randint(-most, 2 * most + 3) for name, most in holds.items()}
        return "adjust", by

    def _attempt(self, client, ticket, kind, amounts):
        meaning = _meaning((ticket, kind, amounts))
        self.attempts.append((ticket, kind, amounts))
        try:
            settled = yield from getattr(settle, kind)(client.core, ticket, amounts)
        except TicketSpent:
            self.day.stats["spent"] += 1
            if {other for other in self._tried() if other[0] == ticket.id} == {meaning}:
                raise Broken(f"P2: {ticket.id} is said to be spent, and is not") from None
            raise
        except TicketExpired:
            if self.world.now + self.world.clock_error < ticket.expires * 1000:
                raise Broken(f"P2: {ticket.id} is said to have expired, and has not") from None
            raise
        self.day.stats["settled" if settled.done else "replayed"] += 1
        if not settled.done and self._tried().count(meaning) == 1:
            raise Broken(f"P2: {ticket.id} is said to have been settled, and was not")
        if settled.ticket is not ticket:
            self.pool[settled.ticket.id] = settled.ticket
            self.watch.settled(ticket, settled.ticket)

    def _tried(self):
        """What all clients have tried by now, this one included."""
        return [_meaning(attempt) for attempt in self.attempts]


def _meaning(attempt):
    ticket, kind, amounts = attempt
    return ticket.id, kind, None if amounts is None else tuple(sorted(amounts.items()))
