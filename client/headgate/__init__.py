"""Headgate: a token-bucket rate limiter on one DynamoDB table. One conditional write admits."""

from headgate.acquisition import Lease, SyncLease
from headgate.audit import AuditPage
from headgate.breaker import BreakerState
from headgate.bucket import LimitStatus
from headgate.capacity import BucketCapacity, LimitCapacity, ResourceCapacity
from headgate.checks import CheckResult
from headgate.core import CacheStats, Event
from headgate.errors import (
    AccessDenied,
    Blocked,
    ClockSkewed,
    EntityExists,
    EntityNotFound,
    HeadgateError,
    IncompatibleVersion,
    LimitsNotFound,
    NamespaceNotFound,
    RateLimiterUnavailable,
    RateLimitExceeded,
    TableError,
    TableNotFound,
    TicketExpired,
    TicketSpent,
    ValidationError,
    VersionConflict,
)
from headgate.journal import AuditEvent
from headgate.lease import Request
from headgate.limit import Limit
from headgate.limiter import RateLimiter, SyncRateLimiter
from headgate.namespaces import Namespace, Purged
from headgate.operate import Operated
from headgate.records import Entity, LimitsConfig, ResolvedLimits
from headgate.settle import Settled
from headgate.ticket import Ticket
from headgate.usage import UsagePage, UsageSnapshot, UsageSummary
from headgate.versions import Version

__all__ = [
    "AccessDenied",
    "AuditEvent",
    "AuditPage",
    "Blocked",
    "BreakerState",
    "BucketCapacity",
    "CacheStats",
    "CheckResult",
    "ClockSkewed",
    "Entity",
    "EntityExists",
    "EntityNotFound",
    "Event",
    "HeadgateError",
    "IncompatibleVersion",
    "Lease",
    "Limit",
    "LimitCapacity",
    "LimitStatus",
    "LimitsConfig",
    "LimitsNotFound",
    "Namespace",
    "NamespaceNotFound",
    "Operated",
    "Purged",
    "RateLimitExceeded",
    "RateLimiter",
    "RateLimiterUnavailable",
    "Request",
    "ResolvedLimits",
    "ResourceCapacity",
    "Settled",
    "SyncLease",
    "SyncRateLimiter",
    "TableError",
    "TableNotFound",
    "Ticket",
    "TicketExpired",
    "TicketSpent",
    "UsagePage",
    "UsageSnapshot",
    "UsageSummary",
    "ValidationError",
    "Version",
    "VersionConflict",
]
