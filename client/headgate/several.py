"""Drawing from several buckets at once: all of them or none.

An entity that cascades draws from its parent as well, and so on up to four levels. Parents
that are known are written beside the child, in one round trip; the first time, after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from headgate.acquire import Amounts, Draw, Drawn, Grant, give_back
from headgate.bucket import Millitokens
from headgate.core import Core
from headgate.effects import Flow, together
from headgate.errors import HeadgateError, RateLimitExceeded
from headgate.limit import LimitSet
from headgate.schema import Bucket, BucketRef

MAX_DEPTH = 4
MAX_BUCKETS = 25


@dataclass(frozen=True, slots=True)
class Part:
    """Some amounts of one bucket."""

    ref: BucketRef
    amounts: Amounts
    limits: LimitSet | None = None
    inherited: bool = False  # wanted because a child cascades, so limits it lacks do not apply


def take(core: Core, parts: Sequence[Part]) -> Flow[dict[BucketRef, list[Drawn]]]:
    """Draws all parts and what they cascade to. On any failure, nothing stays drawn."""
    done: dict[BucketRef, list[Drawn]] = {}
    covered: dict[BucketRef, Amounts] = {}
    pending = _joined([*parts, *_expected_parents(core, parts)])
    try:
        while pending:
            results = yield from together([_record(core, part, done) for part in pending.values()])
            errors = [result for result in results if isinstance(result, Exception)]
            if errors:
                raise _worst(errors)  # noqa: TRY301 - undone below like any other
            for ref, part in pending.items():
                covered[ref] = _added(covered.get(ref, {}), part.amounts)
            # The buckets, as they now are, say what cascades to whom.
            needed = _joined([*parts, *_parents(parts, done)])
            # What a stale view drew from the wrong parent, or too much of a shared one, goes back.
            excess = [
                ref
                for ref in done
                if ref not in needed or _lacking(covered[ref], needed[ref].amounts)
            ]
            surplus = [drawn for ref in excess for drawn in done.pop(ref)]
            for ref in excess:
                del covered[ref]  # what of it is needed all the same is drawn again
            yield from undo(core, [grant for drawn in surplus for grant in drawn.grants])
            pending = {
                ref: replace(part, amounts=left)
                for ref, part in needed.items()
                if (left := _lacking(part.amounts, covered.get(ref, {})))
            }
    except GeneratorExit:
        raise  # nobody is left to send anything
    except BaseException:
        # An interrupt as well: whatever ends this, what was drawn goes back.
        every = [grant for drawn in done.values() for one in drawn for grant in one.grants]
        yield from undo(core, every)
        raise
    return done


def undo(core: Core, grants: Iterable[Grant]) -> Flow[bool]:
    """Gives everything back, side by side. False if that is not certain for all."""
    flows = [give_back(core, grant, grant.amounts) for grant in grants]
    if not flows:
        return True
    results = yield from together(flows)
    for result in results:
        if isinstance(result, Exception) and not isinstance(result, HeadgateError):
            raise result
    return all(result is True for result in results)


def _record(core: Core, part: Part, done: dict[BucketRef, list[Drawn]]) -> Flow[Drawn]:
    draw = Draw(core, part.ref, part.amounts, limits=part.limits, subset=part.inherited)
    drawn = yield from draw.run()
    done.setdefault(part.ref, []).append(drawn)
    yield from draw.upkeep(drawn)
    return drawn


def _joined(parts: Iterable[Part]) -> dict[BucketRef, Part]:
    """One part for each bucket: amounts asked for twice are added."""
    joined: dict[BucketRef, Part] = {}
    for part in parts:
        other = joined.get(part.ref, part)
        joined[part.ref] = (
            part
            if other is part
            else Part(
                part.ref,
                _added(other.amounts, part.amounts),
                other.limits or part.limits,
                inherited=other.inherited and part.inherited,
            )
        )
    return joined


def _added(some: Amounts, more: Amounts) -> Amounts:
    return {name: Millitokens(some.get(name, 0) + more.get(name, 0)) for name in {**some, **more}}


def _lacking(wanted: Amounts, covered: Amounts) -> Amounts:
    return {
        name: Millitokens(amount - covered.get(name, 0))
        for name, amount in wanted.items()
        if amount > covered.get(name, 0)
    }


def ancestors(ref: BucketRef, seen: Callable[[BucketRef], Bucket | None]) -> list[BucketRef]:
    """The buckets that one cascades to, as far as those that were seen tell."""
    found: list[BucketRef] = []
    while len(found) < MAX_DEPTH:
        bucket = seen(ref)
        if bucket is None or not bucket.cascade or bucket.parent_id is None:
            break
        ref = ref._replace(entity_id=bucket.parent_id)
        found.append(ref)
    return found


def _expected_parents(core: Core, parts: Iterable[Part]) -> list[Part]:
    def seen(ref: BucketRef) -> Bucket | None:
        view = core.views.get(ref)
        return view.bucket if view else None

    return _inherited(parts, seen)


def _parents(parts: Iterable[Part], done: Mapping[BucketRef, Sequence[Drawn]]) -> list[Part]:
    return _inherited(parts, lambda ref: done[ref][-1].buckets[0] if ref in done else None)


def _inherited(parts: Iterable[Part], seen: Callable[[BucketRef], Bucket | None]) -> list[Part]:
    return [
        Part(ref, part.amounts, inherited=True)
        for part in parts
        for ref in ancestors(part.ref, seen)
    ]


def _worst(errors: Sequence[Exception]) -> Exception:
    """Of several failures the one to show: what is broken before what is full, and of
    rejections the one that takes longest.
    """
    for error in errors:
        if not isinstance(error, RateLimitExceeded):
            return error
    rejections = [error for error in errors if isinstance(error, RateLimitExceeded)]
    worst = max(
        rejections,
        key=lambda e: (e.retry_after is None, e.retry_after or 0.0, not e.contended),
    )
    worst.blocked = tuple(blocked for error in rejections for blocked in error.blocked)
    return worst
