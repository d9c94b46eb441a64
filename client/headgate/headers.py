"""HTTP headers that tell a caller where it stands.

`RateLimit-Policy` and `RateLimit` are the structured fields of the IETF draft
draft-ietf-httpapi-ratelimit-headers: one member per limit. `Retry-After` is RFC 9110's. The
`X-RateLimit-*` trio is the older custom that most clients read: it shows the limit with the
least left, its reset as seconds since the epoch.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.bucket import LimitStatus

_MOST = 10**15 - 1  # the largest integer of a structured field


def rate_limit_headers(
    limits: Sequence[LimitStatus],
    *,
    retry_after: float | None = None,
    rejected: bool = False,
    now: float | None = None,
) -> dict[str, str]:
    """The headers for these limits. `retry_after` counts only for a rejection."""
    headers: dict[str, str] = {}
    if rejected and retry_after is not None:
        headers["Retry-After"] = str(max(1, math.ceil(retry_after)))
    if not limits:
        return headers
    headers["RateLimit-Policy"] = ", ".join(map(_policy, limits))
    headers["RateLimit"] = ", ".join(map(_standing, limits))
    tightest = most_restrictive(limits)
    headers["X-RateLimit-Limit"] = str(tightest.capacity)
    headers["X-RateLimit-Remaining"] = str(max(0, tightest.available))
    if tightest.full_after is not None:
        moment = time.time() if now is None else now
        headers["X-RateLimit-Reset"] = str(math.ceil(moment + tightest.full_after))
    return headers


def degraded_headers(reason: str | None) -> dict[str, str]:
    """The headers of an answer that was decided without the table."""
    # The reason may quote an endpoint or an exception: a header has one line of plain characters.
    plain = " ".join((reason or "unknown").split()).encode("ascii", "replace").decode()
    return {"X-RateLimit-Degraded": "true", "X-RateLimit-Degraded-Reason": plain[:200]}


def most_restrictive(limits: Sequence[LimitStatus]) -> LimitStatus:
    """The limit that decides: a short one that takes longest, else the one with least left."""
    return min(
        limits,
        key=lambda s: (
            not s.short,
            -math.inf if s.retry_after is None else -s.retry_after,
            s.available / s.capacity,
        ),
    )


def _policy(status: LimitStatus) -> str:
    member = f'"{status.name}";q={status.capacity}'
    if not status.refill_amount:
        return member
    # The draft knows windows, not buckets: the window in which a whole capacity accrues
    # states the same rate.
    window = -(-status.capacity * status.refill_period // status.refill_amount)
    return f"{member};w={min(window, _MOST)}"


def _standing(status: LimitStatus) -> str:
    member = f'"{status.name}";r={max(0, status.available)}'
    if status.full_after is None:
        return member
    return f"{member};t={min(math.ceil(status.full_after), _MOST)}"
