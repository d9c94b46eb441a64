"""What is limited where requests enter, and what callers are told: decided here, sent elsewhere.

An adapter asks `requests(incoming)` what to acquire, hands a failure to `refusal(...)`, puts
`headers(lease)` on the answer and adjusts the lease by `correction(...)`. It decides nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from headgate.core import OnUnavailable, policy, seconds
from headgate.costs import Consume, checked_consume
from headgate.errors import (
    HeadgateError,
    RateLimiterUnavailable,
    RateLimitExceeded,
    ValidationError,
)
from headgate.headers import degraded_headers
from headgate.lease import Request
from headgate.limit import Limit
from headgate.middleware.http import Incoming, Outgoing
from headgate.schema import checked_entity, checked_resource

if TYPE_CHECKING:
    from headgate.acquisition import Lease, SyncLease

Key: TypeAlias = Callable[[Incoming], str | None]
Cost: TypeAlias = Consume | Callable[[Incoming], Consume]
Named: TypeAlias = list[tuple[str, Request]]
Used: TypeAlias = Callable[[Incoming, Outgoing], Mapping[str, int]]

# The breaker's shortest wait is longer, but the table may be back for the next request already.
UNAVAILABLE_RETRY_AFTER = 1


class BadKey(ValidationError):
    """The caller sent something that cannot name an entity."""


@dataclass(frozen=True, kw_only=True)
class Scope:
    """One bucket of each request: whose, of which resource, and how much of it."""

    key: Key
    """Whose bucket: `by_header(...)`, `by_claim(...)`, `by_ip`, `everyone`, or a function of the
    request. None lets the request pass this scope unlimited."""
    resource: str | Callable[[Incoming], str]
    """Of which resource."""
    cost: Cost
    """Amounts by limit, the name of an operation that the resource has costs for, or a function
    of the request that gives either."""
    name: str | None = None
    """What callers are told blocked them. Default: the resource."""
    limits: Sequence[Limit] | None = None
    """Limits of the code's own. Default: the stored ones."""

    def __post_init__(self) -> None:
        if not callable(self.key):
            raise ValidationError(f"key must be a function of the request: {self.key!r}")
        if not callable(self.resource):
            checked_resource(self.resource)
        if not callable(self.cost):
            checked_consume(self.cost)

    def request(self, incoming: Incoming) -> Request | None:
        """What to acquire for a request."""
        entity_id = self.key(incoming)
        if entity_id is None:
            return None
        try:
            checked_entity(entity_id)
        except ValidationError as error:
            raise BadKey(str(error)) from error
        resource = self.resource(incoming) if callable(self.resource) else self.resource
        cost = self.cost(incoming) if callable(self.cost) else self.cost
        return Request(entity_id, resource, cost, self.limits)


@dataclass(frozen=True, kw_only=True)
class Policy(Scope):
    """A scope, those that must pass with it, and how answers are dealt with."""

    also: Sequence[Scope] = ()
    """More buckets, all or nothing: by address beside by user, everyone together."""
    on_unavailable: OnUnavailable | None = None
    """Without the table: "allow" or "block" (503). Default: the stored policy, or the limiter's."""
    max_wait: float | None = None
    """For how many seconds a request may wait for tokens."""
    used: Used | None = None
    """What the request really took, by limit, seen from its answer: the estimate is corrected."""
    show: bool = True
    """Whether answers that pass carry the headers."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.on_unavailable is not None:
            policy(self.on_unavailable)
        if self.max_wait is not None:
            seconds("max_wait", self.max_wait)

    def requests(self, incoming: Incoming) -> Named:
        """What to acquire, each with the name of its scope. Empty: the request is not limited."""
        found: Named = []
        for scope in (self, *self.also):
            request = scope.request(incoming)
            if request is not None:
                found.append((scope.name or request.resource, request))
        return found

    def headers(self, lease: Lease | SyncLease) -> dict[str, str]:
        """The headers of an answer that passed."""
        if not self.show:
            return {}
        return lease.headers() | (degraded_headers(lease.degraded_reason) if lease.degraded else {})

    def correction(
        self, incoming: Incoming, outgoing: Outgoing, lease: Lease | SyncLease
    ) -> dict[str, int]:
        """By how much to adjust the lease."""
        if self.used is None or lease.degraded:
            return {}
        held, used = lease.consumed, self.used(incoming, outgoing)
        more = {name: amount - held.get(name, 0) for name, amount in used.items()}
        return {name: amount for name, amount in more.items() if amount}


@dataclass(frozen=True, slots=True)
class Refusal:
    """The answer to a request that does not pass."""

    status: int
    body: Mapping[str, object]
    error: HeadgateError
    headers: Mapping[str, str] = field(default_factory=dict)

    def text(self) -> str:
        """The body, as JSON."""
        return json.dumps(self.body)


def refusal(error: HeadgateError, requests: Named) -> Refusal:
    """What a caller is told. Ids of entities are ours, or of others: they are not in it."""
    match error:
        case BadKey():
            return Refusal(400, {"error": "bad_request", "message": "not a valid caller"}, error)
        case RateLimitExceeded():
            return _exceeded(error, requests)
        case RateLimiterUnavailable():
            body = {"error": "rate_limiter_unavailable", "degraded": True}
            told = {"Retry-After": str(UNAVAILABLE_RETRY_AFTER), **degraded_headers(error.reason)}
            return Refusal(503, body, error, told)
        case _:
            # No permission, no table, no such limit: a fault of this deployment, not of its caller.
            raise error


def _exceeded(error: RateLimitExceeded, requests: Named) -> Refusal:
    names = {(asked.entity_id, asked.resource): name for name, asked in requests}
    # A parent that an entity cascades to was not asked for by name.
    blocked = list(
        dict.fromkeys(names.get((b.entity_id, b.resource), b.resource) for b in error.blocked)
    )
    first = names.get((error.entity_id, error.resource), error.resource)
    told = error.as_dict()
    body = {name: told[name] for name in ("error", "retry_after", "contended", "limits")}
    body |= {"scope": first, "blocked": blocked}
    if error.reason is not None:
        body["reason"] = error.reason
    headers = {**error.headers(), "X-RateLimit-Scope": ", ".join(blocked)}
    return Refusal(429, body, error, headers)
