"""Usage snapshots: each record counted once, each snapshot written once for a batch.

A snapshot keeps, for each shard of the bucket, what it has counted. The write says: provided
that you have counted up to here, or nothing yet, add this. It is sent without reading first; when
it fails, it brings back what was counted, and what is not yet is added to that.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from aggregator.records import BucketChange
from aggregator.seen import Span, Spans, bounded, cover, covers, read, sortable, written
from headgate.core import Core, failure
from headgate.effects import Answer, Call, ConditionFailed, Conflicted, Flow, Item, Pause, Throttled
from headgate.errors import RateLimiterUnavailable
from headgate.reads import batch_get
from headgate.usage import COUNTER, SnapshotRef, Window

AT_ONCE = 32  # writes under way together
_SHARDS = 16  # of a bucket in one write: DynamoDB takes 4 KB of expression and 300 operators
_ROUNDS = 8
_FIRST_PAUSE = 0.05


@dataclass(frozen=True, slots=True)
class Tally:
    """What a batch adds to one snapshot. `known` is what the snapshot has counted; None: unread."""

    ref: SnapshotRef
    sources: Mapping[int, tuple[BucketChange, ...]]
    known: Mapping[int, Spans] | None = None

    @property
    def changes(self) -> Iterator[BucketChange]:
        """All records that it holds."""
        return (change for changes in self.sources.values() for change in changes)

    @property
    def whole(self) -> bool:
        """Whether each shard's records follow one another, so that they can be added unread."""
        return all(len(cover((), changes)) == 1 for changes in self.sources.values())

    def against(self, item: Item | None) -> Tally:
        """What is left of it, given the snapshot's item."""
        known = {shard: read(shard, item) for shard in self.sources}
        left = {
            shard: tuple(c for c in changes if not covers(known[shard], c.sequence))
            for shard, changes in self.sources.items()
        }
        return replace(self, sources={s: c for s, c in left.items() if c}, known=known)


def fold(changes: Iterable[BucketChange], windows: Sequence[Window]) -> list[Tally]:
    """The snapshots that these records count in: by the time of the record, in every window."""
    found: dict[tuple[SnapshotRef, int], dict[int, dict[int, BucketChange]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for change in changes:
        if not change.counts:
            continue
        moment = datetime.fromtimestamp(change.at / 1000, UTC)
        for window in windows:
            ref = SnapshotRef.at(*change.ref, window, moment)
            # A batch may hold a record twice.
            found[ref, change.shard // _SHARDS][change.shard][change.sequence] = change
    tallies = []
    for (ref, _), sources in found.items():
        counting = {
            shard: tuple(records[sequence] for sequence in sorted(records))
            for shard, records in sources.items()
            if any(change.drawn for change in records.values())
        }
        if counting:
            tallies.append(Tally(ref, counting))
    return tallies


def request(table: str, tally: Tally, retention_days: int) -> Call:
    """The write that counts a tally, provided that the snapshot has not, nor anything since."""
    conditions: list[str] = []
    sets: list[str] = []
    removes: list[str] = []
    values: dict[str, Any] = {}
    for shard, changes in sorted(tally.sources.items()):
        known = None if tally.known is None else tally.known[shard]
        after = bounded(cover(known or (), changes))
        stored = written(shard, after)
        values |= {f":{name}": {"S": value} for name, value in stored.items()}
        if known is None:
            (span,) = after
            conditions.append(_follows(shard, span, values))
            sets += [f"hi_{shard} = :hi_{shard}", f"ln_{shard} = :ln_{shard}"]
            sets.append(f"lo_{shard} = if_not_exists(lo_{shard}, :lo_{shard})")
        else:
            conditions.append(_unchanged(shard, known, values))
            sets += [f"{name} = :{name}" for name in stored]
            if f"gp_{shard}" not in stored and len(known) > 1:
                removes.append(f"gp_{shard}")
    identity: Item = {**tally.ref.identity(), "ttl": {"N": str(tally.ref.expires(retention_days))}}
    for name, typed in identity.items():
        values[f":_{name}"] = typed
        sets.append(f"#{name} = :_{name}")
    adds = _counters(tally, values)
    update = f"SET {', '.join(sets)} ADD {', '.join(adds)}"
    if removes:
        update += f" REMOVE {', '.join(removes)}"
    return Call(
        "UpdateItem",
        {
            "TableName": table,
            "Key": tally.ref.key,
            "ConditionExpression": " AND ".join(conditions),
            "UpdateExpression": update,
            "ExpressionAttributeNames": {f"#{name}": name for name in identity},
            "ExpressionAttributeValues": values,
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        },
    )


def _follows(shard: int, span: Span, values: dict[str, Any]) -> str:
    """Nothing was counted, or all up to the record before this span."""
    values[f":first_{shard}"] = {"S": sortable(span.first.sequence)}
    values[f":from_{shard}"] = {"S": span.first.link}
    up_to_here = f"hi_{shard} < :first_{shard} AND ln_{shard} = :from_{shard}"
    return f"(attribute_not_exists(hi_{shard}) OR ({up_to_here}))"


def _unchanged(shard: int, known: Spans, values: dict[str, Any]) -> str:
    """What was counted only ever grows, so its marks are the same only if all of it is. Where
    there is no gap, none appears without moving an end.
    """
    if not known:
        return f"attribute_not_exists(hi_{shard})"
    stored = written(shard, known)
    for name, value in stored.items():
        values[f":was_{name}"] = {"S": value}
    return " AND ".join(f"{name} = :was_{name}" for name in stored)


def _counters(tally: Tally, values: dict[str, Any]) -> list[str]:
    drawn: Counter[str] = Counter()
    acquires = 0
    for change in tally.changes:
        amounts = change.drawn
        acquires += any(amount > 0 for amount in amounts.values())
        for name, amount in amounts.items():
            drawn[name] += amount
    values[":acquires"] = {"N": str(acquires)}
    adds = ["acquires :acquires"]
    for i, (name, total) in enumerate(sorted(drawn.items())):
        values[f":u{i}"] = {"N": str(total)}
        adds.append(f"{COUNTER}{name} :u{i}")
    return adds


@dataclass(slots=True)
class Counted:
    """How a batch went."""

    written: int = 0
    replayed: int = 0
    failed: list[tuple[Tally, Exception]] = field(default_factory=list)


def count(core: Core, tallies: Sequence[Tally], retention_days: int) -> Flow[Counted]:
    """Writes the snapshots, many at once. What fails does so by itself."""
    counted = Counted()
    pending = yield from _read_first(core, tallies)
    for attempt in range(_ROUNDS):
        left: list[Tally] = []
        throttled = False
        for start in range(0, len(pending), AT_ONCE):
            some = pending[start : start + AT_ONCE]
            calls = [request(core.table, tally, retention_days) for tally in some]
            outcomes = yield from core.call(*calls)
            for tally, outcome in zip(some, outcomes, strict=True):
                match outcome:
                    case Answer():
                        counted.written += 1
                    case ConditionFailed(item):
                        rest = tally.against(item)
                        if rest.sources:
                            left.append(rest)
                        else:
                            counted.replayed += 1
                    case Throttled() | Conflicted():
                        left.append(tally)
                        throttled = True
                    case _:
                        counted.failed.append((tally, failure(outcome)))
        pending = left
        if not pending:
            return counted
        if throttled:
            yield Pause(_FIRST_PAUSE * 2**attempt)
    busy = RateLimiterUnavailable("writes of usage snapshots are throttled")
    counted.failed += [(tally, busy) for tally in pending]
    return counted


def _read_first(core: Core, tallies: Sequence[Tally]) -> Flow[list[Tally]]:
    """Those with gaps in them, after a record that could not be read, need to know the snapshot."""
    broken = [tally.ref.key for tally in tallies if not tally.whole]
    if not broken:
        return list(tallies)
    items = yield from batch_get(core, broken, strong=True)
    places = {tally.ref: (tally.ref.key["PK"]["S"], tally.ref.key["SK"]["S"]) for tally in tallies}
    read_ones = [
        tally if tally.whole else tally.against(items.get(places[tally.ref])) for tally in tallies
    ]
    return [tally for tally in read_ones if tally.sources]
