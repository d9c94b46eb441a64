"""A change and the event that tells of it: one transaction, so there is never one without the
other.

| PK                    | SK                                                   |
|-----------------------|------------------------------------------------------|
| {ns}/AUDIT#{subject}  | #AUDIT#{time to the millisecond}-{order and chance}  |

The subject is the entity; `$RESOURCE:{name}` for a resource's limits, `$SYSTEM` for the system's.
What happens to a namespace is filed in the registry, under `$NAMESPACE:{name}`: it outlives it.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from headgate.bucket import Milliseconds
from headgate.core import Core, failure
from headgate.effects import Answer, Call, Conflicted, Flow, Item, Pause, TransactionFailed
from headgate.errors import RateLimiterUnavailable
from headgate.reads import batch_get
from headgate.schema import (
    NamespaceId,
    checked_entity,
    checked_resource,
    in_namespace,
    key,
    namespace_name,
)

AUDIT = "#AUDIT#"
SYSTEM = "$SYSTEM"
UNKNOWN = "unknown"
MAX_PRINCIPAL = 512
_TIME = "%Y-%m-%dT%H:%M:%S"
_ROUNDS = 8
_DAY = 86_400


def subject(
    entity_id: str | None = None, resource: str | None = None, *, namespace: str | None = None
) -> str:
    """Under whose name a change is filed. An entity's limits for a resource are the entity's."""
    if namespace is not None:
        return f"$NAMESPACE:{namespace_name(namespace)}"
    if entity_id is not None:
        # No entity is filed where the system is, whatever it is called.
        return f"${entity_id}" if checked_entity(entity_id).startswith("$") else entity_id
    return SYSTEM if resource is None else f"$RESOURCE:{checked_resource(resource)}"


def pk_audit(ns: NamespaceId, whose: str) -> str:
    return f"{ns}/AUDIT#{whose}"


def event_time(at: datetime) -> str:
    """A time as event ids start with it: sorts as time does."""
    return f"{at.astimezone(UTC).strftime(_TIME)}.{at.microsecond // 1000:03}Z"


def new_event_id(now: Milliseconds, rng: random.Random, turn: int = 0) -> str:
    """Ordered by time, and unique: of two events of one millisecond, the one whose `turn` is
    later follows, and those of different clients differ in what follows that.
    """
    at = datetime.fromtimestamp(now // 1000, UTC).replace(microsecond=now % 1000 * 1000)
    return f"{event_time(at)}-{turn:04x}{rng.getrandbits(32):08x}"


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


def principal(core: Core) -> Flow[str]:
    """Who makes the changes: what the limiter was told, or else whose credentials these are,
    asked once. That nobody answers is no reason not to change anything.
    """
    given = core.settings.principal
    if given is not None:
        return str(given() if callable(given) else given)[:MAX_PRINCIPAL] or UNKNOWN
    if core.identity.name is None:
        # Not through core.call: it concerns another service, and must not move the breaker.
        (outcome,) = yield (Call("GetCallerIdentity", {}, service="sts"),)
        told = outcome.body.get("Arn") if isinstance(outcome, Answer) else None
        core.identity.name = str(told or UNKNOWN)[:MAX_PRINCIPAL]
    return core.identity.name


@dataclass(frozen=True, slots=True)
class Refused:
    """The transaction was not done: what each of the change's actions found, in their order."""

    reasons: tuple[tuple[str, Item | None], ...]

    def failed(self, position: int = 0) -> bool:
        """Whether this action's condition did not hold."""
        return self.reasons[position][0] == "ConditionalCheckFailed"


def recorded(
    core: Core,
    ns: NamespaceId,
    whose: str,
    action: str,
    actions: Sequence[Mapping[str, Any]],
    *,
    resource: str | None = None,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
) -> Flow[AuditEvent | Refused]:
    """Makes a change and files its event, both or neither."""
    if not core.version_checked:
        yield from batch_get(core, [])
    who = yield from principal(core)
    now = core.now()
    event = AuditEvent(
        _next_id(core, now), whose, action, who, resource, before or None, after or None
    )
    expires = now // 1000 + core.settings.audit_days * _DAY
    put = {"TableName": core.table, "Item": audit_item(ns, event, expires)}
    refused = yield from transact(core, [*actions, {"Put": put}])
    return event if refused is None else refused


def _next_id(core: Core, now: Milliseconds) -> str:
    last, turn = core.filed
    # What one client does stays in order, should its clock be set back a little meanwhile too.
    core.filed = (last, turn + 1) if now <= last < now + 1000 else (now, 0)
    return new_event_id(core.filed[0], core.rng, core.filed[1])


def transact(core: Core, actions: Sequence[Mapping[str, Any]]) -> Flow[Refused | None]:
    """One transaction. Tried again while others hold one of the items."""
    request = Call(
        "TransactWriteItems",
        {
            "TransactItems": list(actions),
            "ClientRequestToken": f"{core.unique.getrandbits(128):032x}",
        },
    )
    for attempt in range(_ROUNDS):
        (outcome,) = yield from core.call(request)
        match outcome:
            case Answer():
                return None
            case TransactionFailed(reasons):
                return Refused(reasons)
            case Conflicted():
                yield Pause(0.01 * 2**attempt)
            case _:
                raise failure(outcome)
    raise RateLimiterUnavailable("others keep changing the same record", throttled=True)
