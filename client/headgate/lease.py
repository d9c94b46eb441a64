"""What an acquire gives: tokens that are taken, and the means to correct how many.

The tokens are written before the lease is handed out. Leaving it normally keeps them;
leaving it by an exception of any kind gives them back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from headgate import costs
from headgate.acquire import Amounts, Draw, Drawn, Grant
from headgate.bucket import LimitStatus, Milliseconds, Millitokens
from headgate.core import Core, OnUnavailable, logger, policy, seconds
from headgate.costs import Consume
from headgate.effects import Flow, Pause, together
from headgate.errors import (
    HeadgateError,
    RateLimiterUnavailable,
    RateLimitExceeded,
    TableError,
    ValidationError,
)
from headgate.held import check_held, divided, held, spread, tokens
from headgate.limit import Limit, LimitSet, as_amounts, whole
from headgate.namespaces import opened
from headgate.schema import (
    REGISTRY,
    Bucket,
    BucketRef,
    NamespaceId,
    checked_entity,
    checked_resource,
)
from headgate.several import MAX_BUCKETS, Part, ancestors, take, undo
from headgate.status import contended, statuses
from headgate.ticket import Claim, Ticket, issue

MAX_GROUPS = 100


@dataclass(frozen=True, slots=True)
class Request:
    """What to take from whom: one of the parts of an `acquire_all`. `consume` has amounts by
    limit, or is the name of an operation that the resource's configuration has costs for.
    """

    entity_id: str
    resource: str
    consume: Consume
    limits: Sequence[Limit] | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """An acquire as it was called."""

    requests: tuple[Request, ...]
    max_wait: float | None = None
    on_unavailable: OnUnavailable | None = None


@dataclass(slots=True)
class Hold:
    """What a lease holds, and the flows that change it."""

    core: Core
    parts: tuple[Part, ...]
    buckets: dict[BucketRef, tuple[Bucket, ...]] = field(default_factory=dict)
    parents: dict[BucketRef, list[BucketRef]] = field(default_factory=dict)  # that were cascaded to
    grants: list[Grant] = field(default_factory=list)
    reason: str | None = None  # why it is degraded

    def keep(self, drawn: Mapping[BucketRef, Sequence[Drawn]]) -> None:
        """Takes over what was drawn."""
        for ref, several in drawn.items():
            for one in several:
                self.grants.extend(one.grants)
                self.buckets[ref] = one.buckets
        for part in self.parts:
            bucket = self._last(part.ref)
            if bucket is None or not bucket.cascade:
                continue
            for ref in ancestors(part.ref, self._last):
                known = self.parents.setdefault(part.ref, [])
                # An entity may have moved since: what its old parent gave is still held.
                if ref not in known:
                    known.append(ref)

    def _last(self, ref: BucketRef) -> Bucket | None:
        return self.buckets[ref][0] if ref in self.buckets else None

    def held(self, ref: BucketRef) -> dict[str, int]:
        """What this lease holds of a bucket, in millitokens."""
        return held(self.grants, ref)

    def consumed(self) -> dict[str, int]:
        """What the first request holds, in tokens."""
        return tokens(self.grants, self.parts[0].ref)

    def limits(self) -> tuple[LimitStatus, ...]:
        """The limits of the first request as the last answer showed them."""
        return self._standing(self.parts[0].ref)

    def limits_of(self, entity_id: str, resource: str) -> tuple[LimitStatus, ...]:
        """The limits of any bucket that was drawn from, parents included."""
        named = (ref for ref in self.buckets if ref[1:] == (entity_id, resource))
        return self._standing(next(named, None))

    def _standing(self, ref: BucketRef | None) -> tuple[LimitStatus, ...]:
        buckets = self.buckets.get(ref) if ref else None
        return statuses(buckets, {}, self.core.now()) if buckets else ()

    def consume(self, /, **amounts: int) -> Flow[None]:
        """Takes more, conditionally: RateLimitExceeded if it is not there."""
        named = self._named(as_amounts("consume", amounts))
        if self.reason is None:
            given = self._given()
            more = [Part(ref, here, given[ref]) for ref, here in named.items()]
            drawn = yield from take(self.core, more)
            self.keep(drawn)

    def release(self, /, **amounts: int) -> Flow[bool]:
        """Gives back so much of what is held, or all of it."""
        if not amounts:
            return (yield from self.rollback())
        named = self._named(as_amounts("release", amounts))
        self._check_held("release", named)
        return (yield from self._return(named))

    def adjust(self, /, **amounts: int) -> Flow[bool]:
        """Corrects what was taken by these differences. Never rejected: may go into debt.

        True if it was recorded. An outage loses it, with a log line and an event.
        """
        for name, amount in amounts.items():
            whole(f"adjust[{name!r}]", amount, least=-(10**12))
        up = {n: Millitokens(1000 * a) for n, a in amounts.items() if a > 0}
        down = {n: Millitokens(-1000 * a) for n, a in amounts.items() if a < 0}
        more, less = self._named(up), self._named(down)
        self._check_held("adjust by -", less)
        if self.reason is not None:
            return False
        results: list[bool] = []
        if down:
            results.append((yield from self._return(less)))
        if up:
            results.append((yield from self._force(more)))
        return all(results)

    def ticket(self, expires_in: float) -> Ticket:
        """What is held, to be settled elsewhere."""
        if self.reason is not None:
            raise ValidationError(
                f"the lease is degraded ({self.reason}): nothing was drawn, so there is nothing to "
                "settle"
            )
        for part in self.parts:
            if part.limits is not None:
                raise ValidationError(
                    "a ticket goes by stored limits, and this acquire brought its own for "
                    f"{part.ref.entity_id!r} on {part.ref.resource!r}: {part.limits!r}"
                )
        asked = dict.fromkeys(part.ref for part in self.parts)
        claims = (Claim(ref, tuple(self.parents.get(ref, ()))) for ref in asked)
        return issue(self.core, claims, self.grants, expires_in)

    def rollback(self) -> Flow[bool]:
        """Gives everything back."""
        grants, self.grants = self.grants, []
        done = yield from undo(self.core, grants)
        if not done:
            self._lost("release_lost")
        return done

    def _named(self, amounts: Mapping[str, Millitokens]) -> dict[BucketRef, Amounts]:
        """The amounts for each bucket that was asked for and has such a limit."""
        names = {name for part in self.parts for name in part.amounts}
        for buckets in self.buckets.values():
            names |= set(buckets[0].limits.names)
        unknown = [name for name in amounts if name not in names]
        if unknown and not (self.reason is not None and not names):
            raise ValidationError(
                f"no limit named {', '.join(map(repr, unknown))}: the limits here are "
                f"{', '.join(sorted(names))}"
            )
        found: dict[BucketRef, Amounts] = {}
        for part in self.parts:
            bucket = self._last(part.ref)
            has = set(bucket.limits.names) if bucket else set(part.amounts)
            here = {name: amount for name, amount in amounts.items() if name in has}
            if here:
                found[part.ref] = here
        return found

    def _given(self) -> dict[BucketRef, LimitSet | None]:
        """The limits that the call brought."""
        return {part.ref: part.limits for part in self.parts}

    def _check_held(self, what: str, named: Mapping[BucketRef, Amounts]) -> None:
        if self.reason is None:
            check_held(what, "lease", named, self.grants)

    def _return(self, named: Mapping[BucketRef, Amounts]) -> Flow[bool]:
        """Takes amounts out of the grants, the newest first, and gives them back: from the
        buckets that were asked for and from those they cascaded to.
        """
        self.grants, back = divided(self.grants, spread(named, self.parents))
        done = yield from undo(self.core, back)
        if not done:
            self._lost("release_lost")
        return done

    def _force(self, named: Mapping[BucketRef, Amounts]) -> Flow[bool]:
        """Debits the buckets that were asked for, and those they cascaded to."""
        falls, given = spread(named, self.parents), self._given()
        flows = [
            Draw(
                self.core,
                ref,
                amounts,
                limits=given.get(ref),
                force=True,
                subset=amounts != named.get(ref),
                shard=next((g.shard for g in reversed(self.grants) if g.ref == ref), None),
            ).run()
            for ref, amounts in falls.items()
        ]
        results = yield from together(flows)
        for ref, result in zip(falls, results, strict=True):
            if isinstance(result, Drawn):
                self.keep({ref: [result]})
            elif not isinstance(result, HeadgateError):
                raise result
        done = all(isinstance(result, Drawn) for result in results)
        if not done:
            self._lost("adjust_lost")
        return done

    def _lost(self, event: str) -> None:
        resource = self.parts[0].ref.resource
        logger.warning("%s on resource %s: the table did not confirm it", event, resource)
        self.core.emit(event, resource)


def admit_each(
    core: Core, groups: Sequence[Sequence[Request]], on_unavailable: OnUnavailable | None = None
) -> Flow[list[Hold | HeadgateError]]:
    """Many acquires side by side, each on its own: what it took, or why it took nothing. Whatever
    ends them all, nothing stays taken.
    """
    if len(groups) > MAX_GROUPS:
        raise ValidationError(f"at most {MAX_GROUPS} groups at a call: {len(groups)} given")
    each = [Wanted(tuple(group), None, on_unavailable) for group in groups]
    for wanted in each:
        _check(wanted)
    trouble: HeadgateError | None = None
    try:
        # Looked up once for all, and found to be out of reach once for all.
        yield from opened(core)
    except HeadgateError as error:
        trouble = error
    taken: list[Hold] = []
    results: list[Hold | HeadgateError] = []
    try:
        for result in (yield from together([_kept(core, one, trouble, taken) for one in each])):
            if isinstance(result, Exception) and not isinstance(result, HeadgateError):
                raise result  # noqa: TRY301 - given back below, as by any other end
            results.append(result)
    except GeneratorExit:
        raise  # nobody is left to send anything
    except BaseException:
        yield from forgo(taken)
        raise
    return results


def _kept(
    core: Core, wanted: Wanted, trouble: HeadgateError | None, taken: list[Hold]
) -> Flow[Hold]:
    hold = yield from admit(core, wanted, trouble)
    taken.append(hold)
    return hold


def forgo(results: Iterable[Hold | HeadgateError]) -> Flow[None]:
    """Gives back what many acquires took."""
    yield from together([hold.rollback() for hold in results if isinstance(hold, Hold)])


def admit(core: Core, wanted: Wanted, trouble: HeadgateError | None = None) -> Flow[Hold]:
    """The whole of an acquire: check, take, wait if that was asked for, apply the policy.
    `trouble` is what is known to be in the way.
    """
    _check(wanted)
    resource = wanted.requests[0].resource
    # Not the corrected time: the first answer may move it by hours.
    start = core.clock.raw()
    while True:
        try:
            hold = yield from _taken(core, wanted, trouble)
            if core.settings.on_event is not None:  # nobody listens: nothing to add up
                core.emit("admitted", resource, ms=_since(core, start), tokens=hold.consumed())
            return hold
        except RateLimitExceeded as error:
            pause = _pause(core, error, wanted.max_wait, core.clock.raw() - start)
            if pause is None:
                core.emit(
                    "rejected",
                    resource,
                    ms=_since(core, start),
                    contended=error.contended,
                    remembered=error.remembered,
                )
                raise
            yield Pause(pause)
        except RateLimiterUnavailable as error:
            chosen = wanted.on_unavailable or core.stored_policy or core.settings.on_unavailable
            outcome = "degraded" if chosen == "allow" else "unavailable"
            core.emit(outcome, resource, ms=_since(core, start), reason=error.reason)
            if chosen == "block":
                raise
            return Hold(core, _unmetered(core, wanted), reason=error.reason)
        except TableError as error:
            core.emit("failed", resource, ms=_since(core, start), error=type(error).__name__)
            raise


def _since(core: Core, start: Milliseconds) -> int:
    """How long it took; a clock that was set back meanwhile is no news for a callback."""
    return max(0, core.clock.raw() - start)


def _taken(core: Core, wanted: Wanted, trouble: HeadgateError | None) -> Flow[Hold]:
    try:
        if trouble is not None:
            raise trouble
        ns = yield from opened(core)
        hold = yield from _drawn(core, ns, wanted)
    except RateLimiterUnavailable as error:
        if not error.throttled:
            raise
        # Too much to do is no outage: whatever was throttled, the answer is no for the moment.
        raise contended(_ref(REGISTRY, wanted.requests[0])) from error
    return hold


def _drawn(core: Core, ns: NamespaceId, wanted: Wanted) -> Flow[Hold]:
    parts = yield from _parts(core, ns, wanted)
    try:
        drawn = yield from take(core, parts)
    except ValidationError:
        # A number is so much of every limit: other limits may be in force than were known.
        was, parts = parts, (yield from _parts(core, ns, wanted, strong=True))
        if parts == was:
            raise
        drawn = yield from take(core, parts)
    hold = Hold(core, parts)
    hold.keep(drawn)
    return hold


def _check(wanted: Wanted) -> None:
    """All that can be wrong with a call, found before anything is sent."""
    if not 1 <= len(wanted.requests) <= MAX_BUCKETS:
        raise ValidationError(
            f"an acquire has from 1 to {MAX_BUCKETS} requests: {len(wanted.requests)} given"
        )
    if wanted.max_wait is not None:
        seconds("max_wait", wanted.max_wait)
    if wanted.on_unavailable is not None:
        policy(wanted.on_unavailable)
    for request in wanted.requests:
        checked_entity(request.entity_id)
        checked_resource(request.resource)
        costs.checked_consume(request.consume)
        if request.limits is not None:
            limits = LimitSet(request.limits)
            if costs.spelled_out(request.consume):
                limits.amounts(as_amounts("consume", request.consume))


def _ref(ns: NamespaceId, request: Request) -> BucketRef:
    return BucketRef(ns, checked_entity(request.entity_id), checked_resource(request.resource))


def _parts(
    core: Core, ns: NamespaceId, wanted: Wanted, *, strong: bool = False
) -> Flow[tuple[Part, ...]]:
    parts = []
    for request in wanted.requests:
        ref, given = _ref(ns, request), _given(core, request)
        amounts = yield from costs.amounts(core, ref, request.consume, given, strong=strong)
        parts.append(Part(ref, amounts, given))
    return tuple(parts)


def _unmetered(core: Core, wanted: Wanted) -> tuple[Part, ...]:
    """The parts of a lease that drew nothing: what an operation costs, or how many limits there
    are, cannot be known now.
    """
    return tuple(
        Part(
            _ref(core.ns or REGISTRY, request),
            as_amounts("consume", request.consume) if costs.spelled_out(request.consume) else {},
            _given(core, request),
        )
        for request in wanted.requests
    )


def _given(core: Core, request: Request) -> LimitSet | None:
    return core.decoder.intern(LimitSet(request.limits)) if request.limits else None


def _pause(
    core: Core, error: RateLimitExceeded, max_wait: float | None, waited_ms: int
) -> float | None:
    """How long to wait before the next try; None if it would be too long or of no use.

    Never less than what the rejection asks for. The jitter on top keeps clients that were
    rejected together from coming back together.
    """
    if max_wait is None or error.retry_after is None:
        return None
    left = max_wait - waited_ms / 1000
    if error.retry_after > left:
        return None
    jitter = core.rng.uniform(0, max(0.01, 0.1 * error.retry_after))
    return max(0.001, min(left, error.retry_after + jitter))
