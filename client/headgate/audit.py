"""Audit events: who changed what, when. Kept in the table until they expire, then archived.

| PK                    | SK                                                   |
|-----------------------|------------------------------------------------------|
| {ns}/AUDIT#{subject}  | #AUDIT#{time to the millisecond}-{8 random digits}   |

The subject is the entity; `$RESOURCE:{name}` for a resource's limits, `$SYSTEM` for the system's.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from headgate.bucket import Milliseconds
from headgate.core import Core
from headgate.effects import Flow, Item
from headgate.errors import ValidationError
from headgate.limit import whole
from headgate.namespaces import opened
from headgate.schema import (
    NamespaceId,
    checked_entity,
    checked_resource,
    in_namespace,
    key,
)
from headgate.usage import MAX_PAGE, moment, query_some

AUDIT = "#AUDIT#"
SYSTEM = "$SYSTEM"
_TIME = "%Y-%m-%dT%H:%M:%S"


def subject(entity_id: str | None = None, resource: str | None = None) -> str:
    """Under whose name a change is filed. An entity's limits for a resource are the entity's."""
    if entity_id is not None:
        return checked_entity(entity_id)
    return SYSTEM if resource is None else f"$RESOURCE:{checked_resource(resource)}"


def pk_audit(ns: NamespaceId, whose: str) -> str:
    return f"{ns}/AUDIT#{whose}"


def event_time(at: datetime) -> str:
    """A time as event ids start with it: sorts as time does."""
    return f"{at.astimezone(UTC).strftime(_TIME)}.{at.microsecond // 1000:03}Z"


def new_event_id(now: Milliseconds, rng: random.Random) -> str:
    """Ordered by time, and unique: two events of one millisecond differ in what follows."""
    at = datetime.fromtimestamp(now // 1000, UTC).replace(microsecond=now % 1000 * 1000)
    return f"{event_time(at)}-{rng.getrandbits(32):08x}"


@dataclass(frozen=True, slots=True)
class AuditEvent:
    """One change. `before` and `after` hold what was and what is, None where nothing was or is."""

    event_id: str
    subject: str
    action: str
    principal: str | None = None
    resource: str | None = None
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None

    @property
    def at(self) -> datetime:
        """When it happened."""
        return datetime.fromisoformat(self.event_id.rpartition("-")[0])


@dataclass(frozen=True, slots=True)
class AuditPage:
    """Some events, the newest first, and the cursor that continues; None at the end."""

    events: tuple[AuditEvent, ...]
    cursor: str | None


def audit_item(ns: NamespaceId, event: AuditEvent, ttl: int | None) -> Item:
    """The item that stores an event until its time is up."""
    pk = pk_audit(ns, event.subject)
    item: Item = {
        **key(pk, f"{AUDIT}{event.event_id}"),
        **in_namespace(ns, pk),
        "event_id": {"S": event.event_id},
        "subject": {"S": event.subject},
        "action": {"S": event.action},
    }
    for name in ("principal", "resource"):
        if getattr(event, name) is not None:
            item[name] = {"S": getattr(event, name)}
    for name in ("before", "after"):
        if getattr(event, name) is not None:
            item[name] = {"S": json.dumps(getattr(event, name), sort_keys=True)}
    if ttl is not None:
        item["ttl"] = {"N": str(ttl)}
    return item


def read_event(item: Mapping[str, Any]) -> AuditEvent:
    """The event that an item stores."""

    def text(name: str) -> str | None:
        return item[name]["S"] if name in item else None

    before, after = text("before"), text("after")
    return AuditEvent(
        item["event_id"]["S"],
        item["subject"]["S"],
        item["action"]["S"],
        text("principal"),
        text("resource"),
        None if before is None else json.loads(before),
        None if after is None else json.loads(after),
    )


def get_audit_events(
    core: Core,
    *,
    entity_id: str | None = None,
    resource: str | None = None,
    start: datetime | None = None,
    end: datetime | None = None,
    limit: int = 100,
    cursor: str | None = None,
) -> Flow[AuditPage]:
    """What was changed about an entity, about a resource's limits, or, with neither, about the
    system, from `start` to before `end`, the newest first. The page's `cursor` continues.
    """
    if entity_id is not None and resource is not None:
        raise ValidationError(
            "give entity_id or resource: an entity's limits for a resource are filed under the "
            "entity"
        )
    whose = subject(entity_id, resource)
    low = "" if start is None else event_time(moment("start", start))
    high = "~" if end is None else event_time(moment("end", end))
    whole("limit", limit, most=MAX_PAGE)
    if cursor is not None and not low <= str(cursor) <= high:
        raise ValidationError(f"cursor is not one that this query gave: {cursor!r}")
    pk = pk_audit((yield from opened(core)), whose)
    values = {":p": pk, ":a": f"{AUDIT}{low}", ":b": f"{AUDIT}{high}"}
    query: dict[str, Any] = {
        # An event of the moment `end` has more behind its time, so it sorts after the bound.
        "KeyConditionExpression": "PK = :p AND SK BETWEEN :a AND :b",
        "ExpressionAttributeValues": {name: {"S": value} for name, value in values.items()},
        "ScanIndexForward": False,
    }
    if cursor is not None:
        query["ExclusiveStartKey"] = key(pk, f"{AUDIT}{cursor}")
    items, more = yield from query_some(core, query, limit)
    events = tuple(read_event(item) for item in items)
    return AuditPage(events, events[-1].event_id if more else None)
