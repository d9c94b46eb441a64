"""Limits as stored, for those who manage them: set, get, delete, list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from headgate import config
from headgate.align import align
from headgate.core import Core, OnUnavailable, failure, policy
from headgate.effects import Answer, Call, ConditionFailed, Flow, Item
from headgate.errors import HeadgateError, ValidationError
from headgate.limit import Limit, LimitSet
from headgate.namespaces import opened
from headgate.reads import batch_get, query
from headgate.records import (
    ConfigRecord,
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
    pk_entity,
    pk_resource,
    pk_system,
)

_RETRIES = 8


def resolve_limits(core: Core, entity_id: str, resource: str) -> Flow[ResolvedLimits]:
    """The limits in force for an entity and resource, and the level that they come from."""
    ns = yield from opened(core)
    ref = BucketRef(ns, checked_entity(entity_id), checked_resource(resource))
    resolution = yield from config.resolve(core, ref)
    stored = core.stored_policy or core.settings.on_unavailable
    return ResolvedLimits(resolution.limits.limits, resolution.level, stored)


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
    ns = yield from opened(core)
    place = config_keys(ns, who, what)
    for _ in range(_RETRIES):
        items = yield from batch_get(core, [key(*place)], strong=True)
        before = read_config(items.get(place))
        record = ConfigRecord(wanted, on_unavailable, before.version + 1)
        put = Call(
            "PutItem",
            {
                "TableName": core.table,
                "Item": config_item(ns, who, what, record),
                **_unchanged(before),
            },
        )
        if (yield from _written(core, put)):
            break
    else:
        raise HeadgateError(f"the limits at {place} were changed by others {_RETRIES} times over")
    yield from _changed(core, place, record, who, what)
    return LimitsConfig(who, what, wanted.limits if wanted else (), on_unavailable, record.version)


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
    """Removes what is stored at this level; the next one answers. False if nothing was."""
    who, what = _level(entity_id, resource)
    ns = yield from opened(core)
    place = config_keys(ns, who, what)
    answer = yield from core.ask(
        Call(
            "DeleteItem",
            {"TableName": core.table, "Key": key(*place), "ReturnValues": "ALL_OLD"},
        )
    )
    yield from _changed(core, place, ConfigRecord(), who, what)
    return bool(answer.body.get("Attributes"))


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


def _unchanged(before: ConfigRecord) -> dict[str, Any]:
    if not before.version:
        return {"ConditionExpression": "attribute_not_exists(PK)"}
    return {
        "ConditionExpression": "config_version = :v",
        "ExpressionAttributeValues": {":v": {"N": str(before.version)}},
    }


def _written(core: Core, put: Call) -> Flow[bool]:
    (outcome,) = yield from core.call(put)
    if isinstance(outcome, Answer):
        return True
    if isinstance(outcome, ConditionFailed):
        return False
    raise failure(outcome)


def _changed(
    core: Core,
    place: Place,
    record: ConfigRecord,
    who: EntityId | None,
    what: Resource | None,
) -> Flow[None]:
    core.records.put(place, (core.now(), record))
    core.epoch += 1
    if who is None and what is None:
        core.stored_policy = cast("OnUnavailable | None", record.on_unavailable)
    if who is None:
        return
    assert core.ns is not None
    if what is not None:
        yield from align(core, BucketRef(core.ns, who, what))
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
        yield from align(core, BucketRef(core.ns, who, Resource(name)))
