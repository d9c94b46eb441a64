"""IAM's evaluation, as far as our policies use it: who may do what on which keys."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True)
class Asked:
    """One action on one resource, with the partition keys that the request names."""

    action: str
    resource: str
    keys: tuple[str, ...] = ()


def allowed(statements: Iterable[Mapping[str, Any]], asked: Asked) -> bool:
    return any(
        statement["Effect"] == "Allow"
        and any(fnmatchcase(asked.action, action) for action in as_list(statement["Action"]))
        and any(fnmatchcase(asked.resource, arn) for arn in as_list(statement["Resource"]))
        and all(
            _holds(operator, conditions, asked)
            for operator, conditions in statement.get("Condition", {}).items()
        )
        for statement in statements
    )


def requests(operation: str, params: Mapping[str, Any], table_arn: str) -> list[Asked]:
    """What DynamoDB asks IAM about one call of the client."""
    if operation in {"TransactWriteItems", "TransactGetItems"}:
        return [
            Asked(f"dynamodb:{_IN_TRANSACTION[verb]}", table_arn, (_key(item),))
            for action in params["TransactItems"]
            for verb, item in action.items()
        ]
    if operation == "BatchGetItem":
        (wanted,) = params["RequestItems"].values()
        keys = tuple(key["PK"]["S"] for key in wanted["Keys"])
        return [Asked("dynamodb:BatchGetItem", table_arn, keys)]
    if operation == "BatchWriteItem":
        (writes,) = params["RequestItems"].values()
        keys = tuple(_key(item) for write in writes for item in write.values())
        return [Asked("dynamodb:BatchWriteItem", table_arn, keys)]
    if operation == "Query":
        index = params.get("IndexName")
        arn = f"{table_arn}/index/{index}" if index else table_arn
        return [Asked("dynamodb:Query", arn, (_queried(params),))]
    return [Asked(f"dynamodb:{operation}", table_arn, (_key(params),))]


_IN_TRANSACTION = {
    "Get": "GetItem",
    "Put": "PutItem",
    "Update": "UpdateItem",
    "Delete": "DeleteItem",
    "ConditionCheck": "ConditionCheckItem",
}


def _key(item: Mapping[str, Any]) -> str:
    return (item.get("Key") or item["Item"])["PK"]["S"]


def _queried(params: Mapping[str, Any]) -> str:
    """The value that the partition key is compared with: `PK = :p`."""
    name = params["KeyConditionExpression"].split("=")[1].split()[0]
    return params["ExpressionAttributeValues"][name]["S"]


def _holds(operator: str, conditions: Mapping[str, Any], asked: Asked) -> bool:
    ((name, values),) = conditions.items()
    assert name == "dynamodb:LeadingKeys"
    if operator == "Null":
        return (not asked.keys) == (values == "true")
    assert operator == "ForAllValues:StringLike"
    return all(any(fnmatchcase(key, value) for value in as_list(values)) for key in asked.keys)


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
