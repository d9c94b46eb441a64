"""The registry of namespaces: a name for people, an opaque id in every key."""

from __future__ import annotations

import secrets

from headgate.core import Core, failure
from headgate.effects import Answer, Call, Conflicted, Flow, Item, Pause, TransactionFailed
from headgate.errors import RateLimiterUnavailable
from headgate.reads import batch_get
from headgate.schema import REGISTRY, NamespaceId, key, namespace_name, pk_system

_TRIES = 6


def opened(core: Core) -> Flow[NamespaceId]:
    """The id of the limiter's namespace: looked up, and registered, on first use."""
    if core.ns is None:
        core.ns = yield from _registered(core, core.settings.namespace)
    return core.ns


def _registered(core: Core, name: str) -> Flow[NamespaceId]:
    forward = key(pk_system(REGISTRY), f"#NAMESPACE#{namespace_name(name)}")
    place = forward["PK"]["S"], forward["SK"]["S"]
    for attempt in range(_TRIES):
        items = yield from batch_get(core, [forward], strong=attempt > 0)
        if place in items:
            return NamespaceId(items[place]["namespace_id"]["S"])
        ns = secrets.token_urlsafe(8)
        (outcome,) = yield from core.call(_register(core, name, ns))
        match outcome:
            case Answer():
                return NamespaceId(ns)
            case TransactionFailed():
                continue  # another client was first: what it registered is read
            case Conflicted():
                yield Pause(0.01 * 2**attempt)  # another client is at it
            case _:
                raise failure(outcome)
    raise RateLimiterUnavailable("the registry of namespaces is contended", throttled=True)


def _register(core: Core, name: str, ns: str) -> Call:
    pk = pk_system(REGISTRY)
    shared: Item = {"name": {"S": name}, "namespace_id": {"S": ns}}

    def put(sk: str) -> dict[str, object]:
        return {
            "Put": {
                "TableName": core.table,
                "Item": {**key(pk, sk), **shared},
                "ConditionExpression": "attribute_not_exists(PK)",
            }
        }

    actions = [put(f"#NAMESPACE#{name}"), put(f"#NSID#{ns}")]
    return Call("TransactWriteItems", {"TransactItems": actions})
