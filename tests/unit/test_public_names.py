"""The contract with users: names and signatures. A change here is a change to the contract."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys

import headgate
from headgate import Lease, RateLimiter, SyncLease, SyncRateLimiter

NAMES = """
    AccessDenied AuditEvent AuditPage Blocked BreakerState BucketCapacity CacheStats CheckResult
    ClockSkewed Entity EntityExists EntityNotFound Event HeadgateError IncompatibleVersion Lease
    Limit LimitCapacity LimitStatus LimitsConfig LimitsNotFound Namespace NamespaceNotFound
    Operated Purged RateLimitExceeded RateLimiter RateLimiterUnavailable Request ResolvedLimits
    ResourceCapacity Settled SyncLease SyncRateLimiter TableError TableNotFound Ticket TicketExpired
    TicketSpent UsagePage UsageSnapshot UsageSummary ValidationError Version VersionConflict
""".split()

METHODS = {
    "acquire": "entity_id, resource, consume, *, limits=None, max_wait=None, "
    "on_unavailable=None, also=()",
    "acquire_all": "requests, *, max_wait=None, on_unavailable=None",
    "acquire_each": "groups, *, on_unavailable=None",
    "adjust": "ticket, amounts",
    "available": "entity_id, resource",
    "cache_stats": "",
    "check": "entity_id, resource, consume",
    "close": "",
    "create_entity": "entity_id, *, parent_id=None, cascade=False, name=None, metadata=None",
    "delete_limits": "*, entity_id=None, resource=None",
    "get_entity": "entity_id",
    "get_limits": "*, entity_id=None, resource=None",
    "invalidate_cache": "",
    "list_children": "entity_id",
    "list_limits": "*, entity_id=None, resource=None",
    "release": "ticket, amounts=None",
    "resolve_limits": "entity_id, resource",
    "set_limits": "limits, *, entity_id=None, resource=None, on_unavailable=None",
    "time_until_available": "entity_id, resource, consume",
}
# Their signatures are held in check where they are tested.
OTHER_METHODS = set(
    """
    delete_entity delete_namespace from_env get_audit_events get_namespace get_resource_capacity
    get_usage_snapshots get_usage_summary get_version list_namespaces list_orphans migrate namespace
    purge_namespace recover_namespace register_namespace require_client reset set_costs set_mode
    top_up update_entity
    """.split()
)
PROPERTIES = {"breaker", "clock_offset", "on_unavailable"}


def public(kind):
    return {name for name in dir(kind) if not name.startswith("_")}


def signature(function):
    """Without types: names, kinds and defaults."""
    plain = inspect.signature(function)
    stripped = [p.replace(annotation=inspect.Parameter.empty) for p in plain.parameters.values()]
    return str(inspect.Signature(stripped))[1:-1]


def test_these_names_are_public_and_no_others():
    assert sorted(headgate.__all__) == sorted(NAMES)
    assert all(hasattr(headgate, name) for name in NAMES)


def test_both_limiters_have_the_same_methods_with_the_same_signatures():
    made = [SyncRateLimiter("table"), RateLimiter("table")]
    expected = METHODS.keys() | OTHER_METHODS | PROPERTIES
    assert public(SyncRateLimiter) == public(RateLimiter) == expected
    for name in METHODS.keys() | OTHER_METHODS:
        one, other = (signature(getattr(limiter, name)) for limiter in made)
        assert one == other, name
        assert METHODS.get(name, one) == one, name
    assert signature(SyncRateLimiter) == signature(RateLimiter)


def test_a_signature_shows_what_callers_give_and_get():
    for limiter in (SyncRateLimiter("table"), RateLimiter("table")):
        shown = str(inspect.signature(limiter.available))
        assert shown == "(entity_id: 'str', resource: 'str') -> 'dict[str, int]'"


def test_both_leases_have_the_same_methods():
    assert public(SyncLease) == public(Lease)
    assert public(Lease) == {
        "adjust",
        "consume",
        "consumed",
        "degraded",
        "degraded_reason",
        "headers",
        "limits",
        "limits_of",
        "release",
        "ticket",
    }


def test_every_public_method_says_what_it_does():
    for kind in (SyncRateLimiter, RateLimiter, SyncLease, Lease):
        assert kind.__doc__
        for name in public(kind):
            assert getattr(kind, name).__doc__, f"{kind.__name__}.{name}"


def test_what_awaits_is_a_coroutine_function_and_what_blocks_is_none():
    blocking, awaiting = SyncRateLimiter("table"), RateLimiter("table")
    for name in METHODS.keys() - {"acquire", "acquire_all", "cache_stats", "invalidate_cache"}:
        assert inspect.iscoroutinefunction(getattr(awaiting, name)), name
        assert not inspect.iscoroutinefunction(getattr(blocking, name)), name


# What a function pays for on a cold start before it makes its first request. The SDKs are loaded
# with the first client; typing and logging and the like are everywhere anyway.
HEAVY = {
    "aiobotocore",
    "aiohttp",
    "aws_cdk",
    "boto3",
    "botocore.auth",
    "botocore.client",
    "botocore.endpoint",
    "botocore.loaders",
    "botocore.parsers",
    "botocore.session",
    "cryptography",
    "pydantic",
    "requests",
    "s3transfer",
    "urllib3",
    "yaml",
}


def test_importing_the_client_loads_no_sdk():
    script = "import headgate, json, sys; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    loaded = set(json.loads(done.stdout))
    assert loaded & HEAVY == set()
    assert len([name for name in loaded if name.startswith("headgate")]) < 50
