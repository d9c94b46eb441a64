"""A lease corrected or returned later, elsewhere, exactly once.

| record | PK                | SK     |                                                       |
|--------|-------------------|--------|-------------------------------------------------------|
| once   | {ns}/TICKET#{id}  | #ONCE  | what the ticket was used for, and how far that has got |

A change is at most two transactions, since one takes each item once and a change may take of one
limit and return of another. Each has the mark of its step on the ticket's record with it:

    record as it was        debits + `debited`          credits + `credited`
    none, or this change ──────────────────────> this change, debited ───────────> done

So a step happens with its mark or not at all, whoever sends it how often: a call whose answer was
lost is made again with the same ticket, and finds how far it got.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from headgate import config, shards, writes
from headgate.acquire import Amounts, Grant, unmade
from headgate.align import reconcile
from headgate.bucket import LimitStatus, Millitokens
from headgate.core import Core, failure
from headgate.effects import (
    Answer,
    Call,
    Conflicted,
    Flow,
    Item,
    Pause,
    T,
    Throttled,
    TransactionFailed,
    together,
)
from headgate.errors import RateLimiterUnavailable, TicketExpired, TicketSpent, ValidationError
from headgate.held import check_held, divided, held, joined, spread
from headgate.limit import MAX_TOKENS, LimitSet, as_amounts, limit_name, whole
from headgate.namespaces import opened
from headgate.reads import batch_get
from headgate.records import Place
from headgate.schema import Bucket, BucketRef, NamespaceId, in_namespace, key
from headgate.status import contended, statuses
from headgate.ticket import Ticket, grants_as_data, grants_from_data

ONCE = "#ONCE"
KEPT = 3_600  # seconds for which a record outlives its ticket: more than clocks differ
_TRIES = 12

Seen = dict[BucketRef, tuple[Bucket, ...]]


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of it. Not `done`: this very change had been made with this ticket before, and
    nothing happened now. `ticket` is for what is held now; the one that was given is used up.
    `limits` is where those of the first part stand; empty if its bucket has expired, and so is
    full, or if there was nothing to change.
    """

    done: bool
    ticket: Ticket
    limits: tuple[LimitStatus, ...]


def adjust(core: Core, ticket: Ticket, amounts: Mapping[str, int]) -> Flow[Settled]:
    """Corrects what a ticket holds by these differences, by limit. Never rejected: may go into
    debt. Done once: the same call may be repeated until it is answered.
    """
    _check(ticket)
    if not isinstance(amounts, Mapping):
        raise ValidationError(f"amounts must be differences by limit: {amounts!r:.200}")
    for name, amount in amounts.items():
        whole(f"amounts[{name!r}]", amount, least=-MAX_TOKENS)
    changes = {limit_name(name): amount for name, amount in amounts.items() if amount}
    up = {name: Millitokens(1000 * by) for name, by in changes.items() if by > 0}
    down = {name: Millitokens(-1000 * by) for name, by in changes.items() if by < 0}
    kept, back = _returned("adjust by -", ticket, down)
    meaning = f"adjust {json.dumps(changes, sort_keys=True)}"
    return (yield from _Settlement(core, ticket, meaning, up, kept, back).run())


def release(core: Core, ticket: Ticket, amounts: Mapping[str, int] | None = None) -> Flow[Settled]:
    """Gives back so much of what a ticket holds, by limit, or all of it. Done once: the same call
    may be repeated until it is answered.
    """
    _check(ticket)
    if amounts is None:
        meaning, kept, back = "all", list[Grant](), list(reversed(ticket.grants))
    else:
        kept, back = _returned("release", ticket, as_amounts("amounts", amounts))
        meaning = json.dumps(dict(amounts), sort_keys=True)
    return (yield from _Settlement(core, ticket, f"release {meaning}", {}, kept, back).run())


def pk_ticket(ns: NamespaceId, ticket_id: str) -> str:
    return f"{ns}/TICKET#{ticket_id}"


def _check(ticket: object) -> None:
    if not isinstance(ticket, Ticket):
        raise ValidationError(f"ticket must be a Ticket: {ticket!r:.200}")


def _returned(what: str, ticket: Ticket, amounts: Amounts) -> tuple[list[Grant], list[Grant]]:
    """What stays and what goes back: decided by the ticket alone, so by each repetition alike."""
    named: dict[BucketRef, Amounts] = {}
    for part in ticket.parts:
        has = held(ticket.grants, part.ref)
        here = {name: amount for name, amount in amounts.items() if name in has}
        if here:
            named[part.ref] = here
    check_held(what, "ticket", named, ticket.grants)
    for name, amount in amounts.items():
        if not any(name in here for here in named.values()):
            raise ValidationError(
                f"cannot {what} {amount // 1000} {name}: the ticket holds none of it"
            )
    return divided(ticket.grants, spread(named, _parents(ticket)))


def _parents(ticket: Ticket) -> dict[BucketRef, tuple[BucketRef, ...]]:
    return {part.ref: part.parents for part in ticket.parts}


class _Settlement:
    """One change of one ticket."""

    def __init__(
        self,
        core: Core,
        ticket: Ticket,
        meaning: str,
        up: Amounts,
        kept: list[Grant],
        back: list[Grant],
    ) -> None:
        self.core = core
        self.ticket = ticket
        self.meaning = meaning
        self.up = up
        self.kept = kept
        self.back = back
        self.first = ticket.parts[0].ref
        self.who = f"{core.unique.getrandbits(48):012x}"  # tells its own marks from others'
        self.standing: tuple[Bucket, ...] = ()

    def run(self) -> Flow[Settled]:
        if not self.up and not self.back:
            return Settled(done=True, ticket=self.ticket, limits=())
        try:
            yield from self._ready()
            done, drawn = False, "[]"
            if self.up:
                done, drawn = yield from self._once("debited", self.ticket.refs, self._debits)
            if self.back:
                back_to = dict.fromkeys((self.first, *(grant.ref for grant in self.back)))
                returned, _ = yield from self._once("credited", tuple(back_to), self._credits)
                done = done or returned
        except RateLimiterUnavailable as error:
            if not error.throttled:
                raise
            raise contended(self.first) from error
        limits = statuses(self.standing, {}, self.core.now()) if self.standing else ()
        return Settled(done, self._successor(drawn), limits)

    def _ready(self) -> Flow[None]:
        core, ticket = self.core, self.ticket
        ns = yield from opened(core)
        if ticket.namespace_id != ns:
            raise ValidationError(
                f"the ticket is of the namespace {ticket.namespace_id!r}, and this is {ns!r}"
            )
        if not core.clock.checked or not core.version_checked:
            # Neither the ticket's expiry nor a write goes by an unchecked clock.
            yield from config.warm(core, self.first)
        if core.now() >= ticket.expires * 1000:
            raise TicketExpired(f"the ticket {ticket.id!r} could be settled until {ticket.expires}")

    def _successor(self, drawn: str) -> Ticket:
        """What is held when the change is made: the same however often that is asked."""
        text = f"{self.ticket.id} {self.meaning}"
        grants = grants_from_data(json.loads(drawn), self.ticket.refs)
        return replace(
            self.ticket,
            id=hashlib.sha256(text.encode()).hexdigest()[:24],
            grants=joined([*self.kept, *grants]),
        )

    def _once(
        self, step: str, refs: tuple[BucketRef, ...], plan: Callable[[Seen], Flow[Plan | None]]
    ) -> Flow[tuple[bool, str]]:
        """Makes a step unless it was made. Whether it was made now, and what its mark says."""
        core = self.core
        for attempt in range(_TRIES):
            if attempt > 1:
                yield Pause(0.005 * 2 ** min(attempt, 6))
            record, seen = yield from self._look(refs)
            self.standing = seen[self.first]
            if record is not None and record["meaning"]["S"] != self.meaning:
                raise TicketSpent(
                    f"the ticket {self.ticket.id!r} was used before, to {record['meaning']['S']}: "
                    "use the one that this gave"
                )
            if record is not None and step in record:
                who, _, note = record[step]["S"].partition(" ")
                return who == self.who, note
            planned = yield from plan(seen)
            if planned is None:
                continue
            (outcome,) = yield from core.call(self._transaction(step, planned))
            match outcome:
                case Answer():
                    self.standing = planned.after.get(self.first, self.standing)
                    for ref in planned.after:
                        core.views.refusals.pop(ref)
                    return True, planned.note
                case TransactionFailed() | Conflicted() | Throttled():
                    continue
                case _:
                    raise failure(outcome)
        raise contended(self.first)

    def _look(self, refs: tuple[BucketRef, ...]) -> Flow[tuple[Item | None, Seen]]:
        """The ticket's record and these buckets as they are."""
        place = pk_ticket(self.ticket.namespace_id, self.ticket.id), ONCE
        found: dict[Place, Item] = {}

        def read() -> Flow[tuple[Bucket, ...]]:
            found.update((yield from batch_get(self.core, [key(*place)], strong=True)))
            return ()

        reads = [shards.read_all(self.core, ref) for ref in refs]
        _, *buckets = _sound((yield from together([read(), *reads])))
        return found.get(place), dict(zip(refs, buckets, strict=True))

    # ------------------------------------------------------------ what a step does

    def _debits(self, seen: Seen) -> Flow[Plan | None]:
        """Forced draws from the buckets that were asked for and from those they cascaded to, each
        from all of its shards. One that has expired is made again.
        """
        core = self.core
        gone = [ref for ref, buckets in seen.items() if not buckets]
        fulls = _sound((yield from together([unmade(core, ref) for ref in gone])))
        made = dict(zip(gone, fulls, strict=True))
        for ref, buckets in seen.items():
            if any(bucket.limits != buckets[0].limits for bucket in buckets):
                # Other limits are on their way through the shards: see them through first.
                for bucket in buckets:
                    yield from reconcile(core, ref, bucket, None)
                return None
        limits = {ref: (buckets or (made[ref],))[0].limits for ref, buckets in seen.items()}
        now, plan = core.now(), Plan()
        drawn: list[Grant] = []
        for ref, amounts in spread(self._named(limits), _parents(self.ticket)).items():
            here = {name: a for name, a in amounts.items() if name in limits[ref].positions}
            if ref in made and here:
                plan.after[ref] = (made[ref].drawn(limits[ref].amounts(here), now),)
                plan.actions.append(
                    {"Put": dict(writes.create(core.table, ref, plan.after[ref][0], now).params)}
                )
                drawn.append(Grant(ref, 0, here))
            elif here:
                each = shards.allot(seen[ref], here, now, force=True)
                assert each is not None, "a forced draw is never short"
                plan.after[ref] = shards.after(seen[ref], each, now)
                plan.actions += shards.debits(core, ref, seen[ref], each, now, force=True)
                drawn += [Grant(ref, shard, part) for shard, part in each.items()]
        plan.note = json.dumps(grants_as_data(drawn, self.ticket.refs))
        self._successor(plan.note)  # what would not fit into a ticket is found before it is drawn
        return plan

    def _named(self, limits: Mapping[BucketRef, LimitSet]) -> dict[BucketRef, Amounts]:
        """What is to be drawn of each bucket that was asked for and has such a limit."""
        names = {name for has in limits.values() for name in has.names}
        unknown = [name for name in self.up if name not in names]
        if unknown:
            raise ValidationError(
                f"no limit named {', '.join(map(repr, unknown))}: the limits here are "
                f"{', '.join(sorted(names))}"
            )
        return {
            part.ref: {n: a for n, a in self.up.items() if n in limits[part.ref].positions}
            for part in self.ticket.parts
        }

    def _credits(self, seen: Seen) -> Flow[Plan | None]:
        """What goes back, each to the shard that it was drawn from or to the one that this merged
        into. A bucket that has expired is full: there is nothing to return to.
        """
        plan = Plan()
        for ref, buckets in seen.items():
            there = {bucket.shard.i: bucket for bucket in buckets}
            into: dict[int, dict[str, Millitokens]] = {}
            for grant in self.back:
                shard = grant.shard
                while shard and shard not in there:
                    shard = shards.parent(shard)
                if grant.ref != ref or shard not in there:
                    continue
                here = into.setdefault(shard, {})
                for name, amount in grant.amounts.items():
                    if name in there[shard].limits.positions:
                        here[name] = Millitokens(here.get(name, 0) + amount)
            self._plan_credits(plan, ref, buckets, {i: some for i, some in into.items() if some})
        yield from ()  # nothing has to be looked up for it
        return plan

    def _plan_credits(
        self,
        plan: Plan,
        ref: BucketRef,
        buckets: tuple[Bucket, ...],
        into: Mapping[int, Amounts],
    ) -> None:
        core, now = self.core, self.core.now()
        plan.actions += [
            writes.in_transaction(
                writes.credit(
                    core.table, ref, bucket, bucket.limits.amounts(into[bucket.shard.i]), now
                )
            )
            for bucket in buckets
            if bucket.shard.i in into
        ]
        taken = {
            shard: {name: Millitokens(-amount) for name, amount in amounts.items()}
            for shard, amounts in into.items()
        }
        if taken:
            plan.after[ref] = shards.after(buckets, taken, now)

    def _transaction(self, step: str, plan: Plan) -> Call:
        """A step and its mark: both or neither."""
        # One action for each grant that comes or goes, and a ticket has no more than fit.
        actions = [self._mark(step, plan.note), *plan.actions]
        return Call(
            "TransactWriteItems",
            {"TransactItems": actions, "ClientRequestToken": shards.token(self.core)},
        )

    def _mark(self, step: str, note: str) -> dict[str, Any]:
        ns, pk = self.ticket.namespace_id, pk_ticket(self.ticket.namespace_id, self.ticket.id)
        unused = "attribute_not_exists(PK)"
        so_far = f"meaning = :m AND attribute_not_exists({step})"
        sets = [f"{name} = :{name}" for name in in_namespace(ns, pk)]
        return {
            "Update": {
                "TableName": self.core.table,
                "Key": key(pk, ONCE),
                "ConditionExpression": f"{unused} OR ({so_far})",
                "UpdateExpression": f"SET meaning = :m, {step} = :s, #ttl = :ttl, "
                + ", ".join(sets),
                "ExpressionAttributeNames": {"#ttl": "ttl"},
                "ExpressionAttributeValues": {
                    ":m": {"S": self.meaning},
                    ":s": {"S": f"{self.who} {note}"},
                    ":ttl": {"N": str(self.ticket.expires + KEPT)},
                    **{f":{name}": value for name, value in in_namespace(ns, pk).items()},
                },
            }
        }


@dataclass(slots=True)
class Plan:
    """The writes of a step, what its mark says, and the buckets as they are then."""

    actions: list[dict[str, Any]] = field(default_factory=list)
    note: str = "[]"
    after: Seen = field(default_factory=dict)


def _sound(results: Sequence[T | Exception]) -> list[T]:
    """The results, if all are: or else the first exception is raised."""
    for result in results:
        if isinstance(result, Exception):
            raise result
    return cast("list[T]", results)
