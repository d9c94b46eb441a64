"""Limits, modes and costs as stored, for those who manage them: set, get, delete, list."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

from headgate import config
from headgate.align import align
from headgate.core import Core, OnUnavailable, policy
from headgate.costs import checked_costs, told
from headgate.effects import Flow, Item, together
from headgate.errors import HeadgateError, ValidationError
from headgate.journal import Refused, recorded, subject
from headgate.limit import Limit, LimitSet, Mode, checked_mode
from headgate.namespaces import opened
from headgate.reads import batch_get, query
from headgate.records import (
    ConfigRecord,
    Costs,
    LimitsConfig,
    Place,
    ResolvedLimits,
    config_item,
    config_keys,
    read_config,
    read_limits_config,
)
from headgate.schema import (
    CONFIG,
    BucketRef,
    EntityId,
    Resource,
    checked_entity,
    checked_resource,
    gsi3_pk_entity_config,
    key,
    parse_bucket_pk,
    pk_entity,
    pk_resource,
    pk_system,
)

_RETRIES = 8
_SIDE_BY_SIDE = 16


def resolve_limits(core: Core, entity_id: str, resource: str) -> Flow[ResolvedLimits]:
    """The limits in force for an entity and resource, and the level that they come from."""
    ns = yield from opened(core)
    ref = BucketRef(ns, checked_entity(entity_id), checked_resource(resource))
    found = yield from config.resolve(core, ref)
    stored = core.stored_policy or core.settings.on_unavailable
    return ResolvedLimits(found.limits.limits, found.level, stored, found.limits.mode)


def set_limits(
    core: Core,
    limits: Sequence[Limit],
    *,
    entity_id: str | None = None,
    resource: str | None = None,
    on_unavailable: OnUnavailable | None = None,
) -> Flow[LimitsConfig]:
    """Stores the limits of a level, replacing what it had, and brings an entity's buckets in
    line. Buckets that follow a resource's or the system's limits come in line as they are used.
    """
    who, what = _level(entity_id, resource)
    if on_unavailable is not None and not (who is None and what is None):
        raise ValidationError("on_unavailable is stored with the system's limits only")
    wanted = LimitSet(limits) if limits or on_unavailable is None else None
    if on_unavailable is not None:
        policy(on_unavailable)
    return (
        yield from _change(
            core,
            who,
            what,
            "limits_set",
            lambda before: replace(before, limits=wanted, on_unavailable=on_unavailable),
        )
    )[1]


def get_limits(
    core: Core, *, entity_id: str | None = None, resource: str | None = None
) -> Flow[LimitsConfig | None]:
    """What is stored at exactly this level, read strongly; None if nothing is."""
    who, what = _level(entity_id, resource)
    ns = yield from opened(core)
    place = config_keys(ns, who, what)
    items = yield from batch_get(core, [key(*place)], strong=True)
    return read_limits_config(items[place]) if place in items else None


def delete_limits(
    core: Core, *, entity_id: str | None = None, resource: str | None = None
) -> Flow[bool]:
    """Removes the limits of this level; the next one answers. False if it had none. Its mode and
    its costs stay: a disabled entity is not enabled by this.
    """
    before, _ = yield from _change(
        core,
        *_level(entity_id, resource),
        "limits_deleted",
        lambda before: replace(before, limits=None, on_unavailable=None),
    )
    return before.limits is not None or before.on_unavailable is not None


def set_mode(
    core: Core, mode: Mode, *, entity_id: str | None = None, resource: str | None = None
) -> Flow[LimitsConfig]:
    """Disables ("disabled": rejects all) or bypasses ("bypass": admits all, and keeps counting)
    an entity, a resource, an entity on a resource, or, with no ids, everything. "normal" limits
    again. What is disabled at any level is; otherwise, what is bypassed at any level is.
    """
    chosen = checked_mode(mode)
    who, what = _level(entity_id, resource)
    _, after = yield from _change(
        core, who, what, "mode_set", lambda before: replace(before, mode=chosen)
    )
    if who is None:
        # A switch works now, for whoever holds a cached configuration as well.
        yield from _reach_all(core, what)
    return after


def set_costs(core: Core, costs: Costs, *, resource: str) -> Flow[LimitsConfig]:
    """Names operations of a resource and what each takes, replacing what it had. Then
    `consume="export"` stands for `{"rpm": 1, "units": 100}`.
    """
    checked = checked_costs(costs)
    return (
        yield from _change(
            core,
            None,
            checked_resource(resource),
            "costs_set",
            lambda before: replace(before, costs=checked),
        )
    )[1]


def list_limits(
    core: Core, *, entity_id: str | None = None, resource: str | None = None
) -> Flow[list[LimitsConfig]]:
    """Stored limits: of one entity; of one resource and the entities with their own for it; or,
    with no ids, of the system and all resources.
    """
    ns = yield from opened(core)
    keys: list[Item]
    if entity_id is not None:
        pk = pk_entity(ns, checked_entity(entity_id))
        items = yield from query(core, "PK = :p AND begins_with(SK, :s)", pk, f"{CONFIG}#")
        keys = [key(pk, item["SK"]["S"]) for item in items]
        if resource is not None:
            keys = [k for k in keys if k["SK"]["S"] == f"{CONFIG}#{checked_resource(resource)}"]
    elif resource is not None:
        name = checked_resource(resource)
        own = yield from query(core, "GSI3PK = :p", gsi3_pk_entity_config(ns, name), index="GSI3")
        keys = [key(pk_resource(ns, name), CONFIG), *({k: i[k] for k in ("PK", "SK")} for i in own)]
    else:
        found = yield from query(
            core,
            "GSI4PK = :p AND begins_with(GSI4SK, :s)",
            ns,
            pk_resource(ns, ""),
            index="GSI4",
        )
        keys = [key(pk_system(ns), CONFIG), *({k: i[k] for k in ("PK", "SK")} for i in found)]
    stored = yield from batch_get(core, keys, strong=True)
    return [read_limits_config(item) for _, item in sorted(stored.items())]


def _level(entity_id: str | None, resource: str | None) -> tuple[EntityId | None, Resource | None]:
    return (
        None if entity_id is None else checked_entity(entity_id),
        None if resource is None else checked_resource(resource),
    )


def _change(
    core: Core,
    who: EntityId | None,
    what: Resource | None,
    action: str,
    edit: Callable[[ConfigRecord], ConfigRecord],
) -> Flow[tuple[ConfigRecord, LimitsConfig]]:
    """Edits a level's record, as it is now, and files it. What it was, and what it is."""
    ns = yield from opened(core)
    place = config_keys(ns, who, what)
    for _ in range(_RETRIES):
        items = yield from batch_get(core, [key(*place)], strong=True)
        before = read_config(items.get(place))
        after = replace(edit(before), version=before.version + 1)
        if before.empty and after.empty:
            break
        done = yield from recorded(
            core,
            ns,
            subject(who, what),
            action,
            [_store(core, config_item(ns, who, what, after), before, gone=after.empty)],
            resource=what,
            before=_told(before),
            after=_told(after),
        )
        if not isinstance(done, Refused):
            break
    else:
        raise HeadgateError(f"the limits at {place} were changed by others {_RETRIES} times over")
    stored = ConfigRecord() if after.empty else after
    yield from _changed(core, place, stored, who, what, mode_only=before.mode != after.mode)
    limits = after.limits.limits if after.limits else ()
    return before, LimitsConfig(
        who, what, limits, after.on_unavailable, after.version, after.mode, after.costs
    )


def _store(core: Core, item: Item, before: ConfigRecord, *, gone: bool) -> dict[str, Any]:
    unchanged: dict[str, Any] = {"ConditionExpression": "attribute_not_exists(PK)"}
    if before.version:
        unchanged = {
            "ConditionExpression": "config_version = :v",
            "ExpressionAttributeValues": {":v": {"N": str(before.version)}},
        }
    if gone:
        place = {"PK": item["PK"], "SK": item["SK"]}
        return {"Delete": {"TableName": core.table, "Key": place, **unchanged}}
    return {"Put": {"TableName": core.table, "Item": item, **unchanged}}


def _told(record: ConfigRecord) -> dict[str, Any]:
    """The record as an event shows it."""
    shown: dict[str, Any] = {}
    if record.limits:
        shown["limits"] = {
            limit.name: {
                "capacity": limit.capacity,
                "refill_amount": limit.refill_amount,
                "refill_period": limit.refill_period,
            }
            for limit in record.limits.limits
        }
    if record.on_unavailable is not None:
        shown["on_unavailable"] = record.on_unavailable
    if record.mode != "normal":
        shown["mode"] = record.mode
    if record.costs:
        shown["costs"] = told(record.costs)
    return shown


def _reach_all(core: Core, what: Resource | None) -> Flow[None]:
    """Brings all buckets of a resource, or of the namespace, in line."""
    assert core.ns is not None
    index, partition, prefix = "GSI4", str(core.ns), f"{core.ns}/BUCKET#"
    if what is not None:
        index, partition, prefix = "GSI2", pk_resource(core.ns, what), "BUCKET#"
    condition = f"{index}PK = :p AND begins_with({index}SK, :s)"
    items = yield from query(core, condition, partition, prefix, index=index)
    refs = list(dict.fromkeys(parse_bucket_pk(item["PK"]["S"])[0] for item in items))
    for start in range(0, len(refs), _SIDE_BY_SIDE):
        some = refs[start : start + _SIDE_BY_SIDE]
        results = yield from together([align(core, ref, mode_only=True) for ref in some])
        for result in results:
            if isinstance(result, Exception):
                raise result


def _changed(
    core: Core,
    place: Place,
    record: ConfigRecord,
    who: EntityId | None,
    what: Resource | None,
    *,
    mode_only: bool,
) -> Flow[None]:
    core.records.put(place, (core.now(), record))
    core.epoch += 1
    if who is None and what is None:
        core.stored_policy = cast("OnUnavailable | None", record.on_unavailable)
    if who is None:
        return
    assert core.ns is not None
    if what is not None:
        yield from align(core, BucketRef(core.ns, who, what), mode_only=mode_only)
        return
    buckets = yield from query(
        core,
        "GSI3PK = :p AND begins_with(GSI3SK, :s)",
        pk_entity(core.ns, who),
        "BUCKET#",
        index="GSI3",
    )
    names = {item["GSI3SK"]["S"].split("#")[1] for item in buckets}
    for name in sorted(names):
        yield from align(core, BucketRef(core.ns, who, Resource(name)), mode_only=mode_only)
