"""Audit events as operators read them: who changed what, when. In the table until they expire,
then in the archive. The journal writes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from headgate.core import Core
from headgate.effects import Flow
from headgate.errors import ValidationError
from headgate.journal import (
    AUDIT,
    AuditEvent,
    audit_item,
    event_time,
    new_event_id,
    pk_audit,
    read_event,
    subject,
)
from headgate.limit import whole
from headgate.namespaces import opened
from headgate.schema import REGISTRY, key
from headgate.usage import MAX_PAGE, moment, query_some

__all__ = [
    "AUDIT",
    "AuditEvent",
    "AuditPage",
    "audit_item",
    "get_audit_events",
    "new_event_id",
    "read_event",
    "subject",
]


@dataclass(frozen=True, slots=True)
class AuditPage:
    """Some events, the newest first, and the cursor that continues; None at the end."""

    events: tuple[AuditEvent, ...]
    cursor: str | None


def get_audit_events(
    core: Core,
    *,
    entity_id: str | None = None,
    resource: str | None = None,
    namespace: str | None = None,
    start: datetime | None = None,
    end: datetime | None = None,
    limit: int = 100,
    cursor: str | None = None,
) -> Flow[AuditPage]:
    """What was changed about an entity, a resource's limits, a namespace, or, with none of them,
    about the system, from `start` to before `end`, the newest first. The page's `cursor` goes on.
    """
    if len([given for given in (entity_id, resource, namespace) if given is not None]) > 1:
        raise ValidationError(
            "give entity_id, resource or namespace, one of them: an entity's limits for a "
            "resource are filed under the entity"
        )
    whose = subject(entity_id, resource, namespace=namespace)
    low = "" if start is None else event_time(moment("start", start))
    high = "~" if end is None else event_time(moment("end", end))
    whole("limit", limit, most=MAX_PAGE)
    if cursor is not None and not low <= str(cursor) <= high:
        raise ValidationError(f"cursor is not one that this query gave: {cursor!r}")
    ns = REGISTRY if namespace is not None else (yield from opened(core))
    pk = pk_audit(ns, whose)
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
