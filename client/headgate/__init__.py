"""Headgate: a token-bucket rate limiter on one DynamoDB table. One conditional write admits."""

from headgate.breaker import BreakerState
from headgate.bucket import LimitStatus
from headgate.checks import CheckResult
from headgate.core import CacheStats, Event
from headgate.errors import (
    AccessDenied,
    ClockSkewed,
    EntityExists,
    EntityNotFound,
    HeadgateError,
    LimitsNotFound,
    RateLimiterUnavailable,
    RateLimitExceeded,
    TableError,
    TableNotFound,
    ValidationError,
    VersionConflict,
)
from headgate.lease import Request
from headgate.limit import Limit
from headgate.limiter import Lease, RateLimiter, SyncLease, SyncRateLimiter
from headgate.records import Entity, LimitsConfig, ResolvedLimits

__all__ = [
    "AccessDenied",
    "BreakerState",
    "CacheStats",
    "CheckResult",
    "ClockSkewed",
    "Entity",
    "EntityExists",
    "EntityNotFound",
    "Event",
    "HeadgateError",
    "Lease",
    "Limit",
    "LimitStatus",
    "LimitsConfig",
    "LimitsNotFound",
    "RateLimitExceeded",
    "RateLimiter",
    "RateLimiterUnavailable",
    "Request",
    "ResolvedLimits",
    "SyncLease",
    "SyncRateLimiter",
    "TableError",
    "TableNotFound",
    "ValidationError",
    "VersionConflict",
]
