"""Reads that may take several round trips: batches with leftovers, queries with pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from headgate import versions
from headgate.core import Core, failure
from headgate.effects import Answer, Call, Conflicted, Flow, Item, Pause, TransactionFailed
from headgate.errors import RateLimiterUnavailable
from headgate.records import Place
from headgate.schema import key

_BATCH = 100
_ROUNDS = 6


def keyed(items: Iterable[Item]) -> dict[Place, Item]:
    """The items by their keys."""
    return {(item["PK"]["S"], item["SK"]["S"]): item for item in items}


def batch_get(core: Core, keys: Sequence[Item], *, strong: bool = False) -> Flow[dict[Place, Item]]:
    """The items that exist, by their keys. The first read of a namespace brings its version."""
    found: dict[Place, Item] = {}
    unique = list(keyed(keys).values())
    version = versions.pending(core, unique)
    if version is not None:
        unique.append(key(*version))
    for start in range(0, len(unique), _BATCH):
        pending: dict[str, Any] | None = {
            core.table: {"Keys": unique[start : start + _BATCH], "ConsistentRead": strong}
        }
        for attempt in range(_ROUNDS):
            if attempt:
                yield Pause(0.01 * 2**attempt)
            answer = yield from core.ask(Call("BatchGetItem", {"RequestItems": pending}))
            found |= keyed(answer.body.get("Responses", {}).get(core.table, ()))
            pending = answer.body.get("UnprocessedKeys")
            if not pending:
                break
        else:
            raise RateLimiterUnavailable("reads are throttled", throttled=True)
    if version is not None:
        versions.verify(core, found.pop(version, None))
    return found


def query(
    core: Core,
    condition: str,
    partition: str,
    prefix: str | None = None,
    *,
    index: str | None = None,
    limit: int | None = None,
) -> Flow[list[Item]]:
    """The items of a query, page after page, all or the first `limit`. `:p` and `:s` stand for
    partition and prefix.
    """
    values = {":p": {"S": partition}}
    if prefix is not None:
        values[":s"] = {"S": prefix}
    params: dict[str, Any] = {
        "TableName": core.table,
        "KeyConditionExpression": condition,
        "ExpressionAttributeValues": values,
    }
    if index is not None:
        params["IndexName"] = index
    items: list[Item] = []
    while True:
        if limit is not None:
            params["Limit"] = limit - len(items)
        answer = yield from core.ask(Call("Query", dict(params)))
        items.extend(answer.body.get("Items", ()))
        if not answer.body.get("LastEvaluatedKey") or len(items) == limit:
            return items
        params["ExclusiveStartKey"] = answer.body["LastEvaluatedKey"]


def transact_get(core: Core, keys: Sequence[Item]) -> Flow[list[Item | None]]:
    """The items as they were at one moment."""
    gets = [{"Get": {"TableName": core.table, "Key": key}} for key in keys]
    for attempt in range(_ROUNDS):
        if attempt:
            yield Pause(0.01 * 2**attempt)
        (outcome,) = yield from core.call(Call("TransactGetItems", {"TransactItems": gets}))
        if isinstance(outcome, Answer):
            return [response.get("Item") for response in outcome.body["Responses"]]
        if not isinstance(outcome, TransactionFailed | Conflicted):
            raise failure(outcome)
    raise RateLimiterUnavailable("reads are in conflict with writes", throttled=True)
