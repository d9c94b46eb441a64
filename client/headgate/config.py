"""Limits as stored: which level answers for an entity and resource, and the cache of levels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from headgate.bucket import Milliseconds
from headgate.core import CacheStats, Core, OnUnavailable
from headgate.effects import Call, Flow, Item
from headgate.errors import LimitsNotFound
from headgate.limit import MODES, LimitSet
from headgate.reads import batch_get
from headgate.records import (
    ConfigRecord,
    Entity,
    Level,
    Place,
    config_keys,
    read_config,
    read_entity,
    resolution_keys,
)
from headgate.schema import META, BucketRef, key, pk_entity


@dataclass(frozen=True, slots=True)
class Resolution:
    """Limits in force, shared instance, and where they are from."""

    limits: LimitSet
    level: Level


def known(
    core: Core, ref: BucketRef, now: Milliseconds, explicit: LimitSet | None = None
) -> Resolution | None:
    """The resolution, if the cache holds all that it takes."""
    return _answer(core, ref, _cached(core, ref, now), explicit)


def as_of(core: Core, ref: BucketRef, now: Milliseconds) -> Milliseconds:
    """When the oldest of what the cache holds for this bucket was read: limits that were taken
    from it may have changed since then.
    """
    oldest = now - int(core.settings.config_ttl * 1000)
    read = [entry[0] for place, _ in _places(ref) if (entry := core.records.get(place))]
    return min((at for at in read if at > oldest), default=now)


def guess(core: Core, ref: BucketRef, now: Milliseconds) -> LimitSet | None:
    """The limits of an entity that has none of its own, if the cache holds the defaults.

    Safe to act on: a bucket with other limits has another fingerprint and refuses the write.
    """
    cached = _cached(core, ref, now)
    if any(cached[place] is None for place, level in _places(ref) if level in _SHARED):
        return None
    resolution = _answer(
        core, ref, {place: record or ConfigRecord() for place, record in cached.items()}
    )
    return resolution.limits if resolution else None


def resolve(
    core: Core, ref: BucketRef, explicit: LimitSet | None = None, *, strong: bool = False
) -> Flow[Resolution]:
    """The limits in force, in at most one BatchGetItem. `strong` reads them all anew. Limits that
    the caller gave are in force as given, in the mode that is stored.
    """
    cached = _cached(core, ref, core.now(), count=True)
    missing = [place for place, record in cached.items() if strong or record is None]
    if missing:
        items = yield from batch_get(core, [key(*place) for place in missing], strong=strong)
        cached.update(absorb(core, missing, items))
    return _found(core, ref, cached, explicit)


def warm(core: Core, ref: BucketRef, *, strong: bool = False) -> Flow[None]:
    """Reads the configuration without asking whether it holds limits."""
    cached = _cached(core, ref, core.now())
    missing = [place for place, record in cached.items() if strong or record is None]
    items = yield from batch_get(core, [key(*place) for place in missing], strong=strong)
    absorb(core, missing, items)


def for_creation(
    core: Core, ref: BucketRef, explicit: LimitSet | None
) -> Flow[tuple[LimitSet, Entity | None]]:
    """What it takes to make a bucket: its limits and its entity's record, in one read. All of
    it strongly: what the cache remembers may have changed, and a bucket is made only once.
    """
    places = [place for place, _ in _places(ref)]
    meta = pk_entity(ref.ns, ref.entity_id), META
    items = yield from batch_get(core, [key(*place) for place in (*places, meta)], strong=True)
    read = absorb(core, places, items)
    entity = read_entity(items[meta]) if meta in items else None
    return _found(core, ref, read, explicit).limits, entity


def refresh(core: Core, ref: BucketRef, now: Milliseconds) -> tuple[Call, list[Place]] | None:
    """The read that brings the cache up to date for this bucket, to be sent beside a write."""
    missing = [place for place, record in _cached(core, ref, now).items() if record is None]
    if not missing:
        return None
    keys = {"Keys": [key(*place) for place in missing]}
    return Call("BatchGetItem", {"RequestItems": {core.table: keys}}), missing


def absorb(
    core: Core, places: Iterable[Place], items: Mapping[Place, Item]
) -> dict[Place, ConfigRecord | None]:
    """Takes what was read into the cache: an item that is not there is known not to be."""
    now = core.now()
    read: dict[Place, ConfigRecord | None] = {}
    for place in places:
        record = read_config(items.get(place))
        read[place] = record
        core.records.put(place, (now, record))
        if core.ns is not None and place == config_keys(core.ns, None, None):
            core.stored_policy = cast("OnUnavailable | None", record.on_unavailable)
    return read


_SHARED = ("resource", "system")
_CALL: Level = "call"


def _places(ref: BucketRef) -> Sequence[tuple[Place, Level]]:
    return resolution_keys(ref.ns, ref.entity_id, ref.resource)


def _cached(
    core: Core, ref: BucketRef, now: Milliseconds, *, count: bool = False
) -> dict[Place, ConfigRecord | None]:
    oldest = now - int(core.settings.config_ttl * 1000)
    found: dict[Place, ConfigRecord | None] = {}
    for place, _ in _places(ref):
        entry = core.records.get(place)
        found[place] = entry[1] if entry is not None and entry[0] > oldest else None
    if count:
        misses = sum(record is None for record in found.values())
        core.misses += misses
        core.hits += len(found) - misses
    return found


def _found(
    core: Core,
    ref: BucketRef,
    cached: Mapping[Place, ConfigRecord | None],
    explicit: LimitSet | None = None,
) -> Resolution:
    resolution = _answer(core, ref, cached, explicit)
    if resolution is None:
        raise LimitsNotFound(
            f"no limits for entity {ref.entity_id!r} on resource {ref.resource!r}: set them with "
            "set_limits(), pass limits= to the call, or give the limiter defaults"
        )
    return resolution


def _answer(
    core: Core,
    ref: BucketRef,
    cached: Mapping[Place, ConfigRecord | None],
    explicit: LimitSet | None = None,
) -> Resolution | None:
    records = [(record, level) for place, level in _places(ref) if (record := cached[place])]
    if len(records) < len(cached):
        return None
    limits, level = explicit, _CALL
    if limits is None:
        having = ((record.limits, level) for record, level in records if record.limits)
        limits, level = next(having, (core.defaults, "constructor"))
    if limits is None:
        return None
    # Whoever is disabled at any level is: a switch that an exception could undo is none.
    mode = min((record.mode for record, _ in records), key=MODES.index)
    return Resolution(core.decoder.intern(limits.in_mode(mode)), level)


def cache_stats(core: Core) -> CacheStats:
    """Hits, misses and size of the configuration cache."""
    return CacheStats(core.hits, core.misses, len(core.records))


def invalidate(core: Core) -> None:
    """Forgets all cached configuration: the next acquire of each bucket reads it anew."""
    core.records.clear()
    core.epoch += 1
