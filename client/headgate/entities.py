"""Entities: who is limited, who their parent is, and whether they draw from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from headgate.core import Core, failure
from headgate.effects import Answer, Call, ConditionFailed, Flow
from headgate.errors import EntityExists, EntityNotFound, ValidationError, VersionConflict
from headgate.journal import Refused, recorded, subject
from headgate.namespaces import opened
from headgate.reads import batch_get, query
from headgate.records import Entity, entity_item, read_entity
from headgate.schema import META, NamespaceId, checked_entity, key, parse_bucket_pk, pk_entity
from headgate.several import MAX_DEPTH

MAX_NAME = 256
MAX_METADATA = 50
_UNSET: Any = object()


def create_entity(
    core: Core,
    entity_id: str,
    *,
    parent_id: str | None = None,
    cascade: bool = False,
    name: str | None = None,
    metadata: Mapping[str, str] | None = None,
) -> Flow[Entity]:
    """Records an entity. Its parent must exist. With `cascade`, what it acquires is drawn from
    its parent too. EntityExists if it is recorded already.
    """
    entity = _checked(Entity(checked_entity(entity_id), parent_id, cascade, name, metadata or {}))
    ns = yield from opened(core)
    yield from _check_parent(core, ns, entity)
    put = {
        "TableName": core.table,
        "Item": entity_item(ns, entity),
        "ConditionExpression": "attribute_not_exists(PK)",
    }
    done = yield from recorded(
        core,
        ns,
        subject(entity_id),
        "entity_created",
        [{"Put": put}],
        after=_told(entity),
    )
    if isinstance(done, Refused):
        raise EntityExists(f"the entity {entity_id!r} exists already: update_entity changes it")
    yield from _reach_buckets(core, ns, entity)
    return entity


def get_entity(core: Core, entity_id: str) -> Flow[Entity | None]:
    """The entity, read strongly; None if it is not recorded."""
    checked = checked_entity(entity_id)
    ns = yield from opened(core)
    return (yield from _read(core, ns, checked))


def update_entity(
    core: Core,
    entity_id: str,
    *,
    version: int | None = None,
    parent_id: str | None = _UNSET,
    cascade: bool = _UNSET,
    name: str | None = _UNSET,
    metadata: Mapping[str, str] = _UNSET,
) -> Flow[Entity]:
    """Changes what is given. VersionConflict if it has changed since `version`, or meanwhile.
    The entity's buckets learn of a new parent at once.
    """
    checked = checked_entity(entity_id)
    ns = yield from opened(core)
    before = yield from _read(core, ns, checked)
    if before is None:
        raise EntityNotFound(f"there is no entity {entity_id!r}")
    if version is not None and version != before.version:
        raise VersionConflict(
            f"the entity {entity_id!r} has version {before.version}, not {version}: read it again"
        )
    given = {"parent_id": parent_id, "cascade": cascade, "name": name, "metadata": metadata}
    changes: dict[str, Any] = {field: v for field, v in given.items() if v is not _UNSET}
    after = _checked(replace(before, **changes, version=before.version + 1))
    if after.parent_id != before.parent_id:
        below = yield from _height(core, checked)
        yield from _check_parent(core, ns, after, below=below)
    put = {
        "TableName": core.table,
        "Item": entity_item(ns, after),
        "ConditionExpression": "version = :v",
        "ExpressionAttributeValues": {":v": {"N": str(before.version)}},
    }
    done = yield from recorded(
        core,
        ns,
        subject(entity_id),
        "entity_updated",
        [{"Put": put}],
        before=_told(before),
        after=_told(after),
    )
    if isinstance(done, Refused):
        raise VersionConflict(f"the entity {entity_id!r} was changed by others: read it again")
    if (before.parent_id, before.cascade) != (after.parent_id, after.cascade):
        yield from _reach_buckets(core, ns, after)
    return after


def delete_entity(core: Core, entity_id: str) -> Flow[bool]:
    """Removes an entity's record; refused while it has children. Its buckets and limits stay:
    they belong to the id. False if there was none.
    """
    checked = checked_entity(entity_id)
    ns = yield from opened(core)
    children = yield from list_children(core, entity_id)
    if children:
        raise ValidationError(
            f"the entity {entity_id!r} has {len(children)} children, the first of them "
            f"{children[0].entity_id!r}: give them another parent first"
        )
    before = yield from _read(core, ns, checked)
    if before is None:
        return False
    delete = {
        "TableName": core.table,
        "Key": key(pk_entity(ns, checked), META),
        "ConditionExpression": "version = :v",
        "ExpressionAttributeValues": {":v": {"N": str(before.version)}},
    }
    done = yield from recorded(
        core,
        ns,
        subject(entity_id),
        "entity_deleted",
        [{"Delete": delete}],
        before=_told(before),
    )
    if isinstance(done, Refused):
        raise VersionConflict(f"the entity {entity_id!r} was changed by others: read it again")
    yield from _reach_buckets(core, ns, Entity(checked))
    return True


def list_children(core: Core, entity_id: str) -> Flow[list[Entity]]:
    """The entities whose parent this is, by id."""
    checked = checked_entity(entity_id)
    ns = yield from opened(core)
    items = yield from query(core, "GSI1PK = :p", f"{ns}/PARENT#{checked}", index="GSI1")
    return [read_entity(item) for item in items]


def _told(entity: Entity) -> dict[str, Any]:
    """The entity as an event shows it."""
    return {
        "parent_id": entity.parent_id,
        "cascade": entity.cascade,
        "name": entity.name,
        "metadata": dict(entity.metadata),
        "version": entity.version,
    }


def _checked(entity: Entity) -> Entity:
    """The entity, if every field is what it says: callers need not have checked their types."""
    if entity.parent_id is not None:
        checked_entity(entity.parent_id)
    cascade, name, metadata = cast(
        "tuple[Any, Any, Any]", (entity.cascade, entity.name, entity.metadata)
    )
    if not isinstance(cascade, bool):
        raise ValidationError(f"cascade must be True or False: {cascade!r}")
    if cascade and entity.parent_id is None:
        raise ValidationError("cascade needs a parent_id: there is nobody to draw from")
    if name is not None and not (isinstance(name, str) and 0 < len(name) <= MAX_NAME):
        raise ValidationError(f"name must be 1 to {MAX_NAME} characters: {name!r}")
    if (
        not isinstance(metadata, Mapping)
        or len(metadata) > MAX_METADATA
        or not all(isinstance(k, str) and isinstance(v, str) for k, v in metadata.items())
    ):
        raise ValidationError(
            f"metadata must map at most {MAX_METADATA} strings to strings: {metadata!r}"
        )
    return entity


def _read(core: Core, ns: NamespaceId, entity_id: str) -> Flow[Entity | None]:
    place = pk_entity(ns, entity_id), META
    items = yield from batch_get(core, [key(*place)], strong=True)
    return read_entity(items[place]) if place in items else None


def _height(core: Core, entity_id: str, most: int = MAX_DEPTH) -> Flow[int]:
    """How many levels there are below an entity."""
    tallest = 0
    for child in (yield from list_children(core, entity_id)) if most else ():
        tallest = max(tallest, 1 + (yield from _height(core, child.entity_id, most - 1)))
    return tallest


def _check_parent(core: Core, ns: NamespaceId, entity: Entity, *, below: int = 0) -> Flow[None]:
    """The parent exists, is no descendant, and no line from top to bottom is too long."""
    line = [entity.entity_id]
    above = entity.parent_id
    while above is not None:
        if above in line:
            raise ValidationError(
                f"{entity.parent_id!r} cannot be the parent of {entity.entity_id!r}: "
                f"{' > '.join([*line, above])} is a cycle"
            )
        if below + len(line) > MAX_DEPTH:
            raise ValidationError(
                f"an entity has at most {MAX_DEPTH} levels above it, and {entity.parent_id!r} as "
                f"parent of {entity.entity_id!r} would make it more: {' > '.join([*line, above])}"
            )
        found = yield from _read(core, ns, above)
        if found is None:
            raise EntityNotFound(f"the parent {above!r} does not exist: create it first")
        line.append(above)
        above = found.parent_id


def _reach_buckets(core: Core, ns: NamespaceId, entity: Entity) -> Flow[None]:
    """Writes the parent and cascade into the entity's buckets, all shards of all resources."""
    found = yield from query(
        core,
        "GSI3PK = :p AND begins_with(GSI3SK, :s)",
        pk_entity(ns, entity.entity_id),
        "BUCKET#",
        index="GSI3",
    )
    for item in found:
        sets: list[str] = []
        removes: list[str] = []
        values: dict[str, Any] = {}
        if entity.cascade:
            sets.append("#cascade = :c")
            values[":c"] = {"BOOL": True}
        else:
            removes.append("#cascade")
        if entity.parent_id is not None:
            sets.append("parent_id = :p")
            values[":p"] = {"S": entity.parent_id}
        else:
            removes.append("parent_id")
        update = f"SET {', '.join(sets)}" if sets else ""
        update += f" REMOVE {', '.join(removes)}" if removes else ""
        request: dict[str, Any] = {
            "TableName": core.table,
            "Key": {"PK": item["PK"], "SK": item["SK"]},
            "ConditionExpression": "attribute_exists(PK)",
            "UpdateExpression": update.strip(),
            "ExpressionAttributeNames": {"#cascade": "cascade"},  # a reserved word
        }
        if values:
            request["ExpressionAttributeValues"] = values
        (outcome,) = yield from core.call(Call("UpdateItem", request))
        if not isinstance(outcome, Answer | ConditionFailed):
            raise failure(outcome)
        ref, shard = parse_bucket_pk(item["PK"]["S"])
        core.views.forget(ref, shard)
