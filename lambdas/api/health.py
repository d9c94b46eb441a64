"""Whether checks are answered, and from what."""

from __future__ import annotations

from api.answers import Answer
from headgate import BreakerState, HeadgateError, SyncRateLimiter, TableError, ValidationError


def health(limiter: SyncRateLimiter) -> Answer:
    """Asks the table once.

    healthy     it answers
    degraded    it does not, and checks pass unmetered; or it has only just come back
    unhealthy   checks are refused
    """
    reason: str | None = None
    try:
        limiter.available("health", "health")
    except ValidationError:
        pass  # it answered: that there are no such limits
    except TableError as error:
        # It may name roles and accounts, and health may be open to all.
        reason = type(error).__name__
    except HeadgateError as error:
        reason = str(error)
    state = limiter.breaker
    if reason is None:
        word = "healthy" if state is BreakerState.CLOSED else "degraded"
    else:
        word = "degraded" if limiter.on_unavailable == "allow" else "unhealthy"
    body = {"status": word, "breaker": state.value, "reason": reason}
    return Answer(503 if word == "unhealthy" else 200, body)
