"""AWS's bill for a recorded session: write and read units, by table and index, and dollars.

The rules (on-demand, standard table class):

- a write costs a unit for every started KB of the larger of the item before and after;
- a condition that fails costs as much as a write of the item that is there;
- an index costs nothing if nothing that it projects changes, one write if something does, two
  (a removal and an insertion) if its key does;
- a transaction costs double, whether it is carried out or cancelled;
- a read costs a unit for every started 4 KB if strongly consistent, half of that if not.

Nothing here imports the client: it meters any table and any user of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

DOLLARS_PER_WRITE_UNIT = 0.625e-6
DOLLARS_PER_READ_UNIT = 0.125e-6
WRITE_BLOCK, READ_BLOCK = 1024, 4096

Item = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Change:
    """One item that a request wrote, or tried to: its image before and after. A condition that
    failed leaves the image as it was.
    """

    before: Item | None
    after: Item | None


@dataclass(frozen=True, slots=True)
class Record:
    """One request of a session: what was asked, what came of it, which items it touched.

    `read` has the items that a read found, an index's projection of them where it asked one.
    """

    operation: str
    params: Mapping[str, Any]
    ok: bool = True
    changes: Sequence[Change] = ()
    read: Sequence[Item] = ()


@dataclass(slots=True)
class Bill:
    """What requests cost. Bills add up."""

    requests: int = 0
    writes: float = 0.0  # units, indexes included
    reads: float = 0.0
    indexes: dict[str, float] = field(default_factory=dict)  # the indexes' part of `writes`

    @property
    def dollars(self) -> float:
        """The price of all of it."""
        return self.writes * DOLLARS_PER_WRITE_UNIT + self.reads * DOLLARS_PER_READ_UNIT

    def __add__(self, other: Bill) -> Bill:
        names = {**self.indexes, **other.indexes}
        return Bill(
            self.requests + other.requests,
            self.writes + other.writes,
            self.reads + other.reads,
            {n: self.indexes.get(n, 0.0) + other.indexes.get(n, 0.0) for n in names},
        )

    def per(self, count: int) -> dict[str, float]:
        """The same for each of `count` operations, dollars for a million of them."""
        return {
            "requests": self.requests / count,
            "write_units": self.writes / count,
            "read_units": self.reads / count,
            "dollars_per_million": self.dollars / count * 1e6,
        }


def item_size(item: Item | None) -> int:
    """An item's bytes by DynamoDB's rules."""
    if item is None:
        return 0
    return sum(len(name.encode()) + value_size(value) for name, value in item.items())


def value_size(value: Mapping[str, Any]) -> int:
    """A value's bytes: text in UTF-8; two digits of a number in one, and one more, and one for
    a minus; a list or map has three and one for each element.
    """
    ((kind, content),) = value.items()
    match kind:
        case "S":
            return len(content.encode())
        case "N":
            return _number_size(content)
        case "BOOL" | "NULL":
            return 1
        case "B":
            return len(content) * 3 // 4 if isinstance(content, str) else len(content)
        case "SS":
            return sum(len(text.encode()) for text in content)
        case "NS":
            return sum(map(_number_size, content))
        case "L":
            return 3 + sum(1 + value_size(element) for element in content)
        case "M":
            return 3 + sum(1 + len(n.encode()) + value_size(v) for n, v in content.items())
        case _:
            raise ValueError(f"a value of unknown type {kind!r}")


def _number_size(text: str) -> int:
    digits = text.lstrip("-").replace(".", "").strip("0") or "0"
    return (len(digits) + 1) // 2 + 1 + text.startswith("-")


def _blocks(size: int, block: int) -> int:
    return max(1, -(-size // block))


@dataclass(frozen=True, slots=True)
class _Index:
    name: str
    keys: tuple[str, ...]
    attributes: frozenset[str] | None  # None is all

    def image(self, item: Item | None) -> Item | None:
        """The item as the index has it; None if it is not in it."""
        if item is None or any(key not in item for key in self.keys):
            return None
        if self.attributes is None:
            return item
        return {name: value for name, value in item.items() if name in self.attributes}

    def units(self, before: Item | None, after: Item | None) -> int:
        old, new = self.image(before), self.image(after)
        if old == new:
            return 0
        moved = old and new and any(old[key] != new[key] for key in self.keys)
        if moved:
            return _blocks(item_size(old), WRITE_BLOCK) + _blocks(item_size(new), WRITE_BLOCK)
        return _blocks(max(item_size(old), item_size(new)), WRITE_BLOCK)


class Meter:
    """The bill of sessions on one table: CreateTable's parameters, or what DescribeTable says."""

    def __init__(self, definition: Mapping[str, Any]) -> None:
        primary = _keys(definition)
        self._indexes = [
            _index(index, primary)
            for index in (
                *definition.get("GlobalSecondaryIndexes", ()),
                *definition.get("LocalSecondaryIndexes", ()),
            )
        ]

    def session(self, records: Iterable[Record]) -> Bill:
        """The bill of all of them."""
        return sum((self.record(record) for record in records), Bill())

    def record(self, record: Record) -> Bill:
        """The bill of one request."""
        if record.operation in _READS:
            return Bill(requests=1, reads=self._read(record))
        factor = 2 if record.operation == "TransactWriteItems" else 1
        bill = Bill(requests=1)
        for change in record.changes:
            cost = self.write(change, done=record.ok)
            bill.writes += factor * cost.writes
            for name, units in cost.indexes.items():
                bill.indexes[name] = bill.indexes.get(name, 0.0) + factor * units
        return bill

    def write(self, change: Change, *, done: bool = True) -> Bill:
        """One item written, or a write refused by its condition."""
        largest = max(item_size(change.before), item_size(change.after))
        bill = Bill(writes=_blocks(largest, WRITE_BLOCK))
        if done:
            for index in self._indexes:
                units = index.units(change.before, change.after)
                if units:
                    bill.indexes[index.name] = float(units)
                    bill.writes += units
        return bill

    def _read(self, record: Record) -> float:
        """Query and Scan are charged for the sum of what they read; the others by item."""
        factor = 2 if record.operation == "TransactGetItems" else _consistency(record)
        sizes = [item_size(item) for item in record.read]
        if record.operation in ("Query", "Scan"):
            return factor * _blocks(sum(sizes), READ_BLOCK)
        asked = _asked(record)
        found = sum(_blocks(size, READ_BLOCK) for size in sizes)
        # What is not there costs as much as the smallest thing that is.
        return factor * (found + max(0, asked - len(sizes)))


_READS = frozenset({"GetItem", "BatchGetItem", "TransactGetItems", "Query", "Scan"})


def _consistency(record: Record) -> float:
    params = record.params
    if record.operation == "BatchGetItem":
        wanted = params["RequestItems"].values()
        return 1.0 if any(one.get("ConsistentRead") for one in wanted) else 0.5
    return 1.0 if params.get("ConsistentRead") else 0.5


def _asked(record: Record) -> int:
    match record.operation:
        case "BatchGetItem":
            return sum(len(one["Keys"]) for one in record.params["RequestItems"].values())
        case "TransactGetItems":
            return len(record.params["TransactItems"])
        case _:
            return 1


def _keys(definition: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(key["AttributeName"] for key in definition["KeySchema"])


def _index(definition: Mapping[str, Any], primary: tuple[str, ...]) -> _Index:
    keys, projection = _keys(definition), definition["Projection"]
    attributes = None
    if projection["ProjectionType"] != "ALL":
        extra = projection.get("NonKeyAttributes", ())
        attributes = frozenset((*primary, *keys, *extra))
    return _Index(definition["IndexName"], keys, attributes)
