"""Namespaces: one table, tenants that cannot see each other."""

from __future__ import annotations

import pytest

from headgate import Limit, NamespaceNotFound, RateLimitExceeded, ValidationError

RPM = [Limit.per_minute("rpm", 10)]


def open_in(backend, namespace):
    limiter = backend.limiter(namespace=namespace, namespace_id=None, limits=RPM)
    limiter.register_namespace(namespace)
    return limiter


def take(limiter, amount=1, entity="alice", resource="gpt-4", **options):
    with limiter.acquire(entity, resource, {"rpm": amount}, **options) as lease:
        return lease


def test_the_default_namespace_is_made_on_first_use_and_known_after(backend):
    limiter = backend.limiter(namespace_id=None, limits=RPM)
    with limiter.sending() as sent:
        take(limiter)
    assert sent.count("TransactWriteItems") == 1
    with limiter.sending() as sent:
        take(limiter)
    assert sent == ["UpdateItem"]
    other = backend.limiter(namespace_id=None, limits=RPM)
    with other.sending() as sent:
        assert other.available("alice", "gpt-4") == {"rpm": 8}
    assert "TransactWriteItems" not in sent


def test_a_namespace_that_was_never_registered_is_an_error_that_says_what_to_do(backend):
    limiter = backend.limiter(namespace="prodution", namespace_id=None, limits=RPM)
    with pytest.raises(NamespaceNotFound, match=r"register_namespace\('prodution'\)"):
        take(limiter, on_unavailable="allow")


def test_namespaces_do_not_share_buckets_or_limits(backend):
    blue, green = open_in(backend, "blue"), open_in(backend, "green")
    take(blue, 10)
    assert green.available("alice", "gpt-4") == {"rpm": 10}
    blue.set_limits([Limit.per_minute("rpm", 3)])
    blue.set_limits([Limit.per_minute("rpm", 3)], entity_id="alice")
    assert green.get_limits() is None
    assert green.list_limits(entity_id="alice") == []
    assert green.list_limits() == []
    assert take(green, 10).consumed == {"rpm": 10}
    with pytest.raises(RateLimitExceeded):
        take(blue)


def partitions(params):
    """The namespaces of all keys, of the table and of its indexes, that a request names."""
    if isinstance(params, list | tuple):
        return {found for part in params for found in partitions(part)}
    if not isinstance(params, dict):
        return set()
    named = {value["S"].split("/")[0] for name, value in params.items() if name in KEYS}
    return named | {found for part in params.values() for found in partitions(part)}


KEYS = {"PK", "GSI1PK", "GSI2PK", "GSI3PK", "GSI4PK", "GSI4SK", ":p"}
HOSTILE = [
    "../blue/BUCKET",
    "/BUCKET",
    "{ns}/BUCKET",
    "_/SYSTEM",
    "ENTITY",
    "alice/gpt-4",
    "alice|gpt-4|0",
    "%23STATE",
    "alice\\",
    "'; DROP TABLE buckets; --",
    ":n",
    "$RESOURCE:gpt-4",
    "\u2044\uff03",  # a slash and a number sign by their looks
]


def test_hostile_names_stay_what_they_are_in_their_own_namespace(backend):
    blue, green = open_in(backend, "blue"), open_in(backend, "green")
    take(blue, 1)
    blue_id = blue.limiter._core.ns
    for name in HOSTILE:
        hostile = name.format(ns=blue_id) if "{ns}" in name else name
        take(green, 2, entity=hostile, resource="gpt-4")
        take(green, 3, entity="alice", resource=hostile)
        green.set_limits(RPM, entity_id=hostile, resource=hostile)
        assert green.available(hostile, "gpt-4") == {"rpm": 8}
        assert green.available("alice", hostile) == {"rpm": 7}
    assert {key for call in green.calls for key in partitions(call.params)} == {
        green.limiter._core.ns,
        "_",
    }
    assert blue.available("alice", "gpt-4") == {"rpm": 9}
    assert blue.list_limits(entity_id="alice") == []


@pytest.mark.parametrize("name", ["", "a/b", "a#b", "_", "-a", "a b", "x" * 65, "é", None, 7])
def test_a_name_that_cannot_be_a_namespace_is_refused_and_shown(backend, name):
    with pytest.raises(ValidationError) as caught:
        open_in(backend, name)
    assert repr(name) in str(caught.value)


@pytest.mark.parametrize("value", ["", "short", "x" * 12, "with/slash1", "with#number"])
def test_a_namespace_id_that_cannot_be_one_is_refused_and_shown(backend, value):
    with pytest.raises(ValidationError) as caught:
        backend.limiter(namespace_id=value)
    assert repr(value) in str(caught.value)


def test_every_item_carries_its_namespace(backend):
    limiter = open_in(backend, "blue")
    limiter.set_limits(RPM)
    limiter.set_limits(RPM, entity_id="alice")
    take(limiter)
    ns = limiter.limiter._core.ns
    puts = [call.params for call in limiter.calls if call.operation == "PutItem"]
    for call in limiter.calls:
        if call.operation == "TransactWriteItems":
            puts += [a["Put"] for a in call.params["TransactItems"] if "Put" in a]
    items = [put["Item"] for put in puts if not put["Item"]["PK"]["S"].startswith("_/")]
    # Its version, two levels of limits with their events, and the bucket.
    assert len(items) == 6
    for item in items:
        assert item["PK"]["S"].startswith(f"{ns}/")
        assert item["GSI4PK"] == {"S": ns}
        assert item["GSI4SK"] == item["PK"]
