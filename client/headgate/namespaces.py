"""The registry of namespaces: a name for people, an opaque id in every key.

Two records, kept consistent by transactions: the name leads to the id, and the id to its
name. Deleting a namespace removes the first and marks the second, so that nothing that it
held can be reached by name, and all of it comes back by `recover_namespace` until it is purged.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any

from headgate.core import Core
from headgate.effects import Call, Flow, Item, Pause
from headgate.errors import NamespaceNotFound, RateLimiterUnavailable, ValidationError
from headgate.journal import Refused, recorded, subject
from headgate.reads import batch_get, query
from headgate.schema import (
    REGISTRY,
    NamespaceId,
    in_namespace,
    key,
    namespace_id,
    namespace_name,
    pk_system,
)
from headgate.versions import Version, version_item

DEFAULT_NAME = "default"
_PK = pk_system(REGISTRY)
_FORWARD, _REVERSE = "#NAMESPACE#", "#NSID#"
_BATCH = 25
_ROUNDS = 8


@dataclass(frozen=True, slots=True)
class Namespace:
    """A namespace: `deleted_at` is set once it is deleted and can still be recovered, `purged_at`
    once its purge has begun and it no longer can.
    """

    name: str
    id: str
    created_at: str
    deleted_at: str | None = None
    purged_at: str | None = None


@dataclass(frozen=True, slots=True)
class Purged:
    """How far a purge got. Not `done`: call again, it goes on where it stopped."""

    deleted: int
    done: bool


def opened(core: Core) -> Flow[NamespaceId]:
    """The id of the limiter's namespace, looked up once. `default` is made on first use."""
    if core.ns is None:
        name = core.settings.namespace
        found = yield from get_namespace(core, name)
        if found is None:
            if name != DEFAULT_NAME:
                raise NamespaceNotFound(
                    f"there is no namespace {name!r}: make it with register_namespace({name!r})"
                )
            found = yield from register_namespace(core, name)
        core.ns = NamespaceId(found.id)
    return core.ns


def register_namespace(core: Core, name: str) -> Flow[Namespace]:
    """Makes a namespace, or finds the one that has the name already."""
    found = yield from get_namespace(core, name)
    if found is not None:
        return found
    made = Namespace(name, secrets.token_urlsafe(8), _now(core))
    ns = NamespaceId(made.id)
    version = {"Put": {"TableName": core.table, "Item": version_item(ns, Version())}}
    done = yield from _transact(
        core,
        "namespace_registered",
        None,
        made,
        _put(core, _FORWARD + name, made, "attribute_not_exists(PK)"),
        _put(core, _REVERSE + made.id, made, "attribute_not_exists(PK)"),
        version,
    )
    if done:
        return made
    # Another client registered it at this moment: whoever was first, both have the same.
    found = yield from get_namespace(core, name)
    if found is None:
        raise NamespaceNotFound(f"the namespace {name!r} was deleted while it was registered")
    return found


def get_namespace(core: Core, name: str) -> Flow[Namespace | None]:
    """The namespace of this name; None if there is none."""
    place = _PK, _FORWARD + namespace_name(name)
    items = yield from batch_get(core, [key(*place)], strong=True)
    return _read(items[place]) if place in items else None


def list_namespaces(core: Core) -> Flow[list[Namespace]]:
    """All namespaces that are in use, by name."""
    items = yield from query(core, "PK = :p AND begins_with(SK, :s)", _PK, _FORWARD)
    return [_read(item) for item in items]


def list_orphans(core: Core) -> Flow[list[Namespace]]:
    """Namespaces that were deleted and are neither recovered nor purged."""
    items = yield from query(core, "PK = :p AND begins_with(SK, :s)", _PK, _REVERSE)
    return [found for found in map(_read, items) if found.deleted_at is not None]


def delete_namespace(core: Core, name: str) -> Flow[bool]:
    """Deletes a namespace; False if there is none. Its items stay until it is purged, and
    `recover_namespace` brings it back. Clients that have it open go on until they are new.
    """
    found = yield from get_namespace(core, name)
    if found is None:
        return False
    gone = Namespace(found.name, found.id, found.created_at, _now(core))
    remove = {
        "Delete": {
            "TableName": core.table,
            "Key": key(_PK, _FORWARD + name),
            "ConditionExpression": "namespace_id = :id",
            "ExpressionAttributeValues": {":id": {"S": found.id}},
        }
    }
    return (
        yield from _transact(
            core,
            "namespace_deleted",
            found,
            gone,
            remove,
            _put(core, _REVERSE + found.id, gone, "attribute_exists(PK)"),
        )
    )


def recover_namespace(core: Core, id: str) -> Flow[Namespace]:  # noqa: A002 - the field's name
    """Brings a deleted namespace back under its name, which must be free."""
    place = _PK, _REVERSE + namespace_id(id)
    items = yield from batch_get(core, [key(*place)], strong=True)
    if place not in items:
        raise NamespaceNotFound(f"there is no namespace with the id {id!r}")
    gone = _read(items[place])
    back = Namespace(gone.name, gone.id, gone.created_at)
    if gone.deleted_at is None:
        return back
    if gone.purged_at is not None:
        raise ValidationError(
            f"the namespace {id!r} is being purged since {gone.purged_at}: part of it is gone"
        )
    done = yield from _transact(
        core,
        "namespace_recovered",
        gone,
        back,
        _put(core, _FORWARD + back.name, back, "attribute_not_exists(PK)"),
        _put(
            core,
            _REVERSE + back.id,
            back,
            "attribute_exists(PK) AND attribute_not_exists(purged_at)",
        ),
    )
    if not done:
        raise ValidationError(
            f"the name {gone.name!r} belongs to another namespace now: delete that one first"
        )
    return back


def purge_namespace(core: Core, id: str, *, limit: int | None = None) -> Flow[Purged]:  # noqa: A002
    """Deletes everything that a deleted namespace held, at most `limit` items at a call, and at
    last its record. Cannot be undone.
    """
    place = _PK, _REVERSE + namespace_id(id)
    items = yield from batch_get(core, [key(*place)], strong=True)
    if place not in items:
        raise NamespaceNotFound(f"there is no namespace with the id {id!r}")
    gone = _read(items[place])
    if gone.deleted_at is None:
        raise ValidationError(f"the namespace {id!r} is in use: delete it before it is purged")
    if gone.purged_at is None:
        # From here on it cannot be recovered, however far this call gets.
        marked = replace(gone, purged_at=_now(core))
        put = _put(core, place[1], marked, "attribute_exists(deleted_at)")
        if not (yield from _transact(core, "namespace_purge_begun", gone, marked, put)):
            raise ValidationError(f"the namespace {id!r} was recovered meanwhile")
        gone = marked
    found = yield from query(core, "GSI4PK = :p", id, index="GSI4", limit=limit)
    keys = [{"PK": item["PK"], "SK": item["SK"]} for item in found]
    for start in range(0, len(keys), _BATCH):
        yield from _delete(core, keys[start : start + _BATCH])
    if limit is not None and len(keys) >= limit:
        return Purged(len(keys), done=False)
    last = {"Delete": {"TableName": core.table, "Key": key(*place)}}
    yield from _transact(core, "namespace_purged", gone, None, last)
    return Purged(len(keys), done=True)


def _delete(core: Core, keys: list[Item]) -> Flow[None]:
    pending: dict[str, Any] = {core.table: [{"DeleteRequest": {"Key": k}} for k in keys]}
    for attempt in range(_ROUNDS):
        if attempt:
            yield Pause(0.02 * 2**attempt)
        answer = yield from core.ask(Call("BatchWriteItem", {"RequestItems": pending}))
        pending = answer.body.get("UnprocessedItems") or {}
        if not pending:
            return
    raise RateLimiterUnavailable("deletes are throttled: call again to go on")


def _transact(
    core: Core,
    action: str,
    before: Namespace | None,
    after: Namespace | None,
    *actions: dict[str, Any],
) -> Flow[bool]:
    """A change of the registry. Its event is kept there too: it outlives the namespace."""
    about = after or before
    assert about is not None
    done = yield from recorded(
        core,
        REGISTRY,
        subject(namespace=about.name),
        action,
        actions,
        before=asdict(before) if before else None,
        after=asdict(after) if after else None,
    )
    return not isinstance(done, Refused)


def _put(core: Core, sk: str, namespace: Namespace, condition: str) -> dict[str, Any]:
    item: Item = {
        **key(_PK, sk),
        **in_namespace(REGISTRY, _PK),
        "name": {"S": namespace.name},
        "namespace_id": {"S": namespace.id},
        "created_at": {"S": namespace.created_at},
    }
    for name in ("deleted_at", "purged_at"):
        if getattr(namespace, name) is not None:
            item[name] = {"S": getattr(namespace, name)}
    return {"Put": {"TableName": core.table, "Item": item, "ConditionExpression": condition}}


def _read(item: Mapping[str, Any]) -> Namespace:
    return Namespace(
        item["name"]["S"],
        item["namespace_id"]["S"],
        item["created_at"]["S"],
        item["deleted_at"]["S"] if "deleted_at" in item else None,
        item["purged_at"]["S"] if "purged_at" in item else None,
    )


def _now(core: Core) -> str:
    return datetime.fromtimestamp(core.now() / 1000, UTC).isoformat(timespec="milliseconds")
