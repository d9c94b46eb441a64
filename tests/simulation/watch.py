"""The promises, checked at every change of the table.

P1  a reference bucket per entity, resource and limit, as large as the promise allows, takes
    every debit at the moment it is applied, whatever shard it hits: it may never be overdrawn.
P2  what the table says a client drew is what the client believes it holds, plus exactly what
    it cannot know of: answers that were lost, requests that were repeated. What it says of a
    ticket is what whoever settled that was told, whoever else tried to, and however often.
P3  at a rejection, the tokens of all shards together did not suffice at some moment of it.
P4  what an acquire drew from a parent is what its children drew.
P6  an acquire never takes more writes than the design allows.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque

from headgate.bucket import Milliseconds, accrued
from headgate.schema import Decoder, parse_bucket_pk
from headgate.several import MAX_DEPTH

SLACK = 100
TC = re.compile(r"b_(\w+)_tc (:\w+)")
MEMORY = 1_000


class Broken(AssertionError):
    """A promise was broken; the message says which, and how."""


class Reference:
    """One limit as one bucket that is never sharded, never expires and forgets nothing."""

    def __init__(self, rate, e, now):
        self.rate, self.e, self.now = rate, e, now
        self.level = self.cap
        self.floor = self.lent = 0

    @property
    def cap(self):
        # Ceilings: the promise is a bound in real numbers, the arithmetic is in integers.
        return self.rate.cp + -(-self.rate.ra * self.e // self.rate.rp) + 1

    def advance(self, now):
        earned = accrued(self.rate, Milliseconds(now)) - accrued(self.rate, Milliseconds(self.now))
        self.level = min(self.cap, self.level + earned)
        self.floor = min(0, self.floor + earned)
        self.now = now

    def change(self, rate, now):
        """Other limits: what is held stays, and the error allowed for is the new rate's."""
        self.advance(now)
        gain = -(-rate.ra * self.e // rate.rp) - self.rate.ra * self.e // self.rate.rp
        self.rate = rate
        self.level += max(0, gain)

    def widen(self, e):
        """The error allowed for has grown: a slower request, a worse clock was seen."""
        grown = -(-self.rate.ra * (e - self.e) // self.rate.rp)
        self.e = e
        self.level += grown


def held(buckets, now):
    """What these shards together hold at this time, by limit."""
    total = defaultdict(int)
    for bucket in buckets:
        for name, holds in zip(
            bucket.limits.names, bucket.available(Milliseconds(now)), strict=True
        ):
            total[name] += holds
    return dict(total)


def by_hand(actor):
    """Whether a change is an operator's reset or top-up: it says that it happens once."""
    actions = actor[2].params.get("TransactItems", ()) if actor else ()
    puts = [action["Put"]["Item"]["SK"]["S"] for action in actions if "Put" in action]
    return any(sk.startswith("#ONCE#") for sk in puts)


def ticket_of(actor):
    """The id of the ticket that a change is the settlement of; None if it is something else."""
    actions = actor[2].params.get("TransactItems", ()) if actor else ()
    for action in actions:
        key = action.get("Update", {}).get("Key")
        if key and key["SK"]["S"] == "#ONCE":
            return key["PK"]["S"].rpartition("#")[2]
    return None


def holdings(ticket):
    """What a ticket holds, by bucket and limit."""
    total = defaultdict(int)
    for grant in ticket.grants:
        for name, amount in grant.amounts.items():
            total[grant.ref, name] += amount
    return total


class Watcher:
    """Sees every change. `e` grows with the worst latency and clock error seen so far."""

    def __init__(self, world):
        self.world = world
        self.decoder = Decoder()
        self.references = {}
        self.buckets = defaultdict(dict)  # ref -> shard -> Bucket
        self.history = defaultdict(lambda: deque(maxlen=4_000))  # ref -> (time, shards)
        self.debits = 0
        self.expired = set()
        self.removed = set()
        self.by_token = {}
        self.admitted = defaultdict(int)
        self.moves = defaultdict(lambda: defaultdict(int))  # ticket id -> what it moved
        self.successors = {}  # ticket id -> that ticket and the one it gave
        self.void = {}  # (ticket id, key) -> what went back to nothing
        world.watchers.append(self)

    # ------------------------------------------------------------ changes

    def changed(self, now, place, old, new, actor):
        pk, sk = place
        if sk != "#STATE":
            return
        ref, index = parse_bucket_pk(pk)
        before = self.decoder.bucket(old) if old else None
        after = self.decoder.bucket(new) if new else None
        known = self.buckets[ref]
        if after is None and actor is None:
            self.expired.add(ref)
        known.pop(index, None)
        if after is not None:
            known[index] = after
        if before and after:
            gone = set(before.limits.names) - set(after.limits.names)
            self.removed |= {(ref, name) for name in gone}
            for name in sorted(gone):
                if any(name in b.limits.positions for b in known.values()):
                    reference = self.references[ref, name]
                    reference.advance(now)
                    reference.level -= held([before], now)[name]
                else:
                    del self.references[ref, name]  # should it come back, it starts full
        for name in after.limits.names if after else ():
            new = not any(name in b.limits.positions for i, b in known.items() if i != index)
            if before is not None:
                new = new and name not in before.limits.positions
            self._rate(ref, name, now, recreated=new, added=before is not None)
            if before is not None and not new and name not in before.limits.positions:
                # A limit that is new to this shard starts full here, whatever others still owe.
                reference = self.references[ref, name]
                reference.advance(now)
                reference.floor = min(reference.floor, reference.level)
                reference.level += held([after], now)[name]
            moved = self._tc(after, name) - self._tc(before, name)
            if before is not None and before.limits is not after.limits:
                # Other limits, not a draw: one that is new, or was there before, starts at 0.
                moved = 0
            if before is None and after.shard.n > 1:
                moved = 0
            if moved:
                self._draw(ref, name, moved, now, actor)
            if before is not None and by_hand(actor):
                self._given(ref, name, before, after, now)
        self.history[ref].append((now, tuple(known.values())))

    def _given(self, ref, name, before, after, now):
        """What an operator added is there to be drawn, up to the cap."""
        position = after.limits.positions[name]
        reference = self.references[ref, name]
        reference.advance(now)
        added = max(0, after.tk[position] - before.tk[position])
        reference.level = min(reference.cap, reference.level + added)

    @staticmethod
    def _tc(bucket, name):
        if bucket is None or name not in bucket.limits.positions:
            return 0
        return bucket.tc[bucket.limits.positions[name]]

    def _rate(self, ref, name, now, *, recreated, added):
        """The reference follows the limits that the shards hold; the widest of them, while
        a change is still on its way through the shards."""
        rates = [
            bucket.limits.rates[bucket.limits.positions[name]]
            for bucket in self.buckets[ref].values()
            if name in bucket.limits.positions
        ]
        widest = max(rates, key=lambda rate: (rate.cp, rate.ra / rate.rp))
        fastest = max(rates, key=lambda rate: rate.ra / rate.rp)
        widest = widest._replace(ra=fastest.ra, rp=fastest.rp)
        reference = self.references.get((ref, name))
        if reference is None or (recreated and (added or reference.rate != widest)):
            self.references[ref, name] = Reference(widest, self.error(), now)
        elif reference.rate != widest:
            if self.error() > reference.e:
                reference.widen(self.error())
            reference.change(widest, now)

    def error(self):
        return SLACK + self.world.oldest + 2 * self.world.clock_error + 2

    def _draw(self, ref, name, amount, now, actor):
        client, operation, call, answered = actor
        key = ref, name
        ticket = ticket_of(actor)
        if ticket is not None:
            # No client's: it belongs to the ticket, whoever sends it.
            self.moves[ticket][key] += amount
        else:
            client.drawn[key] = client.drawn.get(key, 0) + amount
        if not answered and amount > 0 and ticket is None:
            client.unsure[key] = client.unsure.get(key, 0) + amount
            token = call.params.get("ClientRequestToken")
            self.by_token.setdefault(token, []).append((key, amount))
        reference = self.references[key]
        if self.error() > reference.e:
            reference.widen(self.error())
        reference.advance(now)
        indebted = any(held([b], now).get(name, 0) < 0 for b in self.buckets[ref].values())
        if not indebted:
            reference.floor = reference.lent = 0
        if amount < 0 and indebted and len(self.buckets[ref]) > 1:
            # What a release returns to one shard can be drawn from it again, though all
            # together are in debt: at most so much, and never to a debt that is deeper.
            reference.floor = min(reference.floor, reference.level)
            reference.lent -= amount
        reference.level -= amount
        if amount > 0:
            self.debits += 1
            self.admitted[key] += amount
            if operation != "adjust" and reference.level < min(reference.floor, -reference.lent):
                raise Broken(
                    f"P1: {ref.entity_id}/{ref.resource}/{name} overdrawn by "
                    f"{-reference.level} millitokens at {now} by {client.name} in {operation} "
                    f"({reference.rate}, e={reference.e})"
                )

    def confirmed(self, client, call):
        """A transaction that took effect before, and whose repetition was now answered."""
        for key, amount in self.by_token.pop(call.params.get("ClientRequestToken"), ()):
            client.unsure[key] -= amount

    def credit_lost(self, client, call):
        """A credit that was never applied: its sender counts it as given back."""
        ref, _ = parse_bucket_pk(call.params["Key"]["PK"]["S"])
        values = call.params["ExpressionAttributeValues"]
        for name, value in TC.findall(call.params["UpdateExpression"]):
            if name != "wcu":
                key = ref, name
                client.unsure[key] = client.unsure.get(key, 0) - int(values[value]["N"])

    # ------------------------------------------------------------ tickets

    def settled(self, ticket, successor):
        """Somebody was told what became of a ticket: the same as everybody else."""
        told = self.successors.setdefault(ticket.id, (ticket, successor))
        if told != (ticket, successor):
            raise Broken(f"P2: of {ticket.id} one was told {told[1]}, another {successor}")
        self.check_ticket(ticket.id)

    def check_ticket(self, ticket_id):
        """P2: what the table did for a ticket is what its settlers were told, once."""
        before, after = (holdings(ticket) for ticket in self.successors[ticket_id])
        moves = self.moves.get(ticket_id, {})
        for key in sorted({*moves, *before, *after}):
            ref, name = key
            moved, told = moves.get(key, 0), after[key] - before[key]
            if moved > told and (ref in self.expired or key in self.removed):
                # To a bucket that had expired, or to a limit that is gone, nothing goes back.
                told += self.void.setdefault((ticket_id, key), moved - told)
            if moved != told:
                raise Broken(
                    f"P2: the ticket {ticket_id} moved {moved} of {ref.entity_id}/{name} by the "
                    f"table, and its settlers were told {told}"
                )

    # ------------------------------------------------------------ balances

    def available(self, ref, now):
        """What all shards together hold, by limit."""
        return held(self.buckets[ref].values(), now)

    def check_rejection(self, client, error, consume, since):
        """P3: there was a moment at which it was right to say no."""
        ref = next(
            (
                r
                for r in self.buckets
                if (r.entity_id, r.resource) == (error.entity_id, error.resource)
            ),
            None,
        )
        if ref is None or error.contended:
            return
        start = since - MEMORY - self.world.oldest if error.remembered else since
        if self.history[ref][0][0] > start:
            return  # there was no bucket then: the limits were those of the configuration
        tolerance_ms = self.world.clock_error + 1
        for violation in error.violations:
            wanted = violation.requested * 1000
            reference = self.references.get((ref, violation.name))
            if reference is None or wanted > reference.rate.cp:
                return
            for moment, buckets in reversed(self.history[ref]):
                # What a client's wrong clock is worth, by the limits of that moment.
                rates = (
                    b.limits.rates[b.limits.positions[violation.name]]
                    for b in buckets
                    if violation.name in b.limits.positions
                )
                grace = max((tolerance_ms * r.ra // r.rp for r in rates), default=0) + 2
                holds = held(buckets, max(moment, start)).get(violation.name, 0)
                if holds - grace < wanted:
                    return
                if moment <= start:
                    break
        raise Broken(f"P3: {client.name} was told: {error}; but there was always enough")

    def check_parents(self, client, hold):
        """P4: what was drawn from a parent is what its children drew, of the limits it has."""
        wanted = defaultdict(lambda: defaultdict(int))
        for part in hold.parts:
            for name, amount in part.amounts.items():
                wanted[part.ref][name] += amount
        for part in hold.parts:
            ref = part.ref
            for _ in range(MAX_DEPTH):
                bucket = hold.buckets[ref][0]
                if not bucket.cascade or bucket.parent_id is None:
                    break
                ref = ref._replace(entity_id=bucket.parent_id)
                if ref not in hold.buckets:
                    raise Broken(f"P4: {client.name} did not draw from {ref.entity_id}")
                for name, amount in part.amounts.items():
                    if name in hold.buckets[ref][0].limits.positions:
                        wanted[ref][name] += amount
        for ref, amounts in wanted.items():
            drawn = hold.held(ref)
            if {n: a for n, a in amounts.items() if a} != drawn:
                raise Broken(
                    f"P4: {client.name} drew {drawn} of {ref.entity_id}, not {dict(amounts)}"
                )

    def check_cost(self, client, calls):
        """P6, the upper end: four writes, the first read of a process, a read and a write to
        make the bucket, and the configuration read beside one of them."""
        if calls > 8:
            raise Broken(f"P6: {client.name} sent {calls} requests for one acquire")

    def check_ledger(self, client):
        """P2, whenever a client rests."""
        keys = set(client.drawn) | set(client.known) | set(client.unsure)
        for key in sorted(keys):
            drawn = client.drawn.get(key, 0)
            believed = client.known.get(key, 0) + client.unsure.get(key, 0)
            ref, name = key
            if drawn > believed and (ref in self.expired or key in self.removed):
                # Given back to a bucket that had expired, so was full, or to a limit that was
                # taken out of it: there was nothing to do.
                client.unsure[key] = client.unsure.get(key, 0) + drawn - believed
            elif drawn != believed:
                raise Broken(
                    f"P2: {client.name} drew {drawn} of {ref.entity_id}/{ref.resource}/{name} "
                    f"by the table, and knows of {client.known.get(key, 0)} plus "
                    f"{client.unsure.get(key, 0)} that it cannot know"
                )
