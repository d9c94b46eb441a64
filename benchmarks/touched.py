"""Which items a request names: for the recorder, and for the limits of partitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Key = Mapping[str, Any]
Place = tuple[str, str]
_SINGLE = {"PutItem", "UpdateItem", "DeleteItem"}


def written(operation: str, params: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Table and key of each item that it writes, or tries to."""
    if operation in _SINGLE:
        yield params["TableName"], _key(params.get("Key") or params["Item"])
    elif operation == "TransactWriteItems":
        for action in params["TransactItems"]:
            for inner in action.values():
                yield inner["TableName"], _key(inner.get("Key") or inner["Item"])
    elif operation == "BatchWriteItem":
        for table, requests in params["RequestItems"].items():
            for request in requests:
                for inner in request.values():
                    yield table, _key(inner.get("Key") or inner["Item"])


def read(operation: str, params: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Table and key of each item that it asks for by its key."""
    if operation == "GetItem":
        yield params["TableName"], _key(params["Key"])
    elif operation == "BatchGetItem":
        for table, wanted in params["RequestItems"].items():
            for key in wanted["Keys"]:
                yield table, _key(key)
    elif operation == "TransactGetItems":
        for action in params["TransactItems"]:
            yield action["Get"]["TableName"], _key(action["Get"]["Key"])


def place(key: Key) -> Place:
    """A key as plain text."""
    return key["PK"]["S"], key["SK"]["S"]


def _key(item: Key) -> dict[str, Any]:
    return {name: item[name] for name in ("PK", "SK")}
