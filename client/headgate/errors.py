"""What Headgate raises.

HeadgateError
├── ValidationError          bad input; nothing was written (also a ValueError)
│   ├── LimitsNotFound       no level of the configuration has limits for this
│   ├── NamespaceNotFound    there is no such namespace
│   ├── EntityNotFound       there is no such entity
│   ├── EntityExists         there is one already
│   ├── TicketExpired        it is too late to settle this ticket
│   └── TicketSpent          it was settled before, otherwise
├── VersionConflict          it was changed by others since it was read
├── IncompatibleVersion      this client and the stored schema do not fit together
├── RateLimitExceeded        the answer is no, with when to try again
├── RateLimiterUnavailable   the table did not answer and the policy is to block
└── TableError               the table answered that it will never do this
    ├── TableNotFound
    ├── AccessDenied
    └── ClockSkewed          the signature's time was refused
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from headgate.headers import most_restrictive, rate_limit_headers

if TYPE_CHECKING:
    from headgate.bucket import LimitStatus

# Given when contention, not a balance, was in the way: long enough for a split to take effect.
CONTENDED_RETRY_AFTER = 0.1


class HeadgateError(Exception):
    """The root of all errors that Headgate raises on purpose."""


class ValidationError(HeadgateError, ValueError):
    """Input that can never be right: says what was given and what is allowed."""


class LimitsNotFound(ValidationError):
    """Neither the call, the stored configuration nor the constructor has limits."""


class NamespaceNotFound(ValidationError):
    """There is no namespace of this name or id."""


class EntityNotFound(ValidationError):
    """There is no entity of this id."""


class EntityExists(ValidationError):
    """There is an entity of this id already."""


class TicketExpired(ValidationError):
    """The time in which the ticket could be settled is over. What it holds stays taken."""


class TicketSpent(ValidationError):
    """The ticket was used for another change: settle its successor."""


class VersionConflict(HeadgateError):
    """What was to be changed has been changed by others: read it again and decide anew."""


class IncompatibleVersion(HeadgateError):
    """The namespace's schema, or the least client that it asks for, is not this client's."""


class RateLimiterUnavailable(HeadgateError):
    """The table could not be reached in time, and the policy is to block.

    `throttled` says that it did answer, that it has too much to do: no policy admits for that.
    """

    def __init__(self, reason: str, *, throttled: bool = False) -> None:
        how = "has too much to do" if throttled else "did not answer"
        super().__init__(f"the rate limiter's table {how}: {reason}")
        self.reason = reason
        self.throttled = throttled

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), throttled=self.throttled), (self.reason,)


class TableError(HeadgateError):
    """DynamoDB refused the request for a reason that trying again does not mend."""


class TableNotFound(TableError):
    """There is no such table in this account, region and endpoint."""


class AccessDenied(TableError):
    """The credentials in use may not do this on the table."""


class ClockSkewed(TableError):
    """This host's clock is so wrong that its signatures are refused."""


class Blocked(NamedTuple):
    """A bucket that said no, and the most restrictive of its limits that were short: None if none
    was, because the bucket was contended or is disabled.
    """

    entity_id: str
    resource: str
    limit: str | None


class RateLimitExceeded(HeadgateError):
    """At least one limit was short. Nothing was consumed.

    `limits` has the status of every limit of the bucket that said no. `retry_after` is in
    seconds, or None if no waiting will help: the request is larger than the capacity, or an
    operator has disabled the entity or the resource (then `reason` is "disabled").

    Where several buckets were asked, this is the most restrictive one that said no, and
    `blocked` names all that did, in the order of the call.
    """

    def __init__(
        self,
        entity_id: str,
        resource: str,
        limits: tuple[LimitStatus, ...],
        *,
        retry_after: float | None,
        contended: bool = False,
        remembered: bool = False,
        blocked: tuple[Blocked, ...] = (),
        reason: str | None = None,
    ) -> None:
        self.entity_id = entity_id
        self.resource = resource
        self.limits = limits
        self.retry_after = retry_after
        self.contended = contended
        self.remembered = remembered
        self.reason = reason
        self.blocked = blocked or (Blocked(entity_id, resource, self._tightest()),)
        super().__init__(self._sentence())

    def __reduce__(self) -> tuple[Any, ...]:
        # An exception is pickled by its message unless it says otherwise, and pools of processes
        # send them as pickles.
        named = ("retry_after", "contended", "remembered", "blocked", "reason")
        options = {name: getattr(self, name) for name in named}
        return partial(type(self), **options), (self.entity_id, self.resource, self.limits)

    @property
    def violations(self) -> tuple[LimitStatus, ...]:
        """The limits that were short."""
        return tuple(status for status in self.limits if status.short)

    def as_dict(self) -> dict[str, Any]:
        """The same as plain data, for a JSON answer."""
        told = {
            "error": "rate_limit_exceeded",
            "entity_id": self.entity_id,
            "resource": self.resource,
            "retry_after": self.retry_after,
            "contended": self.contended,
            "blocked": [blocked._asdict() for blocked in self.blocked],
            "limits": [status.as_dict() for status in self.limits],
        }
        return told if self.reason is None else {**told, "reason": self.reason}

    def headers(self) -> dict[str, str]:
        """The HTTP headers of a 429 answer."""
        return rate_limit_headers(self.limits, retry_after=self.retry_after, rejected=True)

    def _tightest(self) -> str | None:
        """The short limit that takes longest; None if it was not a limit that said no."""
        if self.contended or self.reason is not None or not self.violations:
            return None
        return most_restrictive(self.violations).name

    def _sentence(self) -> str:
        whom = f"{self.entity_id!r} on {self.resource!r}"
        if self.contended:
            return f"too many requests at once for {whom}: retry after {self.retry_after} s"
        if self.reason is not None:
            return f"{whom} is {self.reason} by an operator: nothing is admitted"
        short = ", ".join(
            f"{v.name} has {v.available} of {v.capacity} and {v.requested} were asked for"
            for v in self.violations
        )
        if self.retry_after is None:
            return f"limit exceeded for {whom}: {short}; waiting will not help"
        return f"limit exceeded for {whom}: {short}; retry after {self.retry_after} s"
