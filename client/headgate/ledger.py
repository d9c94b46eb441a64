"""Who answers for a provisioned record: the stacks and files that have it written down.

Several may have the same record, and one may hand it to another (a construct that moves in its
app is created anew before it is deleted). So a record that provisioning made goes when its last
owner does, and one that was there before stays.

| record | PK                            | SK                                     |
|--------|-------------------------------|----------------------------------------|
| claims | {ns}/SYSTEM# (or _/SYSTEM#)   | #CLAIMS#{kind}#{entity id}#{resource}  |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headgate.core import Core, failure
from headgate.effects import Answer, Call, ConditionFailed, Flow, Item
from headgate.namespaces import opened
from headgate.reads import batch_get, query
from headgate.schema import REGISTRY, NamespaceId, in_namespace, key, pk_system


@dataclass(frozen=True, slots=True)
class Claims:
    """Who has a record written down, and whether provisioning made it."""

    owners: frozenset[str] = frozenset()
    made: bool = False


def claims(core: Core, label: str, *, registry: bool = False) -> Flow[Claims]:
    """The claims on a record, read strongly."""
    pk, sk = (yield from _place(core, label, registry=registry))[1]
    items = yield from batch_get(core, [key(pk, sk)], strong=True)
    return _read(items.get((pk, sk)))


def claimed(core: Core, owner: str, *, registry: bool = False) -> Flow[dict[str, Claims]]:
    """All that this owner has written down, by label."""
    _, (pk, prefix) = yield from _place(core, "", registry=registry)
    items = yield from query(core, "PK = :p AND begins_with(SK, :s)", pk, prefix)
    found = {item["SK"]["S"].removeprefix(prefix): _read(item) for item in items}
    return {label: claims for label, claims in found.items() if owner in claims.owners}


def claim(core: Core, label: str, owner: str, *, made: bool, registry: bool = False) -> Flow[None]:
    """Adds an owner. Whether the record was `made` is told by the first."""
    ns, (pk, sk) = yield from _place(core, label, registry=registry)
    listed = in_namespace(ns, pk)
    update = {
        "TableName": core.table,
        "Key": key(pk, sk),
        "UpdateExpression": (
            "ADD claimed_by :o SET made = if_not_exists(made, :m), GSI4PK = :n, GSI4SK = :p"
        ),
        "ExpressionAttributeValues": {
            ":o": {"SS": [owner]},
            ":m": {"BOOL": made},
            ":n": listed["GSI4PK"],
            ":p": listed["GSI4SK"],
        },
    }
    yield from core.ask(Call("UpdateItem", update))


def disclaim(core: Core, label: str, owner: str, *, registry: bool = False) -> Flow[bool]:
    """Takes an owner away. True if the record should go with it: it was made, and this was the
    last. The entry stays, without owners, until `forget`, so that a repetition says the same.
    """
    _, (pk, sk) = yield from _place(core, label, registry=registry)
    update = {
        "TableName": core.table,
        "Key": key(pk, sk),
        "UpdateExpression": "DELETE claimed_by :o",
        "ConditionExpression": "contains(claimed_by, :owner)",
        "ExpressionAttributeValues": {":o": {"SS": [owner]}, ":owner": {"S": owner}},
        "ReturnValues": "ALL_NEW",
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }
    (outcome,) = yield from core.call(Call("UpdateItem", update))
    if isinstance(outcome, Answer):
        left = _read(outcome.body["Attributes"])
    elif isinstance(outcome, ConditionFailed):
        left = _read(outcome.item)
    else:
        raise failure(outcome)
    return left.made and not left.owners


def forget(core: Core, label: str, *, registry: bool = False) -> Flow[None]:
    """Removes the entry of a record that nobody claims."""
    _, (pk, sk) = yield from _place(core, label, registry=registry)
    delete = {
        "TableName": core.table,
        "Key": key(pk, sk),
        "ConditionExpression": "attribute_not_exists(claimed_by)",
    }
    (outcome,) = yield from core.call(Call("DeleteItem", delete))
    if not isinstance(outcome, Answer | ConditionFailed):
        raise failure(outcome)


def _place(core: Core, label: str, *, registry: bool) -> Flow[tuple[NamespaceId, tuple[str, str]]]:
    ns = REGISTRY if registry else (yield from opened(core))
    return ns, (pk_system(ns), f"#CLAIMS#{label}")


def _read(item: Item | dict[str, Any] | None) -> Claims:
    if not item:
        return Claims()
    owners = item["claimed_by"]["SS"] if "claimed_by" in item else ()
    return Claims(frozenset(owners), item["made"]["BOOL"])
