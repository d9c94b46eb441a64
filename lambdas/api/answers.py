"""What callers are told: bodies, status codes and headers."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from api.asks import Ask, Named
from headgate import (
    HeadgateError,
    LimitsNotFound,
    LimitStatus,
    RateLimiterUnavailable,
    RateLimitExceeded,
    TableError,
    TicketExpired,
    TicketSpent,
    ValidationError,
)
from headgate.headers import degraded_headers, most_restrictive, rate_limit_headers
from headgate.middleware.policy import UNAVAILABLE_RETRY_AFTER

Limits = Sequence[LimitStatus]
Told = tuple[Named, Limits]
"""A bucket by the names its caller knows, and its limits."""


class BadLease(ValidationError):
    """A lease that was not given out here."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer, before it is sent."""

    status: int
    body: Mapping[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict)

    def text(self) -> str:
        """The body as JSON."""
        return json.dumps(self.body)


def passed(told: Sequence[Told], *, dry_run: bool = False) -> Answer:
    """Tokens were taken, or would be."""
    return Answer(200, _taken(told, allowed=True, dry_run=dry_run), _headers(told))


def degraded(reason: str | None) -> Answer:
    """The table could not be asked, and the policy lets pass."""
    body = _taken((), allowed=True) | {"degraded": True, "reason": reason}
    return Answer(200, body, degraded_headers(reason))


def would_not(told: Sequence[Told], blocked: Sequence[Told], reason: str | None) -> Answer:
    """A dry run that does not pass."""
    body = _taken(told, allowed=False, dry_run=True) | {"reason": reason}
    said_no = [_named(one, None if reason else most_restrictive(limits)) for one, limits in blocked]
    body |= {"blocked": said_no, "first_blocked": said_no[0]}
    body["retry_after_seconds"] = _retry_after([limits for _, limits in blocked], reason)
    return Answer(429, body, _headers(told, body))


def refused(error: RateLimitExceeded, ask: Ask) -> Answer:
    """Tokens were not there."""
    names = {(one.request.entity_id, one.request.resource): one for one in ask}
    drawn = {one.request.resource: one for one in ask}

    def whose(entity_id: str, resource: str) -> Named:
        # A parent that an entity cascades to was not asked for by name.
        parent = drawn.get(resource, ask[0])
        return names.get((entity_id, resource)) or Named(None, parent.resource, parent.request)

    told = [(whose(error.entity_id, error.resource), error.limits)]
    body = _taken(told, allowed=False)
    body["blocked"] = [
        {**_named(whose(one.entity_id, one.resource), None), "limit": one.limit}
        for one in error.blocked
    ]
    body["first_blocked"] = body["blocked"][0]
    body["retry_after_seconds"] = error.retry_after
    body["reason"] = "contended" if error.contended else error.reason
    return Answer(429, body, _headers(told, body))


def status(named: Named, limits: Limits, mode: str) -> Answer:
    """Where a bucket stands."""
    told = [(named, limits)]
    return Answer(200, {"mode": mode, "limits": _standings(told)}, _headers(told))


def settled(told: Sequence[Told], *, done: bool, held: Mapping[str, int]) -> Answer:
    """A lease was corrected."""
    body = {"done": done, "held": dict(held), "limits": _standings(told)}
    return Answer(200, body | {"lease": None, "lease_expires_at": None}, _headers(told))


def failed(error: HeadgateError) -> Answer:
    """Anything but a plain no."""
    match error:
        case BadLease():
            return _error(403, "bad_lease", str(error))
        case TicketExpired():
            return _error(403, "lease_expired", str(error))
        case TicketSpent():
            return _error(403, "lease_spent", str(error))
        case RateLimitExceeded():
            return _error(429, "contended", str(error), error.headers())
        case LimitsNotFound():
            what = str(error).partition(":")[0]
            return _error(400, "no_limits", f"{what}: set some for the resource or the system")
        case ValidationError():
            return _error(400, "bad_request", str(error))
        case RateLimiterUnavailable():
            headers = {"Retry-After": str(UNAVAILABLE_RETRY_AFTER)}
            if not error.throttled:
                headers |= degraded_headers(error.reason)
            return _error(503, "unavailable", str(error), headers)
        case TableError():
            # No table, no permission: of this deployment's making. Callers need no details.
            return _error(
                503, "misconfigured", f"the service is not set up: {type(error).__name__}"
            )
        case _:
            return _error(503, "failed", str(error))


def _error(code: int, word: str, message: str, headers: Mapping[str, str] | None = None) -> Answer:
    return Answer(code, {"error": word, "message": message}, headers or {})


def _taken(told: Sequence[Told], *, allowed: bool, dry_run: bool = False) -> dict[str, Any]:
    tightest = _tightest(told)
    standing = _standing(tightest[1]) if tightest else _NOTHING
    return {
        "allowed": allowed,
        "dry_run": dry_run,
        "degraded": False,
        "reason": None,
        **standing,
        "retry_after_seconds": 0.0 if allowed else standing["retry_after_seconds"],
        "most_restrictive": _named(*tightest) if tightest else None,
        "first_blocked": None,
        "blocked": [],
        "limits": _standings(told),
        "lease": None,
        "lease_expires_at": None,
    }


_NOTHING: dict[str, Any] = {
    "capacity": None,
    "remaining": None,
    "retry_after_seconds": None,
    "reset_at": None,
}


def _standings(told: Sequence[Told]) -> list[dict[str, Any]]:
    return [
        {**_named(one, status), **_standing(status)} for one, limits in told for status in limits
    ]


def _standing(limit: LimitStatus) -> dict[str, Any]:
    full = limit.full_after
    return {
        "capacity": limit.capacity,
        "remaining": limit.available,
        "retry_after_seconds": limit.retry_after,
        "reset_at": None if full is None else math.ceil(time.time() + full),
    }


def _named(one: Named, limit: LimitStatus | None) -> dict[str, Any]:
    return {"scope": one.scope, "resource": one.resource, "limit": limit and limit.name}


def _tightest(told: Sequence[Told]) -> tuple[Named, LimitStatus] | None:
    """Of all limits of all buckets, the one that decides."""
    every = [(one, limit) for one, limits in told for limit in limits]
    if not every:
        return None
    chosen = most_restrictive([limit for _, limit in every])
    return next((one, limit) for one, limit in every if limit is chosen)


def _retry_after(blocked: Sequence[Limits], reason: str | None) -> float | None:
    waits = [limit.retry_after for limits in blocked for limit in limits if limit.short]
    if reason is not None or None in waits:
        return None
    return max((wait for wait in waits if wait is not None), default=0.0)


def _headers(told: Sequence[Told], body: Mapping[str, Any] | None = None) -> dict[str, str]:
    """Those of the bucket with the most restrictive limit; for a refusal, who said no as well."""
    tightest = _tightest(told)
    limits = next((limits for one, limits in told if tightest and one is tightest[0]), ())
    again = body["retry_after_seconds"] if body else None
    headers = rate_limit_headers(limits, retry_after=again, rejected=body is not None)
    if tightest:
        headers["X-RateLimit-Most-Restrictive"] = _label(_named(*tightest))
    if body:
        headers["X-RateLimit-First-Blocked"] = _label(body["first_blocked"])
        headers["X-RateLimit-Scope"] = ", ".join(
            dict.fromkeys(_quoted(one["scope"] or one["resource"]) for one in body["blocked"])
        )
    return headers


def _label(named: Mapping[str, Any]) -> str:
    limit = named["limit"] or "*"
    return f'"{limit}";scope="{_quoted(named["scope"] or named["resource"])}"'


def _quoted(text: str) -> str:
    # A header has plain characters only, and a resource may be named in any script.
    return quote(text, safe=" !$&'()*+-./:=?@^_`{|}~")
